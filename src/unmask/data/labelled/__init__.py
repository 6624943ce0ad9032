"""Readers of labeled files: rows of columns, tagged sentences, and questions; none of them needs torch."""
