"""Training, loading and use of subword vocabularies."""
