"""Runs without plots."""

from ...undrawn import _undrawn, drawn  # noqa: F401
