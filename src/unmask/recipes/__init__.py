"""Recipes as typed data, and those that come with the package."""
