"""What ships with the package for the demonstration."""
