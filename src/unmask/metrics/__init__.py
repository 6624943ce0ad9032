"""Official metrics and their confidence intervals, based on NumPy only.

Registry of metrics beside those of tasks, by which fine-tuned models are scored if they are named. Each task has its
own, so that only other packages add any.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from unmask.support.plugins import Registry

Metric: TypeAlias = Callable[[Sequence[Any], Sequence[Any], Sequence[str]], Callable[[np.ndarray], float]]
"""Takes examples of a task, their predictions and the labels of the model, as `Task.measure` does; returns a function
from indices of examples, which may repeat, to the value of the metric. Raises a `UserError` for other tasks."""
METRICS: Registry[Metric] = Registry("unmask.metrics", {}, "collections.abc:Callable")
"""Metrics by name."""
