"""From shards to samples to ragged batches."""
