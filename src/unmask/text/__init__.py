"""Raw files to documents to sentences."""
