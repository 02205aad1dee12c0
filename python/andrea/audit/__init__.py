"""A run's samples read as a whole: where they collapsed, what they copied, what the gate would have saved."""
