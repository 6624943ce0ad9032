"""Whole models, scored."""
