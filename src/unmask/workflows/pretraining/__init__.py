"""From a corpus to an encoder."""
