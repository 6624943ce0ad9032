"""Sample texts and reviews for the demonstration."""
