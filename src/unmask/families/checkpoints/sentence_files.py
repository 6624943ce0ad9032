"""How a directory of sentence-transformers makes vectors of texts: all of its files, read whole.

Input: `modules.json`, which lists the steps; the `config.json` of pooling and of normalization; the encoder's
`sentence_bert_config.json`; and `config_sentence_transformers.json` with the prompts. The encoder may be in a folder of
its own (`0_Transformer`). Output: a `Pooling`. Whatever changes the vectors and is not implemented is named in
`Pooling.unsupported`, because the encoder can be used without them. The names of classes are compared, never imported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from unmask.data.tokenizers.tokenizer import Tokenizer, read_json, read_text
from unmask.families.checkpoints.config_file import CROSS_ENCODER, SENTENCES
from unmask.families.checkpoints.heads import LENGTH, MODULES, Pooling
from unmask.support.beside import FILES, NORMALIZE, POOLING
from unmask.support.errors import UserError

LENGTH_FILES = (
    LENGTH,
    *(f"sentence_{name}_config.json" for name in "roberta distilbert camembert albert xlm-roberta xlnet".split()),  # noqa: SIM905
)
"""Names of the file of the encoder's settings, of which the first that exists is read."""
PATTERNS = (MODULES, SENTENCES, *LENGTH_FILES, "[0-9]_*/config.json")
"""The files beside a model that this module reads; the last pattern is that of the folders of steps."""
PREFIX = "pooling_mode_"
MODES = {
    "cls_token": "cls",
    "max_tokens": "max",
    "mean_tokens": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "weightedmean_tokens": "weightedmean",
    "lasttoken": "lasttoken",
}
"""Former names of the kinds of pooling, each a flag, and the present ones."""
DOCUMENTS = ("document", "passage", "corpus")
"""Names of the prompt of documents, of which the first that is stated is used."""
TASKS = ("feature-extraction",)
ENDLESS = 1_000_000
"""A maximum length from which on it means that there is none."""


def root_of(directory: Path) -> Path:
    """Return the directory of sentence-transformers whose encoder is in this one: itself, or the one above."""
    above = directory.parent / MODULES
    if not (directory / MODULES).is_file() and above.is_file() and encoder_folder(directory.parent) == directory.name:
        return directory.parent
    return directory


def encoder_folder(directory: Path) -> str:
    """Return the name of the folder of the encoder in a directory of sentence-transformers; "" if there is none.

    Raises:
        UserError: modules.json is damaged.
    """
    path = directory / MODULES
    if not path.is_file():
        return ""
    kind, folder = next(iter(_steps(path)), ("", ""))
    return folder if kind == "Transformer" and len(Path(folder).parts) == 1 else ""


def read_pooling(directory: Path, tokenizer: Tokenizer | None = None) -> Pooling | None:
    """Read the files of sentence-transformers for the encoder in a directory.

    Args:
        directory: the directory of the encoder.
        tokenizer: its tokenizer, if known.

    Returns:
        How vectors are made; None if there are no such files, or if the model is a cross-encoder.

    Raises:
        UserError: a file is damaged.
    """
    root = root_of(directory)
    path = root / MODULES
    settings = read_json(root / SENTENCES)
    if not path.exists() or settings.get("model_type") == CROSS_ENCODER:
        return None
    steps = list(_steps(path))
    kinds = [kind for kind, _ in steps]
    problems = [f"a module {kind}" for kind in kinds if kind not in ("Transformer", "Pooling", "Normalize", "Dropout")]
    if not problems and kinds[:2] != ["Transformer", "Pooling"]:
        problems.append(f"the modules {', '.join(kinds)} in this order")
    if steps and (root / steps[0][1]).resolve() != directory.resolve() and not problems:
        problems.append(f"the encoder in {steps[0][1] or 'this folder'}")
    kind, include = "mean", True
    for name, folder in steps:
        if name == "Pooling":
            kind, include, unsupported = _pooling(root / folder / "config.json", tokenizer)
            problems += unsupported
        if name == "Normalize" and folder:
            step = root / folder / "config.json"
            problems += _unusual(NORMALIZE, read_json(step), step)
    length, unsupported = _encoder(directory, tokenizer)
    problems += unsupported
    prompt, unsupported = _prompt(settings, root / SENTENCES)
    problems += unsupported
    query, document = _role_prompts(settings)
    for name, text in {"default": prompt, "query": query, "document": document}.items():
        if text and not include:
            problems.append(f"the {name} prompt '{text}' without its tokens (include_prompt)")
    return Pooling(
        kind="cls" if kind == "cls" else "mean",
        normalize="Normalize" in kinds,
        length=length,
        prompt=prompt,
        query=query,
        document=document,
        unsupported=next(iter(problems), ""),
    )


def _steps(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the class and the folder of each step; a class of another package keeps its full name.

    Raises:
        UserError: the file is damaged, or names a folder outside of the directory.
    """
    steps = _json(path)
    try:
        listed = [(str(step["type"]), str(step["path"])) for step in steps]
    except (TypeError, KeyError) as error:
        raise UserError("not a list of modules with a type and a path", file=path) from error
    for kind, folder in listed:
        if Path(folder).is_absolute() or ".." in Path(folder).parts:
            raise UserError(f"the path '{folder}' is outside of the directory", file=path)
        yield kind.rpartition(".")[2] if kind.startswith("sentence_transformers.") else kind, folder


def _pooling(path: Path, tokenizer: Tokenizer | None) -> tuple[str, bool, list[str]]:
    """Return the kind of pooling, whether the tokens of a prompt are included, and what is not supported."""
    config = read_json(path)
    stated = config.get("pooling_mode")
    if stated is None:
        modes = [mode for name, mode in MODES.items() if config.get(PREFIX + name)]
        if not modes and any(PREFIX + name in config for name in MODES):
            modes = ["mean"]
    else:
        modes = [str(mode) for mode in stated] if isinstance(stated, list) else [str(stated)]
    kind = modes[0] if len(modes) == 1 else ""
    if tokenizer is not None and tokenizer.summary != "first":  # the vector of a text is not at its first token
        kind = {"lasttoken": "cls", "cls": "first token"}.get(kind, kind)
    problems = [] if kind in ("cls", "mean") else [f"pooling by {kind or ' and '.join(modes) or 'nothing'}"]
    return kind, bool(config.get("include_prompt", True)), [*problems, *_unusual(POOLING, config, path)]


def _encoder(directory: Path, tokenizer: Tokenizer | None) -> tuple[int | None, list[str]]:
    """Return the maximum length, and what is not supported."""
    path = next((file for name in LENGTH_FILES if (file := directory / name).exists()), directory / LENGTH)
    config = read_json(path)
    problems = _unusual(LENGTH, config, path)
    task = config.get("transformer_task", "feature-extraction")
    if task not in TASKS:
        problems.append(f"transformer_task: {task!r} ({path.name})")
    if config.get("do_lower_case") and (tokenizer is None or not tokenizer.lowercase):
        problems.append(f"texts in lower case (do_lower_case in {path.name}), which the tokenizer does not change")
    length, source = config.get("max_seq_length"), path.name
    if length is None:
        source = "tokenizer_config.json"
        words = read_json(directory / source)
        length = words.get("model_max_length", words.get("max_len"))
    if length is None or (isinstance(length, int | float) and length >= ENDLESS):
        return None, problems
    if isinstance(length, int) and not isinstance(length, bool) and length > 2:
        return length, problems
    return None, [*problems, f"a maximum length of {length!r} tokens ({source})"]


def _prompt(settings: Mapping[str, Any], path: Path) -> tuple[str, list[str]]:
    """Return the text that every text begins with, and what is not supported."""
    problems = _unusual(SENTENCES, settings, path)
    kind = settings.get("model_type", "SentenceTransformer")
    if kind != "SentenceTransformer":
        problems.append(f"model_type: {kind!r} ({path.name})")
    name, prompts = settings.get("default_prompt_name"), settings.get("prompts") or {}
    if name is None:
        return "", problems
    if not isinstance(prompts, dict) or not isinstance(name, str) or not isinstance(prompts.get(name, ""), str):
        return "", [*problems, f"the prompt {name!r}, which {path.name} does not state as a text"]
    if name not in prompts and name not in ("query", "document"):
        return "", [*problems, f"the prompt '{name}', which {path.name} does not have"]
    return prompts.get(name, ""), problems


def _role_prompts(settings: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the texts that queries and documents begin with; None: they are not stated.

    sentence-transformers has an empty prompt where none is stated, also for documents with a prompt named passage.
    """
    prompts = settings.get("prompts")
    stated = (
        {name: text for name, text in prompts.items() if isinstance(text, str)} if isinstance(prompts, dict) else {}
    )
    return stated.get("query"), next((stated[name] for name in DOCUMENTS if name in stated), None)


def _unusual(table: str, config: Mapping[str, Any], path: Path) -> list[str]:
    return [f"{setting} ({path.name})" for setting in FILES[table].unusual(config)]


def _json(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise UserError(f"not valid JSON ({error})", file=path) from error
