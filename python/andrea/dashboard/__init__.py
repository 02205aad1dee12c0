"""Looking at runs: the live dashboard, plots, a terminal view. Reads runs, never writes there."""
