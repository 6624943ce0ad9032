"""Train and load subword vocabularies."""
