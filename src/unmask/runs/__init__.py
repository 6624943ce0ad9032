"""The directory that a run leaves: metrics, pictures, words."""
