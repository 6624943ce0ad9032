"""Comparison of ways to a model on a user's own text and labels, under one budget."""
