"""Serving: predictions of loaded models over HTTP, and a page to try them in a browser."""
