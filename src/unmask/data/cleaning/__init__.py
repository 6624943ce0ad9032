"""Cleaning of text before it is learned from: rules for documents, duplicates, and overlap with test files."""
