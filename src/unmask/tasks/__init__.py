"""Labelled files to examples, heads and predictions, one file a kind of task."""
