"""Official metrics and their confidence intervals, based on NumPy only."""
