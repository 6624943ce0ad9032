"""Labelled examples to a model for a task: one run, several of them, the encoder tuned or frozen."""
