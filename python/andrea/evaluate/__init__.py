"""How good a model is: loss on held-out text, and the opinion of an external judge."""
