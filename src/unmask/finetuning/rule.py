"""One rule of all defaults of fine-tuning: a function of the task, the model's width and the number of examples.

No name of a data set or of a checkpoint occurs in it; docs/fine-tuning.md and docs/features.md show on which splits of
training data it was tried.
"""

from __future__ import annotations

import math

from unmask.encoders.encoder import LEFT_TO_RIGHT
from unmask.families import BodySettings
from unmask.tasks import TASKS

PRETRAINED_RATE = 5e-5
"""Peak learning rate at BERT-base's width, from pretrained weights."""
RANDOM_RATE = 1e-4
"""The same from random weights."""
FEW_EXAMPLES = 2000
MIN_STEPS = 400
MIN_EPOCHS, MAX_EPOCHS = 3, 20
TAGGING_EPOCHS = 4
"""Passes to find entities, at least, as Devlin et al. 2019, appendix A.3, have at most."""
FROZEN_RATES = {"linear": 1e-2, "average": 1e-3, "rnn": 1e-3}
"""Peak learning rates on frozen features, whatever the width."""
MIN_STEPS_FROZEN = 2000
MIN_EPOCHS_FROZEN, MAX_EPOCHS_FROZEN = 10, 50
LAYERS = 4
"""So many of the last layers are read by `average` and `rnn`: the best in Devlin et al. 2019, table 7."""


LM_WEIGHT = 0.5
"""Of the language model beside a task (Radford et al. 2018, section 4.1)."""


def defaults(
    kind: str,
    settings: BodySettings,
    examples: int,
    *,
    pretrained: bool,
    frozen: bool = False,
    downstream: str | None = None,
) -> dict[str, object]:
    """Return the recipe that a fine-tuning starts from: a rule of the model's width and the number of examples.

    The smaller the model, the higher the learning rate; the fewer the examples, the smaller the batch and the more
    passes, so that few runs have fewer than `MIN_STEPS` steps. docs/fine-tuning.md shows on which splits of training
    data the rule was chosen. Of a frozen encoder only the small model learns, from weights drawn at random: at a higher
    rate and in more steps, which cost little (docs/features.md).
    """
    sequences = 16 if examples < FEW_EXAMPLES else 32
    least = TAGGING_EPOCHS if kind == "token-classification" else MIN_EPOCHS
    epochs = min(MAX_EPOCHS, max(least, math.ceil(MIN_STEPS * sequences / examples)))
    rate = (PRETRAINED_RATE if pretrained else RANDOM_RATE) * math.sqrt(768 / settings.width)
    if frozen:
        epochs = min(MAX_EPOCHS_FROZEN, max(MIN_EPOCHS_FROZEN, math.ceil(MIN_STEPS_FROZEN * sequences / examples)))
        rate = FROZEN_RATES[downstream or "linear"]
    chosen: dict[str, object] = {}
    if frozen or downstream:
        layers = [-1] if downstream in (None, "linear") else list(range(-min(LAYERS, settings.layers), 0))
        chosen = {"frozen": frozen, "downstream": {"kind": downstream or "linear", "layers": layers}}
    elif LEFT_TO_RIGHT in settings.gives:
        chosen = {"objective": {"causal_lm": {"weight": LM_WEIGHT}}}
    return {
        **chosen,
        "task": {"kind": kind, "length": min(TASKS[kind]().length, settings.positions)},
        "batch": {"sequences": sequences},
        "optimizer": {"kind": "adamw", "learning_rate": float(f"{rate:.2g}")},
        "schedule": {"kind": "linear", "warmup": 0.1},
        "budget": {"epochs": float(epochs)},
    }
