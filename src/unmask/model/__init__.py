"""A model in memory, and the directory that it is in."""
