"""Encoders: the Transformer body, downstream models over encoders, stored features and padded input."""
