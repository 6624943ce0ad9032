"""The checkpoint format of a model family: the names of tensors and settings in its directories.

Each `Family` is a constant in the family's file, for example `BERT` in bert.py; checkpoints/huggingface.py reads and
writes the directories.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

if TYPE_CHECKING:
    from unmask.families.body import BodySettings
    from unmask.nn.layers.block import Activation

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
"""Maps values of hidden_act to our names; several are the same function, of which the first is written."""
SHARED_KEY = "unmask_shared"
"""Key of config.json that names the sublayer shared by all layers, of which transformers stores a copy per layer."""
TEXTS = ("classification", "multi_label", "regression", "ranking")
"""Task heads on whole texts."""
Tensors: TypeAlias = dict[str, Tensor]
"""Tensors by name."""
Names: TypeAlias = dict[str, str | tuple[str, ...]]
"""Our names and theirs; see `Format.tensors`."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """Names in the directories of a family, and functions for what names cannot express.

    Names of parts with a weight and a bias omit `.weight` and `.bias`.

    Attributes:
        model_type: `model_type` in config.json.
        prefix: prefix of the body's tensors in models with a head.
        config: maps our settings to keys of config.json.
        defaults: values for missing keys of config.json that differ from the defaults of our settings.
        always: constant keys of config.json.
        activations: maps their names of activations to ours.
        dropouts: further keys of config.json that hold `dropout`.
        head_dropout: key of the dropout before the last layer of a head; one of our own if the family has none.
        read: maps config.json and the settings read so far to settings that no single key holds; these may include
            "kind", if the body belongs to another family.
        write: maps the settings to keys of config.json that correspond to no single setting.
        tensors: our names of the body's tensors, or their beginnings up to a dot, and theirs, with {} for the number of
            a layer. Of several names each is that of as many rows. Only the pooler's needs none.
        optional: tensors (by their names) that a directory may lack.
        to_hf: takes the settings and the body's tensors by their names, and returns what directories store.
        from_hf: the inverse, which may also change the settings. Raises ValueError if the tensors do not belong to a
            supported body.
        pooler: their name of the pooler in the body.
        head_pooler: their name of the pooler in heads, if it is part of the head.
        pooler_parts: names of the pooler's tensors, which are the same there and here.
        pooled: our names of the task heads that read `head_pooler`, if there is one.
        heads: for each of our heads, maps our parts to theirs ("bias" is a single tensor).
        unbiased: their parts that have no bias.
        decoder: their name of the vocabulary decoder, which is tied and not stored; "" if there is none.
        former: maps beginnings of their former names of tensors to those above.
        architectures: maps sets of our heads to their names of architectures.
        without_pooler: architectures without a pooler, in families that have `pooler`.
    """

    model_type: str
    prefix: str
    config: Mapping[str, str]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    always: Mapping[str, Any] = field(default_factory=dict)
    activations: Mapping[str, str] = field(default_factory=lambda: ACTIVATIONS)
    dropouts: tuple[str, ...] = ("attention_probs_dropout_prob",)
    head_dropout: str = "classifier_dropout"
    read: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]] = lambda config, table: {}
    write: Callable[[Any], dict[str, Any]] = lambda settings: {}
    tensors: Names
    optional: tuple[str, ...] = ()
    to_hf: Callable[[Any, Tensors], Tensors] = lambda settings, tensors: tensors
    from_hf: Callable[[Any, Tensors], tuple[Any, Tensors]] = lambda settings, tensors: (settings, tensors)
    pooler: str = ""
    head_pooler: str = ""
    pooler_parts: tuple[str, ...] = ("weight", "bias")
    pooled: tuple[str, ...] = (*TEXTS, "multiple_choice")
    heads: Mapping[str, Mapping[str, str]]
    unbiased: tuple[str, ...] = ()
    decoder: str
    former: Mapping[str, str] = field(default_factory=dict)
    architectures: Mapping[tuple[str, ...], str]
    without_pooler: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """Their name of the token embeddings; "" if there are none."""
        return next(iter(self.names("embeddings.words.weight")), "")

    @property
    def decoder_biases(self) -> tuple[str, str]:
        """Their names of the bias of the vocabulary decoder: that of the decoder, and that of the head."""
        of_head = next((names["bias"] for names in self.heads.values() if "bias" in names), "")
        return f"{self.decoder.removesuffix('.weight')}.bias", of_head

    @property
    def layer(self) -> str:
        """Their beginning of the names in a layer, with {} for its number."""
        return next(name[: name.index("{}") + 2] for name in self._theirs if "{}" in name)

    @property
    def beginnings(self) -> tuple[str, ...]:
        """The beginnings of all their names in the body."""
        return tuple(name.partition("{")[0] for name in (*self._theirs, *self.optional))

    @property
    def _theirs(self) -> Iterator[str]:
        return (name for names in self.tensors.values() for name in _several(names))

    def names(self, own_name: str) -> tuple[str, ...]:
        """Return their names of one of our tensors, whose rows are concatenated; none if directories do not have it."""
        for beginning, stored in self.tensors.items():
            if match := _pattern(beginning).fullmatch(own_name):
                *number, ending = match.groups(default="")
                return tuple(name.format(*number) + ending for name in _several(stored))
        return ()

    def stored(self, settings: Any, state: Mapping[str, Tensor]) -> Tensors:
        """Return the tensors of a body as directories store them, by their names without the prefix.

        Args:
            settings: the settings of the body.
            state: its tensors by our names.
        """
        tensors: Tensors = {}
        for name, value in state.items():
            names = self.names(name)
            assert names or name.startswith("pooler."), f"Format.tensors of {self.model_type} has no name for {name}"
            tensors |= zip(names, value.chunk(len(names)) if names else (), strict=True)
        return self.to_hf(settings, tensors)

    def loaded(self, settings: Any, tensors: Tensors, own_names: Iterable[str]) -> tuple[Any, Tensors]:
        """Return the settings and the tensors of a body by our names: the inverse of `stored`.

        Args:
            settings: the settings of the body by its config.
            tensors: its tensors by their names.
            own_names: our names of them.

        Raises:
            ValueError: they do not belong to a supported body.
        """
        from_config = settings
        settings, tensors = self.from_hf(settings, tensors)
        named = {name: self.names(name) for name in own_names}
        parts = {name: [tensors[part] for part in names if part in tensors] for name, names in named.items()}
        unread = [name for name, names in named.items() if not parts[name] and set(names) - {*self.optional}]
        if unread and settings == from_config:  # otherwise the body may have fewer tensors
            raise ValueError(
                f"nothing is read for {unread[0]}: name what is stored for it in Format.tensors or .optional"
            )
        return settings, {
            name: values[0] if len(values) == 1 else torch.cat(values) for name, values in parts.items() if values
        }


def _several(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


@cache
def _pattern(beginning: str) -> re.Pattern[str]:
    """Return the pattern of our names with a beginning, whose groups are the number of the layer and the rest."""
    return re.compile(re.escape(beginning).replace(r"\{\}", r"(\d+)") + r"(\..+)?")


def in_layers(layer: str, names: Names) -> Names:
    """Return names of tensors of the body from those in a layer.

    Args:
        layer: their beginning of the names, with {} for the number of the layer.
        names: our names in a layer, and theirs.
    """
    return {
        f"blocks.{{}}.{own_name}": tuple(f"{layer}.{name}" for name in _several(stored))
        for own_name, stored in names.items()
    }


@dataclass(frozen=True)
class Family:
    """A family of models.

    Attributes:
        settings: type of the recipe's [encoder] for it.
        format: format of its directories.
    """

    settings: type[BodySettings]
    format: Format

    @property
    def kind(self) -> str:
        """Its `kind` in recipes."""
        return str(self.settings.__struct_config__.tag)


BERT_QKV = ("attention.self.query", "attention.self.key", "attention.self.value")
BERT_BLOCK: Names = {
    "attention.out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward.up": "intermediate.dense",
    "feed_forward.down": "output.dense",
    "feed_forward_norm": "output.LayerNorm",
}
"""BERT's names within a layer, which the closest relatives keep."""
BERT_EMBEDDINGS: Names = {
    "embeddings.words.weight": "embeddings.word_embeddings.weight",
    "embeddings.positions.weight": "embeddings.position_embeddings.weight",
    "embeddings.segments.weight": "embeddings.token_type_embeddings.weight",
    "embeddings.norm": "embeddings.LayerNorm",
}
BERT_TENSORS: Names = {**BERT_EMBEDDINGS, **in_layers("encoder.layer.{}", {"attention.qkv": BERT_QKV, **BERT_BLOCK})}
BERT_CONFIG = {
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "feed_forward": "intermediate_size",
    "positions": "max_position_embeddings",
    "segments": "type_vocab_size",
    "dropout": "hidden_dropout_prob",
    "activation": "hidden_act",
    "epsilon": "layer_norm_eps",
    "init_std": "initializer_range",
}
TASK_HEADS = {
    "classification": {"out": "classifier"},
    "multi_label": {"out": "classifier"},
    "regression": {"out": "classifier"},
    "ranking": {"out": "classifier"},
    "token_classification": {"out": "classifier"},
    "question_answering": {"out": "qa_outputs"},
    "multiple_choice": {"out": "classifier"},
}


CLASSIFIERS = {
    head: names for head, names in TASK_HEADS.items() if head not in ("question_answering", "multiple_choice")
}
"""Those of families that have no other heads in transformers."""
TEXT_HEAD = {"out": "classifier.out_proj"}
DENSE_HEADS = {
    **{head: names for head, names in TASK_HEADS.items() if head != "multiple_choice"},
    **dict.fromkeys(TEXTS, TEXT_HEAD),
}
"""Those of families whose heads on texts have a dense layer of their own, apart from multiple choice."""
BERT_LM = {
    "dense": "cls.predictions.transform.dense",
    "norm": "cls.predictions.transform.LayerNorm",
    "bias": "cls.predictions.bias",
}
ROBERTA_LM = {"dense": "lm_head.dense", "norm": "lm_head.layer_norm", "bias": "lm_head.bias"}


def check_only(config: Mapping[str, Any], only: Mapping[str, Any]) -> None:
    """Check that keys of config.json are missing or have the only values that are supported.

    Raises:
        TypeError: one has another value.
    """
    for name, value in only.items():
        if config.get(name, value) != value:
            raise TypeError(f"{name}: {config[name]!r} is not supported, only {value!r}")


def read_rotation(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the setting `base` of families with one kind of rotation; none if config.json does not have it.

    Raises:
        TypeError: positions are rotated in another way.
    """
    base = read_base(config.get("rope_parameters") or config.get("rope_scaling") or {}, config.get("rope_theta"))
    return {} if base is None else {"base": base}


def read_base(rotation: Mapping[str, Any], default: Any) -> Any:
    """Return the base that the table of a rotation states, by default another value.

    Raises:
        TypeError: positions are rotated in another way.
    """
    if not isinstance(rotation, Mapping):
        raise TypeError(f"{rotation!r:.80} is not a table of a rotation")
    kind = rotation.get("rope_type", rotation.get("type", "default"))  # the second is its former name
    if kind != "default":
        raise TypeError(f"rope_type: {kind!r} is not supported, only 'default'")
    return rotation.get("rope_theta", default)


def write_rotation(base: float) -> dict[str, Any]:
    """Return the key of config.json for a rotation; see `read_rotation`."""
    return {"rope_parameters": {"rope_theta": base, "rope_type": "default"}}


def architectures(name: str, **others: str) -> dict[tuple[str, ...], str]:
    """Return the class names of transformers by sets of our heads, where `name` is their name of the family."""
    return {
        (): f"{name}Model",
        ("classification",): f"{name}ForSequenceClassification",
        ("multi_label",): f"{name}ForSequenceClassification",
        ("regression",): f"{name}ForSequenceClassification",
        ("ranking",): f"{name}ForSequenceClassification",
        ("token_classification",): f"{name}ForTokenClassification",
        ("question_answering",): f"{name}ForQuestionAnswering",
        ("multiple_choice",): f"{name}ForMultipleChoice",
        ("masked_lm",): f"{name}ForMaskedLM",
        **{tuple(heads.split("__")): f"{name}{ending}" for heads, ending in others.items()},
    }


def without_pooler(name: str, *others: str) -> tuple[str, ...]:
    """Return the class names of the heads that read tokens, and of others, by what follows the name of the family."""
    return tuple(f"{name}{head}" for head in (*others, "ForMaskedLM", "ForTokenClassification", "ForQuestionAnswering"))


@dataclass(frozen=True)
class Pretrained:
    """The contents of a directory of a model, read under our names.

    Attributes:
        settings, vocabulary: settings and vocabulary size of the encoder.
        encoder: its tensors under our names; those of the pooler may be missing.
        heads: tensors of each head in the directory, under our names.
        labels: labels of the classification or token classification head, in order.
        task: settings of the task as `write` stored them; None if the directory does not come from unmask.
        tokens: number of tokens that it was pretrained on, if `write` stored it.
        activation: what is applied to the output of a regression head: "sigmoid", or "" for nothing.
    """

    settings: BodySettings
    vocabulary: int
    encoder: Mapping[str, Tensor]
    heads: Mapping[str, Mapping[str, Tensor]]
    labels: tuple[str, ...] = field(default=())
    task: Mapping[str, Any] | None = None
    tokens: int | None = None
    activation: str = ""
