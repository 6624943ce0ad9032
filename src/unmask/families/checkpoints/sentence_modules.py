"""How token vectors become the vector of a text, as directories of sentence-transformers state it.

The files: `modules.json`, which lists the steps; `1_Pooling/config.json`, the kind of pooling; `2_Dense`, a dense layer
with its weights; `sentence_bert_config.json`, the maximum length; and `config_sentence_transformers.json`, the prompts.
They are written here, and sentence_files.py reads them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import safetensors.torch
from torch import Tensor

from unmask.nn.encoders.pooled import Dense
from unmask.support.choices import PoolingKind, PromptName, SummaryKind, check_choice
from unmask.support.durable import replace_file
from unmask.support.errors import UserError
from unmask.support.messages import argument

MODULES, LENGTH = "modules.json", "sentence_bert_config.json"
SENTENCES = "config_sentence_transformers.json"
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
CROSS_ENCODER = "CrossEncoder"
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
    summary: SummaryKind = "first",
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
        _write(directory / SENTENCES, {**stated_prompts, **cut, **compared})


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
    _write(directory / SENTENCES, {"model_type": SPARSE_ENCODER, "similarity_fn_name": "dot"})
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
