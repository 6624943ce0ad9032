"""`config.json` beside the weights: settings that are not implemented are refused, and how a cross-encoder scores.

Input: the content of the file and the format of its family (families/format.py), which names the keys that are read;
for cross-encoders also `config_sentence_transformers.json`, for models of simpletransformers `model_args.json`. What is
refused and what is harmless is listed in support/beside.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.data.text.whole_files import read_json
from unmask.families.body import MAX_SIZE
from unmask.families.checkpoints.sentence_modules import CROSS_ENCODER, SENTENCES
from unmask.support.beside import ALIASES, FAMILIES, FILES, HEAD_SIZES, REFUSED_FILES
from unmask.support.errors import UserError

if TYPE_CHECKING:
    from unmask.families.format import Format

OLD_KEY = "sbert_ce_default_activation_function"
"""Key of config.json for the activation of a cross-encoder, before version 4 of sentence-transformers."""
NEW_KEY = "sentence_transformers"
"""Key of config.json for a table with it, since then; since version 5.4 it is in a file of its own."""
MULTI_LABEL = "multi_label_classification"
"""problem_type of a classifier that decides on each label separately."""
PROBLEMS = (None, "regression", "single_label_classification", MULTI_LABEL)
ACTIVATIONS = {
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.Sigmoid": "sigmoid",
    "torch.nn.modules.linear.Identity": "",
    "torch.nn.Identity": "",
}
"""Names of classes of torch, and our names of the activations; "" for none."""
CLASSES = {name or "identity": kind for kind, name in reversed(ACTIVATIONS.items())}
"""The name that is written for each activation."""


def check_config(form: Format, config: Mapping[str, Any], path: Path) -> None:
    """Check that a `config.json` states nothing that transformers obeys and unmask does not.

    Raises:
        UserError: it does.
    """
    kind = form.model_type
    for table in (FILES["config.json"], FAMILIES.get(kind)):
        if table is not None:
            table.check(config, path)
    for alias, name in ALIASES.get(kind, {}).items():
        if alias in config and config[alias] != config.get(name):
            raise UserError(
                f"{alias}: {config[alias]!r} contradicts {name}: {config.get(name)!r}",
                file=path,
                remedy="remove the wrong one",
            )
    width, heads = (config.get(form.config.get(ours, "")) for ours in ("width", "heads"))
    if not isinstance(width, int) or not isinstance(heads, int) or not 1 <= heads <= width <= MAX_SIZE:
        width = heads = 0  # which is refused later
    for name in HEAD_SIZES if heads else ():
        size = config.get(name)
        if size is not None and not (isinstance(size, int) and size * heads == width):
            raise UserError(
                f"{name}: {size!r} is not implemented, only the width divided by the number of heads, {width // heads}",
                file=path,
                remedy="use a model without it",
            )
    if config.get("rope_parameters") and config.get("rope_scaling"):
        raise UserError(
            f"rope_scaling: {config['rope_scaling']!r} beside rope_parameters is not implemented",
            file=path,
            remedy="remove the one that is not meant",
        )
    for rotation in _rotations(config):
        if rotation.get("partial_rotary_factor", 1.0) not in (None, 1.0):
            raise UserError(
                f"partial_rotary_factor: {rotation['partial_rotary_factor']!r} is not implemented, only 1.0", file=path
            )
    if config.get("problem_type") not in PROBLEMS:
        raise UserError(
            f"unknown problem_type: {config['problem_type']!r}",
            file=path,
            remedy=f"known: {', '.join(filter(None, PROBLEMS))}",
        )


def with_arguments(config: Mapping[str, Any], arguments: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the content of config.json with what simpletransformers' `model_args.json` adds, and it does not say.

    There, config.json calls the labels LABEL_0, LABEL_1, …. `labels_map` has the index of each label of a classifier,
    `labels_list` the labels of a tagger, in order, and `model_class` tells whether each label is decided on separately
    (simpletransformers/config/model_args.py).

    Args:
        config: content of config.json.
        arguments: content of `model_args.json`.
        path: the file of the arguments.

    Raises:
        UserError: the labels are not as many as config.json has, or their indices are not 0, 1, ….
    """
    known = dict(config)
    if arguments.get("model_class") == "MultiLabelClassificationModel" and config.get("problem_type") is None:
        known["problem_type"] = MULTI_LABEL
    names = config.get("id2label", {"0": "LABEL_0", "1": "LABEL_1"})  # transformers writes none for two
    if not isinstance(names, dict) or any(name != f"LABEL_{index}" for index, name in names.items()):
        return known
    labels, indices = arguments.get("labels_list"), arguments.get("labels_map")
    if isinstance(indices, dict) and indices:
        named = [[label for label, at in indices.items() if at == index] for index in range(len(indices))]
        labels = [each[0] for each in named if len(each) == 1]
    if labels or indices:
        if not isinstance(labels, list) or len(labels) != len(names):
            raise UserError(
                f"its labels are not those of the {len(names)} outputs that config.json has",
                file=path,
                remedy="name the labels under id2label in config.json",
            )
        known["id2label"] = {str(index): str(label) for index, label in enumerate(labels)}
    return known


def check_files(directory: Path) -> None:
    """Check that no file beside the weights changes what transformers computes and is not implemented.

    Raises:
        UserError: one does.
    """
    for name, remedy in REFUSED_FILES.items():
        if (directory / name).exists():
            raise UserError(
                "adapters are not implemented, and transformers would apply this one",
                file=directory / name,
                remedy=remedy,
            )


def _rotations(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the tables of rotary positions, of which there may be one per kind of layer."""
    for name in ("rope_parameters", "rope_scaling"):
        table = config.get(name)
        if isinstance(table, dict):
            yield table
            yield from (inner for inner in table.values() if isinstance(inner, dict))


def read_activation(config: Mapping[str, Any], directory: Path, outputs: int, *, several: bool) -> str:
    """Return the activation of a cross-encoder's score, "sigmoid" or "" for none; "" too for other models.

    Args:
        config: content of config.json.
        directory: its directory.
        outputs: number of outputs of the classifier.
        several: whether each output is decided on separately.

    Raises:
        UserError: it is not implemented, or the score needs something else that is not.
    """
    settings, file = read_json(directory / SENTENCES), SENTENCES
    stated = None
    if cross := settings.get("model_type") == CROSS_ENCODER:
        stated = settings.get("activation_fn")
        if settings.get("default_prompt_name") is not None:
            raise UserError(
                f"default_prompt_name: {settings['default_prompt_name']!r} is not implemented for pairs of texts",
                file=directory / file,
                remedy="remove it, and begin the texts with the prompt",
            )
    if stated is None:
        file, table = "config.json", config.get(NEW_KEY)
        cross = cross or isinstance(table, dict) or OLD_KEY in config
        named = isinstance(table, dict) and "activation_fn" in table
        stated = table["activation_fn"] if isinstance(table, dict) and named else config.get(OLD_KEY)
    if not cross:
        return ""
    if stated is None:
        return "sigmoid" if outputs == 1 else ""
    activation = ACTIVATIONS.get(stated) if isinstance(stated, str) else None
    if activation is None or (activation and outputs > 1 and not several):
        raise UserError(
            f"the activation {stated!r} of {outputs} scores is not implemented",
            file=directory / file,
            remedy=f"known: {', '.join(ACTIVATIONS)}; the first for one score alone",
        )
    return activation if outputs == 1 else ""
