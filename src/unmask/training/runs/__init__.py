"""The directory of a run: metrics, plots, reports."""
