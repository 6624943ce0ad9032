"""Shards to samples to ragged batches."""
