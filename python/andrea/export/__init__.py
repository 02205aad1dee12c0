"""A trained model in the formats of other programs, and models of their formats as checkpoints."""
