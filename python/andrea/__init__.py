"""andrea grows small decoder-only language models on one GPU from open data."""
