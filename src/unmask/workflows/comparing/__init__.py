"""Comparison of encoders on labeled examples: a first look without training."""
