"""Conversion of documents into checksummed shards of tokens, and reading of these."""
