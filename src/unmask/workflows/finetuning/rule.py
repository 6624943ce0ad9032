"""Rule for all defaults of fine-tuning: a function of the task, the model's width, what it was pretrained on, and the
number of examples.

It does not depend on names of data sets or checkpoints. docs/fine-tuning.md and docs/features.md state on which splits
of training data it was chosen.
"""

from __future__ import annotations

import math

from unmask.families import BodySettings
from unmask.nn.encoders.encoder import LEFT_TO_RIGHT
from unmask.tasks import TASKS

PRETRAINED_RATE = 5e-5
"""Peak learning rate for pretrained weights, at the width of BERT-base."""
RANDOM_RATE = 1e-4
"""Peak learning rate for random weights, at the width of BERT-base."""
LITTLE_TEXT, LITTLE_TEXT_BOOST = 1e8, 4.0
"""Maximum number of tokens of encoders that were pretrained on little text, and the multiple of the rate for these."""
BOOST_POWER = 0.4
"""By which power of the tokens the multiple then falls to 1."""
FEW_EXAMPLES = 2000
MIN_STEPS = 400
MIN_EPOCHS, MAX_EPOCHS = 3, 20
TAGGING_EPOCHS = 4
"""Minimum number of epochs for token classification: the maximum in Devlin et al. 2019, appendix A.3."""
TAGGING_BOOST = 2.0
"""Multiple of the learning rate for token classification."""
FROZEN_RATES = {"linear": 1e-2, "average": 1e-3, "rnn": 1e-3}
"""Peak learning rates on frozen features, independent of the width."""
MIN_STEPS_FROZEN = 2000
MIN_EPOCHS_FROZEN, MAX_EPOCHS_FROZEN = 10, 50
LAYERS = 4
"""Number of last layers that `average` and `rnn` read: the best in Devlin et al. 2019, table 7."""
LM_WEIGHT = 0.5
"""Weight of the auxiliary language modeling objective (Radford et al. 2018, section 4.1)."""


def defaults(
    kind: str,
    settings: BodySettings,
    examples: int,
    *,
    pretrained: bool,
    tokens: int | None = None,
    frozen: bool = False,
    downstream: str | None = None,
) -> dict[str, object]:
    """Return the default recipe of fine-tuning.

    The smaller the model, and the less text it was pretrained on (`tokens`; None: unknown, as of published models), the
    higher the learning rate; the fewer the examples, the smaller the batch and the more
    epochs, so that few runs have fewer than `MIN_STEPS` steps. docs/fine-tuning.md states on which splits of training
    data the rule was chosen. With a frozen encoder, only the small model is trained, from random weights: it uses a
    higher rate and more steps, which are cheap (docs/features.md).
    """
    sequences = 16 if examples < FEW_EXAMPLES else 32
    tagging = kind == "token-classification"
    least = TAGGING_EPOCHS if tagging else MIN_EPOCHS
    epochs = min(MAX_EPOCHS, max(least, math.ceil(MIN_STEPS * sequences / examples)))
    rate = (PRETRAINED_RATE * boost(tokens) if pretrained else RANDOM_RATE) * math.sqrt(768 / settings.width)
    rate *= TAGGING_BOOST if tagging else 1
    if frozen:
        epochs = min(MAX_EPOCHS_FROZEN, max(MIN_EPOCHS_FROZEN, math.ceil(MIN_STEPS_FROZEN * sequences / examples)))
        rate = FROZEN_RATES[downstream or "linear"]
    chosen: dict[str, object] = {}
    if frozen or downstream:
        layers = [-1] if downstream in (None, "linear") else list(range(-min(LAYERS, settings.layers), 0))
        chosen = {"frozen": frozen, "downstream": {"kind": downstream or "linear", "layers": layers}}
    elif LEFT_TO_RIGHT in settings.gives and not TASKS[kind]().grouped:
        chosen = {"objective": {"causal_lm": {"weight": LM_WEIGHT}}}
    return {
        **chosen,
        "task": {"kind": kind, "length": min(TASKS[kind]().length, settings.positions)},
        "batch": {"sequences": sequences},
        "optimizer": {"kind": "adamw", "learning_rate": float(f"{rate:.2g}")},
        "schedule": {"kind": "linear", "warmup": 0.1},
        "budget": {"epochs": float(epochs)},
    }


def boost(tokens: int | None) -> float:
    """Return the multiple of the learning rate for an encoder, given the number of tokens it was pretrained on."""
    if not tokens:
        return 1.0
    return max(1.0, LITTLE_TEXT_BOOST * min(1.0, LITTLE_TEXT / tokens) ** BOOST_POWER)
