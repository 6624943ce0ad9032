"""The layers that encoders are built from."""
