"""Evaluation of complete models."""
