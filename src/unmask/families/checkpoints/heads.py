"""The heads in a directory: how texts are pooled, the names of tensors there and here, and the labels predicted.

How token vectors become the vector of a text is in the files of sentence-transformers: `modules.json`, which lists the
steps; `1_Pooling/config.json`, the kind of pooling; `2_Dense`, a dense layer with its weights;
`sentence_bert_config.json`, the maximum length; and `config_sentence_transformers.json`, the prompts. They are written
here, and sentence_files.py reads them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import safetensors.torch
from torch import Tensor

from unmask.nn.encoders.encoder import POOLER
from unmask.nn.encoders.pooled import Dense
from unmask.objectives import OBJECTIVES
from unmask.support.choices import PoolingKind, PromptName, check_choice
from unmask.support.durable import replace_file
from unmask.support.errors import UserError
from unmask.support.messages import argument

if TYPE_CHECKING:
    from unmask.data.tokenizers.tokenizer import Summary
    from unmask.families.format import Format

MODULES, LENGTH = "modules.json", "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"
PREFIX = "pooling_mode_"
MODES: dict[str, tuple[str, PoolingKind]] = {
    "cls_token": ("cls", "cls"),
    "mean_tokens": ("mean", "mean"),
    "max_tokens": ("max", "max"),
    "mean_sqrt_len_tokens": ("mean_sqrt_len_tokens", "mean-sqrt"),
    "weightedmean_tokens": ("weightedmean", "weighted-mean"),
    "lasttoken": ("lasttoken", "last"),
}
"""Kinds of pooling: the flag of each, which is its former name there, the present one, and ours."""
ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": "identity",
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.activation.SiLU": "silu",
}
"""Activations of dense layers: the names of classes there, and ours."""
COSINE, DOT, EUCLIDEAN = "cosine", "dot", "euclidean"
"""Names of similarities (`Pooling.similarity`); the distances of vectors of norm 1 order them as their cosines do."""
STATIC = "StaticEmbedding"
SPLADE = ("MLMTransformer", "SpladePooling")
SPARSE_ENCODER = "SparseEncoder"
"""Classes of a table of vectors, of the modules of a sparse encoder, and of a sparse encoder."""
LATE = ("ColBERT", "MultiVectorEncoder")
"""Classes of models of token vectors, of PyLate and of sentence-transformers."""
PYLATE_DENSE = "pylate.models.Dense.Dense"
PYLATE_KEY = "query_prefix"
"""A dense layer of PyLate, and a key of config_sentence_transformers.json that its models alone have."""
DENSE = "embedding"
"""Head that the dense layers over the vector of a text are; its tensors are in folders of their own."""
DENSE_PART = "dense.linear"
"""What the names of its tensors begin with, before the number of the layer."""


class Pooling(msgspec.Struct, frozen=True, kw_only=True):
    """See the module.

    Attributes:
        kind: the pooling; see `nn.encoders.pooled.pool`.
        dense: the dense layers over the pooled vector, whose weights are the head `DENSE`.
        dimensions: number of first components that vectors are cut to; None: all.
        normalize: whether vectors are divided by their norm, after they are cut.
        length: maximum number of tokens, special tokens included; None: that of the encoder.
        prompt: text that is put before every text.
        query, document: what is put there instead if the text is a query, or a document that is searched; None:
            `prompt`.
        include_prompt: whether the tokens of a prompt are pooled, too.
        similarity: how vectors are compared: by "cosine", "dot" (their products), or otherwise; None: it is not stated,
            and sentence-transformers compares cosines.
        unsupported: a step of the directory that is not one of these; empty if there is none.
    """

    kind: PoolingKind = "mean"
    dense: tuple[Dense, ...] = ()
    dimensions: int | None = None
    normalize: bool = True
    length: int | None = None
    prompt: str = ""
    query: str | None = None
    document: str | None = None
    include_prompt: bool = True
    similarity: str | None = None
    unsupported: str = ""

    def of_kind(self, kind: PoolingKind) -> Pooling:
        """Return the same with another kind of pooling, and without dense layers, whose outputs are then not cut."""
        dimensions = None if self.dense else self.dimensions
        return msgspec.structs.replace(self, kind=kind, dense=(), dimensions=dimensions, unsupported="")

    @property
    def is_compared_by_products(self) -> bool:
        """Whether products of vectors, or of those of norm 1, order them as the model compares them."""
        return self.similarity in (None, COSINE, DOT) or (self.normalize and self.similarity == EUCLIDEAN)

    def prompt_of(self, name: PromptName | None) -> str:
        """Return what is put before a text, depending on what it is.

        Raises:
            UserError: this is unknown.
        """
        if name is not None:
            check_choice("prompt_name", name, PromptName)
        stated = {"query": self.query, "document": self.document}.get(name or "")
        return self.prompt if stated is None else stated

    def changed(self, width: int, *, normalize: bool | None = None, dimensions: int | None = None) -> Pooling:
        """Return a pooling whose vectors are normalized or not, and cut; None keeps what it says.

        Args:
            width: width of the encoder.
            normalize: whether vectors are divided by their norm.
            dimensions: number of first components that they are cut to.

        Raises:
            UserError: they have fewer.
        """
        most = width_of(self, width)
        if dimensions is not None and not 1 <= dimensions <= most:
            raise UserError(f"{argument('dimensions', dimensions)}: the vectors of this model have {most} dimensions")
        return msgspec.structs.replace(
            self,
            normalize=self.normalize if normalize is None else normalize,
            dimensions=self.dimensions if dimensions is None else dimensions,
        )


def supported(pooling: Pooling | None) -> Pooling:
    """Return the pooling of a model, by default the mean.

    Raises:
        UserError: it has a step that is not supported.
    """
    if pooling is not None and pooling.unsupported:
        raise UserError(
            f"the vectors of this model need {pooling.unsupported}, which is not supported",
            remedy=f"choose {argument('pooling', 'mean')}, or another one, for other vectors than its own",
        )
    return pooling or Pooling()


def width_of(pooling: Pooling | None, width: int) -> int:
    """Return the width of the vectors of texts, before they are cut, given that of the encoder."""
    return pooling.dense[-1].width if pooling is not None and pooling.dense else width


def write_pooling(
    directory: Path,
    pooling: Pooling,
    width: int,
    summary: Summary = "first",
    dense: Mapping[str, Tensor] | None = None,
) -> None:
    """Write the files of sentence-transformers beside a model.

    Args:
        directory: directory of the model.
        pooling: what they state.
        width: width of the encoder.
        summary: the position of the vector of a text, which for sentence-transformers is the first or the last token.
        dense: tensors of the dense layers, if there are any.

    Raises:
        UserError: the pooling has a step that is not supported, and would be left out.
    """
    if pooling.unsupported:
        raise UserError(
            f"the vectors of this model need {pooling.unsupported}, which cannot be written",
            remedy="copy config.json, model.safetensors and the files of the tokenizer alone, to write its encoder",
        )
    names = ["Transformer", "Pooling", *("Dense" for _ in pooling.dense), *(["Normalize"] if pooling.normalize else [])]
    steps = [
        {
            "idx": number,
            "name": str(number),
            "path": f"{number}_{name}" if number else "",
            "type": f"sentence_transformers.models.{name}",
        }
        for number, name in enumerate(names)
    ]
    kind = "last" if pooling.kind == "cls" and summary != "first" else pooling.kind
    modes = {f"{PREFIX}{mode}": kind == ours for mode, (_, ours) in MODES.items()}
    excluded = {} if pooling.include_prompt else {"include_prompt": False}
    folder = directory / "1_Pooling"
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "config.json", {"word_embedding_dimension": width, **modes, **excluded})
    for number, layer in enumerate(pooling.dense):
        write_dense(directory / f"{2 + number}_Dense", layer, number, dense or {})
    if pooling.length is not None:
        _write(directory / LENGTH, {"max_seq_length": pooling.length, "do_lower_case": False})
    _write_prompts(directory, pooling)
    _write(directory / MODULES, steps)


def _write_prompts(directory: Path, pooling: Pooling) -> None:
    """Write the prompts, the number of dimensions, and how vectors are compared, if these are stated."""
    stated = {"default": pooling.prompt or None, "query": pooling.query, "document": pooling.document}
    if prompts := {name: prompt for name, prompt in stated.items() if prompt is not None}:
        stated_prompts = {"prompts": prompts, **({"default_prompt_name": "default"} if pooling.prompt else {})}
    else:
        stated_prompts = {}
    cut = {} if pooling.dimensions is None else {"truncate_dim": pooling.dimensions}
    compared = {} if pooling.similarity is None else {"similarity_fn_name": pooling.similarity}
    if stated_prompts or cut or compared:
        _write(directory / PROMPTS, {**stated_prompts, **cut, **compared})


def write_static_modules(directory: Path, pooling: Pooling) -> None:
    """Write the files by which a table of vectors of tokens is a model of sentence-transformers, with normalization."""
    steps = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{name}"}
        for number, (path, name) in enumerate((("", STATIC), ("1_Normalize", "Normalize")))
    ]
    (directory / "1_Normalize").mkdir(parents=True, exist_ok=True)
    _write_prompts(directory, msgspec.structs.replace(pooling, dimensions=None))
    _write(directory / MODULES, steps)


def write_splade(directory: Path, length: int, vocabulary: int) -> None:
    """Write the files by which a masked language model is a `SparseEncoder` of sentence-transformers: SPLADE.

    Args:
        directory: directory of the model.
        length: maximum number of tokens, special tokens included.
        vocabulary: number of rows of the decoder.
    """
    types = (("", SPLADE[0]), (f"1_{SPLADE[1]}", SPLADE[1]))
    steps = [
        {
            "idx": number,
            "name": str(number),
            "path": path,
            "type": f"sentence_transformers.sparse_encoder.models.{name}",
        }
        for number, (path, name) in enumerate(types)
    ]
    folder = directory / types[1][0]
    folder.mkdir(parents=True, exist_ok=True)
    shape = {"pooling_strategy": "max", "activation_function": "relu", "word_embedding_dimension": vocabulary}
    _write(folder / "config.json", shape)
    _write(directory / LENGTH, {"max_seq_length": length, "do_lower_case": False})
    _write(directory / PROMPTS, {"model_type": SPARSE_ENCODER, "similarity_fn_name": "dot"})
    _write(directory / MODULES, steps)


def write_dense(folder: Path, layer: Dense, number: int, tensors: Mapping[str, Tensor]) -> None:
    """Write the folder of a dense layer; its tensors are those of a `DenseLayers`, by their names there."""
    prefix = f"{DENSE_PART}.{number}."
    own = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    plain = {f"linear.{name}": value.detach().cpu().float().contiguous() for name, value in own.items()}
    names = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
    shape = {"in_features": own["weight"].shape[1], "out_features": layer.width, "bias": layer.bias}
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "config.json", {**shape, "activation_function": names[layer.activation]})
    replace_file(folder / "model.safetensors", safetensors.torch.save(plain, {"format": "pt"}))


def _write(path: Path, content: Any) -> None:
    replace_file(path, f"{json.dumps(content, indent=2)}\n".encode())


OUR_KEY = "unmask"
"""Key of config.json for the settings of the task."""
OWN = "unmask."
"""Prefix of tensors that transformers does not know: those of a downstream model and the head on it, and of pretraining
heads that the family lacks. transformers reads the directory without them."""

OWN_POOLER = f"{OWN}pooler"
"""Name of the body's pooler, if one of our heads reads it and the family's format has no name for it."""
POOLED = frozenset(name for name, settings in OBJECTIVES.items() if POOLER in settings.requires)
"""Pretraining heads that read the pooler."""


CLASSIFIERS = ("classification", "multi_label", "regression", "ranking", "token_classification")
"""Task heads whose last layer has the same name in directories, in some families also that of question answering."""

NAMED = ("classification", "multi_label", "token_classification")
"""Task heads whose outputs have names."""
NUMBERS = frozenset({"regression", "ranking"})
"""Task heads with one output, a number."""
MULTI_LABEL = "multi_label_classification"
"""problem_type in config.json of a classifier that decides on each label separately."""
_MULTI_LABEL = re.compile(r"Multi_?[Ll]abel")
"""What is in the names of classes that others wrote for this, whose config.json may say nothing else of it."""


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


def classifier_head(form: Format, config: Mapping[str, Any], tensors: Mapping[str, Tensor], path: Path) -> str:
    """Return which of our heads their `classifier` is, as several have this name; "" if none.

    Raises:
        UserError: according to the config it classifies sequences, but the pooler that it reads is missing; or it
            predicts several numbers.
    """
    named = config.get("architectures")
    architectures = tuple(map(str, named)) if isinstance(named, list) else ()
    parts = [f"{form.head_pooler or form.pooler}.{part}" for part in form.pooler_parts]
    missing = [name for name in parts if name not in tensors] if form.head_pooler or form.pooler else []
    for suffix, head in (("TokenClassification", "token_classification"), ("QuestionAnswering", "question_answering")):
        if any(name.endswith(suffix) for name in architectures):
            if missing and head in form.pooled:
                raise _without_pooler(missing[0], path)
            return head
    if any(name.endswith("MultipleChoice") for name in architectures):
        return ""
    if missing:
        if any(name.endswith("SequenceClassification") for name in architectures):
            raise _without_pooler(missing[0], path)
        return ""
    problem = config.get("problem_type")
    if problem == MULTI_LABEL or (problem is None and any(map(_MULTI_LABEL.search, architectures))):
        return "multi_label"
    rows = tensors.get(f"{form.heads['classification']['out']}.weight")
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
        UserError: the config does not name all labels, or names a label twice.
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
        labels = tuple(str(names[str(index)]) for index in range(len(names)))
    except (KeyError, TypeError):
        labels = ()
    if len(labels) != number:
        raise UserError(f"id2label does not name the {number} labels of the classifier", file=path)
    if len(set(labels)) != number:
        raise UserError("id2label names a label twice", file=path)
    return labels
