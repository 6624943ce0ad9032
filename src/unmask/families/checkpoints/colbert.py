"""How a model makes vectors of tokens for late interaction: the files of PyLate, sentence-transformers and ColBERT.

Input: a directory of one of the three. Output: an `Interaction`, and the weights of the dense layers over the vectors.
Written is the layout of PyLate 1 (`pylate/models/colbert.py`), which sentence-transformers 6 reads too: `modules.json`
with the encoder and dense layers, and `config_sentence_transformers.json` with lengths, prompts (there prefixes), the
expansion of queries and the skiplist. A `MultiVectorEncoder` of sentence-transformers has them in the files of its
modules. ColBERT (stanford-futuredata/ColBERT, `colbert/infra/config/settings.py`) has the layer beside the weights of
the encoder, and the settings in `artifact.metadata`.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from torch import Tensor

from unmask.data.text.whole_files import read_json, write_json
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.families.checkpoints.safetensors_file import read_shapes, read_tensors
from unmask.families.checkpoints.sentence_files import (
    ENDLESS,
    METADATA,
    WEIGHTS,
    read_dense,
    read_encoder,
    read_layer,
    read_steps,
    role_prompts,
    root_of,
    unusual,
)
from unmask.families.checkpoints.sentence_modules import (
    DENSE_PART,
    LATE,
    LENGTH,
    MODULES,
    PYLATE_DENSE,
    PYLATE_KEY,
    SENTENCES,
    write_dense,
)
from unmask.nn.encoders.pooled import Dense
from unmask.support.beside import MASK, TOKEN_DENSE, TOKEN_NORMALIZE
from unmask.support.durable import replace_file
from unmask.support.errors import UserError

PYLATE, NATIVE = LATE
ARCHITECTURE = "HF_ColBERT"
"""Name of ColBERT's class in config.json."""
EXPANSION = ("query_expansion", "query_length", "document_length")
"""Keys of sentence_bert_config.json that a `MultiVectorEncoder` obeys."""
REMEDY = "use another model, or copy config.json, model.safetensors and the files of the tokenizer alone"


class Interaction(msgspec.Struct, frozen=True, kw_only=True):
    """How texts become vectors of tokens; the defaults are those of PyLate.

    Attributes:
        length: maximum number of tokens of a document, special tokens and prompt included.
        query_length: that of a query.
        query_prompt, document_prompt: what queries and documents begin with: a token of the vocabulary, or a text.
        expand: whether queries are filled up to `query_length` with [MASK], whose vectors count like others.
        attend: whether tokens attend to these [MASK].
        skiplist: tokens of documents whose vectors are left out.
        dense: dense layers over the vector of a token.

    Raises:
        ValueError: there is no space for a token of a text, no dense layer, or `attend` has no effect.
    """

    length: int = 180
    query_length: int = 32
    query_prompt: str = "[Q] "
    document_prompt: str = "[D] "
    expand: bool = True
    attend: bool = False
    skiplist: tuple[str, ...] = tuple(string.punctuation)
    dense: tuple[Dense, ...] = (Dense(width=128, activation="identity", bias=False),)

    def __post_init__(self) -> None:
        if min(self.length, self.query_length) < 4:
            raise ValueError("length and query_length must be at least 4")
        if self.attend and not self.expand:
            raise ValueError("attend has no effect if queries are not expanded")
        if not self.dense:
            raise ValueError("dense must have at least one layer")


def read_interaction(directory: Path, tokenizer: Tokenizer, width: int) -> tuple[Interaction, dict[str, Tensor]] | None:
    """Return how a model makes vectors of tokens, and the tensors of its dense layers; None if a directory has none.

    Args:
        directory: the directory of the encoder.
        tokenizer: its tokenizer.
        width: width of the encoder.

    Raises:
        UserError: a file is damaged, or states what is not supported.
    """
    root = root_of(directory)
    settings = read_json(root / SENTENCES)
    if not (root / MODULES).exists():
        return _read_colbert(directory, width)
    if settings.get("model_type") not in LATE and PYLATE_KEY not in settings:
        return None
    steps = list(read_steps(root / MODULES))
    kinds = [kind for kind, _ in steps if kind != "Dropout"]
    dense, problems = list[Dense](), list[str]()
    for kind, folder in steps:
        if kind == "Dense":
            layer, unsupported = read_layer(root / folder, TOKEN_DENSE)
            dense += layer
            problems += unsupported
    inner = ["Transformer", *["Dense"] * len(dense)]
    native = settings.get("model_type") == NATIVE
    known = ([*inner, "MultiVectorMask", "Normalize"], [*inner, "Normalize", "MultiVectorMask"]) if native else (inner,)
    if not problems and kinds not in known:
        problems.append(f"the modules {', '.join(kinds)}")
    length, unsupported = read_encoder(directory, tokenizer, obeyed=EXPANSION)
    problems += [*unsupported, *unusual(SENTENCES, settings, root / SENTENCES)]
    if str(settings.get("similarity_fn_name") or "maxsim").lower() not in ("maxsim", "cosine"):
        problems.append(f"similarity_fn_name: {settings['similarity_fn_name']!r} ({SENTENCES})")
    try:
        read, unsupported = _native(root, directory, settings, length, steps) if native else _pylate(settings)
    except (AttributeError, TypeError) as error:
        raise _damaged(error, root / SENTENCES) from error
    if problems := [*problems, *unsupported]:
        raise UserError(
            f"the vectors of tokens of this model need {problems[0]}, which is not supported", file=root, remedy=REMEDY
        )
    return _checked(read, dense, root / SENTENCES), read_dense(directory, dense, width)


def _checked(read: Mapping[str, Any], dense: Sequence[Dense], path: Path) -> Interaction:
    """Return the settings that a file states, with dense layers.

    Raises:
        UserError: they are damaged.
    """
    try:
        return msgspec.convert({**read, "dense": msgspec.to_builtins(dense)}, Interaction)
    except msgspec.ValidationError as error:
        raise _damaged(error, path) from error


def _damaged(error: Exception, path: Path) -> UserError:
    return UserError(f"the settings of the vectors of tokens are damaged ({error})", file=path, remedy=REMEDY)


def _pylate(settings: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the settings of a model of PyLate, where missing ones have their defaults, and what is not supported."""
    names = {
        "document_length": "length",
        "query_length": "query_length",
        PYLATE_KEY: "query_prompt",
        "document_prefix": "document_prompt",
        "do_query_expansion": "expand",
        "attend_to_expansion_tokens": "attend",
        "skiplist_words": "skiplist",
    }
    read = {ours: settings[theirs] for theirs, ours in names.items() if settings.get(theirs) is not None}
    read["attend"] = bool(read.get("attend", False)) and read.get("expand", True)
    prompts = [text for text in role_prompts(settings) if text]
    return read, [f"the prompt '{prompts[0]}' beside prefixes ({SENTENCES})"] if prompts else []


def _native(
    root: Path, directory: Path, settings: Mapping[str, Any], length: int | None, steps: Sequence[tuple[str, str]]
) -> tuple[dict[str, Any], list[str]]:
    """Return the settings of a `MultiVectorEncoder` of sentence-transformers, and what is not supported."""
    encoder, problems = read_json(directory / LENGTH), list[str]()
    expansion: dict[str, Any] = encoder.get("query_expansion") or {}
    longest = length or ENDLESS
    skiplist: Any = ()
    for kind, folder in steps:
        path = root / folder / "config.json"
        if kind == "MultiVectorMask":
            config = read_json(path)
            skiplist, problems = config.get("skiplist_words") or (), [*problems, *unusual(MASK, config, path)]
        if kind == "Normalize":
            problems += unusual(TOKEN_NORMALIZE, read_json(path), path)
    if expansion and (expansion.get("strategy") != "fixed" or expansion.get("token") is not None):
        problems.append(f"query_expansion: {expansion!r:.80} ({LENGTH})")
    query, document = role_prompts(settings)
    return {
        "length": encoder.get("document_length") or longest,
        "query_length": expansion.get("length") or encoder.get("query_length") or longest,
        "query_prompt": query or "",
        "document_prompt": document or "",
        "expand": bool(expansion),
        "attend": bool(expansion.get("attend", False)),
        "skiplist": skiplist,
    }, problems


def _read_colbert(directory: Path, width: int) -> tuple[Interaction, dict[str, Tensor]] | None:
    """Return what `read_interaction` does for a directory of ColBERT."""
    if ARCHITECTURE not in (read_json(directory / "config.json").get("architectures") or []):
        return None
    path, name = directory / WEIGHTS, "linear.weight"
    shape = read_shapes(path).get(name) if path.is_file() else None
    if shape is None or len(shape) != 2 or shape[1] != width:
        raise UserError(f"tensor {name} of ColBERT is missing, or is no layer of {width} inputs", file=path)
    metadata = read_json(directory / METADATA)
    if metadata.get("similarity", "cosine") != "cosine":
        raise UserError(f"similarity: {metadata['similarity']!r} is not supported", file=directory / METADATA)
    stated = {
        "length": metadata.get("doc_maxlen") or 220,
        "query_length": metadata.get("query_maxlen") or 32,
        "query_prompt": metadata.get("query_token_id") or "[unused0]",
        "document_prompt": metadata.get("doc_token_id") or "[unused1]",
        "attend": bool(metadata.get("attend_to_mask_tokens")),
        "skiplist": tuple(string.punctuation) if metadata.get("mask_punctuation", True) else (),
    }
    layer = Dense(width=shape[0], activation="identity", bias=False)
    (value,) = read_tensors(path, [name]).values()
    return _checked(stated, [layer], directory / METADATA), {f"{DENSE_PART}.0.weight": value}


def write_interaction(directory: Path, stated: Interaction, dense: Mapping[str, Tensor]) -> None:
    """Write the files by which a model of token vectors is one of PyLate, beside the encoder.

    Args:
        directory: directory of the model.
        stated: what they state.
        dense: tensors of the dense layers.
    """
    folders = [f"{number}_Dense" for number in range(1, 1 + len(stated.dense))]
    types = [("", "sentence_transformers.models.Transformer"), *((folder, PYLATE_DENSE) for folder in folders)]
    steps = [
        {"idx": number, "name": str(number), "path": path, "type": kind} for number, (path, kind) in enumerate(types)
    ]
    for number, (folder, layer) in enumerate(zip(folders, stated.dense, strict=True)):
        write_dense(directory / folder, layer, number, dense)
    write_json(directory / LENGTH, {"max_seq_length": stated.length, "do_lower_case": False})
    settings = {
        "model_type": PYLATE,
        "similarity_fn_name": "MaxSim",
        PYLATE_KEY: stated.query_prompt,
        "document_prefix": stated.document_prompt,
        "query_length": stated.query_length,
        "document_length": stated.length,
        "attend_to_expansion_tokens": stated.attend,
        "skiplist_words": list(stated.skiplist),
        "do_query_expansion": stated.expand,
    }
    write_json(directory / SENTENCES, settings)
    replace_file(directory / MODULES, msgspec.json.format(msgspec.json.encode(steps), indent=2) + b"\n")
