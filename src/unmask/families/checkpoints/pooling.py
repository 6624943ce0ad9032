"""How token vectors become the vector of a text, in the files of sentence-transformers.

Input and output: `modules.json`, which lists the steps; `1_Pooling/config.json`, the kind of pooling; and
`sentence_bert_config.json`, the maximum length. The names of classes are compared, never imported.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import msgspec

from unmask.data.tokenizers.kind import read_text
from unmask.support.durable import replace_file
from unmask.support.errors import UserError

MODULES, LENGTH = "modules.json", "sentence_bert_config.json"
_PREFIX = "pooling_mode_"
_MODES = {"cls_token": "cls", "mean_tokens": "mean"}


class Pooling(msgspec.Struct, frozen=True, kw_only=True):
    """See the module.

    Attributes:
        kind: "mean": the mean of all tokens, special tokens included; "cls": the first token.
        normalize: whether vectors are divided by their norm.
        length: maximum number of tokens, special tokens included; None: that of the encoder.
        unsupported: a step of the directory that is not one of these; empty if there is none.
    """

    kind: Literal["mean", "cls"] = "mean"
    normalize: bool = True
    length: int | None = None
    unsupported: str = ""


def read_pooling(directory: Path) -> Pooling | None:
    """Read the files of sentence-transformers in a directory; None if there are none.

    Raises:
        UserError: a file is damaged.
    """
    path = directory / MODULES
    if not path.exists():
        return None
    try:
        steps = [(str(step["type"]).rpartition(".")[2], str(step["path"])) for step in _read(path)]
    except (TypeError, KeyError) as error:
        raise UserError("not a list of modules with a type and a path", file=path) from error
    found, unsupported = "mean", ""
    for kind, folder in steps:
        if kind == "Pooling":
            if Path(folder).is_absolute() or ".." in Path(folder).parts:
                raise UserError(f"the path '{folder}' is outside of the directory", file=path)
            config = _read(directory / folder / "config.json")
            modes = sorted(_modes(config)) if isinstance(config, dict) else []
            found = _MODES.get(modes[0], "mean") if modes else "mean"
            if len(modes) != 1 or modes[0] not in _MODES:
                unsupported = f"pooling by {' and '.join(modes) or 'nothing'}"
        elif kind not in ("Transformer", "Normalize"):
            unsupported = f"a module {kind}"
    config = _read(directory / LENGTH) if (directory / LENGTH).exists() else {}
    length = config.get("max_seq_length") if isinstance(config, dict) else None
    return Pooling(
        kind="cls" if found == "cls" else "mean",
        normalize=any(kind == "Normalize" for kind, _ in steps),
        length=length if isinstance(length, int) and length > 2 else None,
        unsupported=unsupported,
    )


def write_pooling(directory: Path, pooling: Pooling, width: int) -> None:
    """Write the files of sentence-transformers beside a model of this width."""
    names = ["Transformer", "Pooling", *(["Normalize"] if pooling.normalize else [])]
    steps = [
        {
            "idx": number,
            "name": str(number),
            "path": f"{number}_{name}" if number else "",
            "type": f"sentence_transformers.models.{name}",
        }
        for number, name in enumerate(names)
    ]
    modes = {f"{_PREFIX}{theirs}": ours == pooling.kind for theirs, ours in _MODES.items()}
    folder = directory / "1_Pooling"
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "config.json", {"word_embedding_dimension": width, **modes})
    if pooling.length is not None:
        _write(directory / LENGTH, {"max_seq_length": pooling.length, "do_lower_case": False})
    _write(directory / MODULES, steps)


def _modes(config: dict[str, Any]) -> list[str]:
    """Return the kinds of pooling that a config names, by flags or, in later versions, by name."""
    named = config.get("pooling_mode")
    if isinstance(named, str):
        return [{"cls": "cls_token", "mean": "mean_tokens"}.get(named, named)]
    return [name.removeprefix(_PREFIX) for name, value in config.items() if name.startswith(_PREFIX) and value is True]


def _read(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", file=path) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"not valid JSON ({error})", file=path) from error


def _write(path: Path, content: Any) -> None:
    replace_file(path, f"{json.dumps(content, indent=2)}\n".encode())
