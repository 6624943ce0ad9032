"""Comparison of ways to a model: by training them under one budget, or by a first look at features."""
