"""Readers of labelled files: rows of columns, tagged sentences, questions; none needs torch."""
