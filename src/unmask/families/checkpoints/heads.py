"""The heads in a directory: the names of tensors there and here, and the labels predicted."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from unmask.families.checkpoints.config_file import MULTI_LABEL
from unmask.nn.encoders.encoder import POOLER
from unmask.objectives import OBJECTIVES
from unmask.support.errors import UserError, counted
from unmask.support.notices import warn

if TYPE_CHECKING:
    from unmask.families.format import Format

OUR_KEY = "unmask"
"""Key of config.json for the settings of the task."""
OWN = "unmask."
"""Prefix of tensors that transformers does not know: those of a downstream model and the head on it, and of pretraining
heads that the family lacks. transformers reads the directory without them."""

OWN_POOLER = f"{OWN}pooler"
"""Name of the body's pooler, if one of our heads reads it and the family's format has no name for it."""
POOLED = frozenset(name for name, settings in OBJECTIVES.items() if POOLER in settings.requires)
"""Pretraining heads that read the pooler."""


CLASSIFIERS = ("classification", "multi_label", "regression", "ranking", "token_classification", "multiple_choice")
"""Task heads whose last layer has the same name in directories, in some families also that of question answering."""

NAMED = ("classification", "multi_label", "token_classification")
"""Task heads whose outputs have names."""
NUMBERS = frozenset({"regression", "ranking"})
"""Task heads with one output, a number."""
PRETRAINED = ("Model", "ForMaskedLM", "ForPreTraining", "ForCausalLM", "ColBERT")
"""Ends of the names of classes without a head for a task."""
_MULTI_LABEL = re.compile(r"Multi_?[Ll]abel")
"""What is in the names of such classes that others wrote, whose config.json may say nothing else of it."""


def head_name(form: Format, head: str, name: str) -> str:
    """Return their name of a tensor of one of our heads; "" if the format has none."""
    names = form.heads[head]
    if name in names:
        return names[name]
    part, _, kind = name.rpartition(".")
    return f"{names[part]}.{kind}" if part in names else ""


def find_heads(form: Format, tensors: Mapping[str, Tensor], path: Path, classifier: str) -> dict[str, dict[str, str]]:
    """Return the heads in a directory, each as a mapping of our names to theirs.

    Args:
        form: format of the directory.
        tensors: tensors by their names.
        path: file of the tensors.
        classifier: the head of ours that their `classifier` is; see `classifier_head`.

    Raises:
        UserError: a part of a head is missing.
    """
    heads = {}
    ambiguous = {form.heads[name]["out"] for name in CLASSIFIERS if name in form.heads}
    in_task = form.head_pooler and any(f"{name}.weight" in tensors for name in ambiguous)
    for head, parts in form.heads.items():
        if parts.get("out") in ambiguous and head != classifier:
            continue
        if in_task and any(name.startswith(f"{form.head_pooler}.") for name in parts.values()):
            continue  # the pooler of a task's head is the dense layer of the masked-LM head elsewhere
        tensor_names = [
            name
            for part, stored_part in parts.items()
            for name in ([part] if part == "bias" else [f"{part}.weight", f"{part}.bias"])
            if not (stored_part in form.unbiased and name.endswith(".bias"))
        ]
        names = {name: head_name(form, head, name) for name in tensor_names}
        missing = [name for name in names.values() if name not in tensors]
        if not missing:
            heads[head] = names
        elif len(missing) < len(names):
            raise UserError(f"tensor {missing[0]} of the {head} head is missing", file=path, remedy="download it again")
    return heads


def find_own(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, str]]:
    """Return the heads that only unmask knows, each as a mapping of our names to those in the file."""
    heads: dict[str, dict[str, str]] = {}
    for name in tensors:
        if name.startswith(OWN) and not name.startswith(f"{OWN_POOLER}."):
            head, _, part = name.removeprefix(OWN).partition(".")
            heads.setdefault(head, {})[part] = name
    return heads


def warn_of_left_out(config: Mapping[str, Any], left_out: Sequence[str], heads: Collection[str], path: Path) -> None:
    """Warn of tensors that are left out, if the model was fine-tuned: by its heads, or by the class in config.json.

    Args:
        config: the content of config.json.
        left_out: names of the tensors.
        heads: the heads that are known among the weights.
        path: their file.
    """
    named = config.get("architectures")
    architecture = str(named[0]) if isinstance(named, list) and named else ""
    pretrained = architecture.endswith(PRETRAINED) and not architecture.endswith("AdapterModel")
    task = next((head for head in heads if head not in OBJECTIVES), "")
    if task:
        head = task.replace("_", " ")
        found = f"only the {head} head is known among the weights, and its results are wrong if it needs others"
    elif architecture and not pretrained:
        found = f"config.json states {architecture}, but no head for a task is known among the weights"
    else:
        return
    if left_out:
        warn(
            f"{path}: {found}; left out: {counted(len(left_out), 'tensor')}, first {left_out[0]}",
            stacklevel=3,
        )


def classifier_head(form: Format, config: Mapping[str, Any], tensors: Mapping[str, Tensor], path: Path) -> str:
    """Return which of our heads their `classifier` is, as several have this name; "" if none.

    Raises:
        UserError: according to the config it classifies sequences or choices, but the pooler that it reads is missing;
            or it predicts several numbers.
    """
    named = config.get("architectures")
    architectures = tuple(map(str, named)) if isinstance(named, list) else ()
    choices = any(name.endswith("MultipleChoice") for name in architectures)
    pooler = form.pooler if choices and "multiple_choice" not in form.pooled else form.head_pooler or form.pooler
    parts = [f"{pooler}.{part}" for part in form.pooler_parts] if pooler else []
    missing = [name for name in parts if name not in tensors]
    for suffix, head in (("TokenClassification", "token_classification"), ("QuestionAnswering", "question_answering")):
        if any(name.endswith(suffix) for name in architectures):
            if missing and head in form.pooled:
                raise _without_pooler(missing[0], path)
            return head
    if choices and "multiple_choice" not in form.heads:
        return ""  # another layer is between the pooler and the classifier
    if missing:
        if choices or any(name.endswith("SequenceClassification") for name in architectures):
            raise _without_pooler(missing[0], path)
        return ""
    rows = tensors.get(f"{form.heads['multiple_choice' if choices else 'classification']['out']}.weight")
    if choices:
        return "multiple_choice" if rows is not None and len(rows) == 1 else ""
    problem = config.get("problem_type")
    if problem == MULTI_LABEL or (problem is None and any(map(_MULTI_LABEL.search, architectures))):
        return "multi_label"
    if rows is not None and len(rows) > 1 and problem == "regression":
        raise UserError(
            f"problem_type: 'regression' with {len(rows)} numbers per text is not implemented, only with one",
            file=path.with_name("config.json"),
            remedy="make a model of each row of the classifier",
        )
    if rows is None or len(rows) > 1:
        return "classification"
    task = config.get(OUR_KEY)
    return "ranking" if isinstance(task, dict) and task.get("kind") == "ranking" else "regression"


def _without_pooler(name: str, path: Path) -> UserError:
    return UserError(
        f"tensor {name}, which the classifier reads, is missing",
        file=path,
        remedy="the file is incomplete: download it again",
    )


def read_labels(
    config: Mapping[str, Any], path: Path, tensors: Mapping[str, Tensor], heads: Mapping[str, Mapping[str, str]]
) -> tuple[str, ...]:
    """Return the labels of a task head, in order.

    Raises:
        UserError: the config does not name all labels, or names a label twice, or label2id contradicts id2label.
    """
    head = next((heads[name] for name in NAMED if name in heads), None)
    if head is None:
        has_own_head = any(name.startswith(OWN) for names in heads.values() for name in names.values())
        added = has_own_head and not NUMBERS & heads.keys()  # the head of a task from a plug-in
        names = config.get("id2label") if added else None
        return tuple(map(str, names.values())) if isinstance(names, dict) else ()
    number = len(tensors[head["out.weight"]]) if "out.weight" in head else 0
    names = config.get("id2label") or {str(index): f"LABEL_{index}" for index in range(number)}
    try:
        labels = tuple("" if names[str(index)] is None else str(names[str(index)]) for index in range(len(names)))
    except (KeyError, TypeError):
        labels = ()
    if len(labels) != number:
        raise UserError(
            f"id2label does not name the {number} labels of the classifier",
            file=path,
            remedy=f"name each of them by its number, from 0 to {number - 1}",
        )
    if len(set(labels)) != number or not all(label.strip() for label in labels):
        problem = "names a label twice" if len(set(labels)) != number else "has an empty name"
        raise UserError(f"id2label {problem}", file=path, remedy="give each label another name")
    ids = config.get("label2id")
    ids = ids if isinstance(ids, dict) else {}
    for index, label in enumerate(labels):
        if ids.get(label, index) not in (index, str(index)):
            raise UserError(
                f"label2id gives the label '{label}' the number {ids[label]}, but id2label {index}",
                file=path,
                remedy="correct the one that is wrong: by which of them was the model trained?",
            )
    return labels
