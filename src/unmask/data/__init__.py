"""From raw text and labeled files to batches."""
