"""What users start: pretraining, fine-tuning, distillation, export, and estimators for scikit-learn.

Registry of exporters, the formats of other programs in which models are written. To add one: a function, a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from unmask.support.plugins import Registry

if TYPE_CHECKING:
    from unmask.model.model import Model

Exporter: TypeAlias = "Callable[[Model, Path], Sequence[str]]"
"""Writes a model, in float32, into an empty directory; returns notes, such as what the format does not hold. Raises a
`UserError` for a model that cannot be written."""
PROGRAMS = ("onnx", "openvino")
"""Formats of programs, which have further options."""
EXPORTERS: Registry[Exporter] = Registry(
    "unmask.exporters",
    {
        **dict.fromkeys(PROGRAMS, "unmask.inference.export:export_model"),
        "huggingface": "unmask.workflows.formats:write_huggingface",
        "allennlp": "unmask.workflows.formats:write_allennlp",
        "static": "unmask.inference.static:write_static",
    },
    "collections.abc:Callable",
)
"""Exporters by the name of the format."""
