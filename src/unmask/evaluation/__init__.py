"""Official metrics with confidence intervals."""
