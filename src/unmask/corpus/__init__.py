"""Documents to checksummed shards of tokens."""
