"""Training from Python: one run with its display, samples of a trained model, a first experiment."""

from andrea.train.run import RunOptions, train

__all__ = ["RunOptions", "train"]
