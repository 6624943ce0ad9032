"""Inference with a model: text in; predictions, filled masks or features out."""
