"""Which models can judge labels by their names: of entailment, and masked language models; see zero_shot.py."""

from __future__ import annotations

from collections.abc import Sequence

from unmask.inference.backend import Backend
from unmask.model.model import Model
from unmask.support.errors import UserError
from unmask.support.messages import argument
from unmask.tasks.classification import Classification


def knows_labels(model: Model, backend: Backend) -> bool:
    """Return whether a model can predict labels by their names; see `zero_shot.by_labels`."""
    if isinstance(model.task, Classification) and backend.has_head(model.task.part):
        try:
            entailment_classes(model.labels, multi_label=False)
        except UserError:
            return False
        return True
    return model.task is None and backend.has_head("masked_lm")


def entailment_classes(labels: Sequence[str], multi_label: bool) -> tuple[int, int]:
    """Return the indices of the labels of entailment and of its opposite, -1 if none of three is, by their names.

    Raises:
        UserError: the names are not those of entailment, or the opposite is needed and is not among them.
    """
    names = [label.casefold() for label in labels]
    entailed = [index for index, name in enumerate(names) if name.startswith("entail")]
    opposite = [index for index, name in enumerate(names) if name.startswith(("contra", "not_entail", "not-entail"))]
    if len(entailed) != 1 or len(opposite) > 1 or len(names) not in (2, 3) or (multi_label and not opposite):
        raise UserError(
            f"{argument('labels')} needs a model of entailment, but the labels of this one are {', '.join(labels)}",
            remedy="if it is one, name them entailment, neutral and contradiction under id2label in its config.json",
        )
    return entailed[0], opposite[0] if opposite else -1
