"""Dynamic scaling of the loss, for gradients in fp16 (Micikevicius et al. 2018, sections 3.2 and 3.3).

Below 6e-8 a number is 0 in fp16, and above 65,504 it is infinite. Gradients of a loss that is multiplied by a factor
are larger by that factor; they are divided by it when the optimizer reads them in float32. The factor is as large as
possible: it is halved when a gradient is infinite, in which case the step is skipped, and doubled after `PATIENCE`
steps without one, as by `torch.amp.GradScaler`. The state is in the run's progress, and so in checkpoints. In float32
and bf16, whose exponents reach as far as the gradients, the factor is 1.
"""

from __future__ import annotations

from unmask.training.checkpoint import Progress

FIRST = 2.0**16
PATIENCE = 2000
LEAST, LARGEST = 1.0, 2.0**24


class LossScale:
    """The factor of the loss of a run.

    Args:
        precision: "float32", "bf16" or "fp16".
    """

    def __init__(self, precision: str) -> None:
        self.active = precision == "fp16"

    def of(self, progress: Progress) -> float:
        """Return the factor of the next step."""
        return (progress.loss_scale or FIRST) if self.active else 1.0

    def update(self, progress: Progress, *, overflowed: bool) -> bool:
        """Choose the factor of the next step, and return whether a smaller one may help against the overflow."""
        if not self.active:
            return False
        scale = self.of(progress)
        progress.finite_steps = 0 if overflowed else progress.finite_steps + 1
        if overflowed:
            progress.loss_scale = max(LEAST, scale / 2)
        elif progress.finite_steps == PATIENCE:
            progress.loss_scale, progress.finite_steps = min(LARGEST, 2 * scale), 0
        else:
            progress.loss_scale = scale
        return overflowed and scale > LEAST
