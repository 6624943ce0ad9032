"""Official metrics and their intervals; numpy alone."""
