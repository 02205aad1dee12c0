"""Looking at runs: the live dashboard, plots for papers, and a terminal view. Reads runs, never writes there."""
