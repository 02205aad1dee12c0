"""Text from a trained model: samples and chat."""
