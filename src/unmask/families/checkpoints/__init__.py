"""Checkpoint formats of other libraries."""
