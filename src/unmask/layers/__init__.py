"""The parts that encoders are built of."""
