"""Formats that others made, one file a format."""
