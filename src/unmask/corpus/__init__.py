"""Documents to checksummed, memory-mapped shards of tokens."""
