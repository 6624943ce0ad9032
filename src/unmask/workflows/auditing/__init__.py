"""Audit of labels: which are probably wrong, a file to correct them in, and a page to look through."""
