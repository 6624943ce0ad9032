"""Layers, and the encoders that they make up."""
