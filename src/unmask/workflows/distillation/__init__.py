"""Distillation: a small student learns from a trained teacher, on text or on the examples of a task."""
