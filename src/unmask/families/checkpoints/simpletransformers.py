"""What simpletransformers writes beside a model, in `model_args.json`, and config.json does not say.

There, config.json calls the labels LABEL_0, LABEL_1, …. `labels_map` has the index of each label of a classifier,
`labels_list` the labels of a tagger, in order, and `model_class` tells whether each label is decided on separately
(simpletransformers/config/model_args.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unmask.families.checkpoints.heads import MULTI_LABEL
from unmask.support.errors import UserError

FILE = "model_args.json"


def completed(config: Mapping[str, Any], arguments: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the content of config.json with what the arguments add: names of labels, and the kind of the classifier.

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
