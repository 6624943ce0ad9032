"""Checks of parts, for the tests of packages that add some: `unmask.testing.check_objective` and others.

They need neither pytest nor a checkout of unmask. Each raises an `AssertionError` that says what a part does wrong.
"""

from __future__ import annotations

from unmask.testing.parts import (
    check_exporter,
    check_family,
    check_layout,
    check_masking,
    check_metric,
    check_objective,
    check_optimizer,
    check_reader,
)
from unmask.testing.task import OPERATIONS, check_task

__all__ = [
    "OPERATIONS",
    "check_exporter",
    "check_family",
    "check_layout",
    "check_masking",
    "check_metric",
    "check_objective",
    "check_optimizer",
    "check_reader",
    "check_task",
]
