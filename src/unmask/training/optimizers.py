"""Registry of optimizers, apart from their settings, which packages with optimizers of their own import.

To add one: its settings, a line here, a test.
"""

from typing import TYPE_CHECKING, TypeAlias, Union

from unmask.support.plugins import Registry
from unmask.training.optimizer_settings import AdamWSettings, LambSettings, MuonSettings, OptimizerSettings

OPTIMIZERS: Registry[type[OptimizerSettings]] = Registry(
    "unmask.optimizers", {"adamw": AdamWSettings, "lamb": LambSettings, "muon": MuonSettings}
)
"""Settings classes by `kind` in [optimizer]."""

if TYPE_CHECKING:
    AnyOptimizer: TypeAlias = OptimizerSettings
else:
    AnyOptimizer = Union[tuple(OPTIMIZERS.values())]  # noqa: UP007 (number of members known only at run time)
"""Type of [optimizer] in a recipe."""
