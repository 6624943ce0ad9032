"""The checkpoint format of a model family: the names of tensors and settings in its directories.

Each `Family` is a constant in the family's file, for example `BERT` in bert.py; checkpoints/huggingface.py reads and
writes the directories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from unmask.families.body import BodySettings
from unmask.nn.layers.block import Activation

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
"""Maps values of hidden_act to our names."""
SHARED_KEY = "unmask_shared"
"""Key of config.json that names the sublayer shared by all layers, of which transformers stores a copy per layer."""
KINDS = ("weight", "bias")
BLOCKS = "blocks."
"""Prefix of our names of the layers' tensors."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """Names in the directories of a family. Names of layers with a weight and a bias omit `.weight` and `.bias`.

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
        embeddings: maps our tensors below the layers to theirs.
        layer: their prefix of a layer, with {} for its number.
        stored_layers: returns the number of layers that a directory stores; None: all.
        qkv: their names of query, key and value in a layer, which are one tensor here.
        block: maps our other tensors of a layer to theirs.
        top: maps our tensors of the last layer to theirs that are in no layer.
        transposed: whether the matrices of a layer are stored as (in, out).
        lacking: returns tensors (by our names) that directories have but the body lacks; optional on reading.
        simplify: returns the settings without parts that, by the tensors (by our names), have no effect. Raises
            ValueError if the tensors do not belong to a supported body.
        pooler: their name of the pooler in the body.
        head_pooler: their name of the pooler in heads, if it is part of the head.
        pooler_parts: names of the pooler's tensors, which are the same there and here.
        pooled: our names of the task heads that read the pooler.
        heads: for each of our heads, maps our parts to theirs ("bias" is a single tensor).
        unbiased: their parts that have no bias.
        decoder: their name of the vocabulary decoder, which is tied and not stored; "" if there is none.
        former: maps beginnings of their former names of tensors to those above.
        architectures: maps sets of our heads to their names of architectures.
        without_pooler: architectures without a pooler.
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
    embeddings: Mapping[str, str]
    layer: str
    stored_layers: Callable[[Any], int] | None = None
    qkv: tuple[str, ...]
    block: Mapping[str, str]
    top: Mapping[str, str] = field(default_factory=dict)
    transposed: bool = False
    lacking: Callable[[Any], dict[str, Tensor]] = lambda settings: {}
    simplify: Callable[[Any, Mapping[str, Tensor]], Any] = lambda settings, tensors: settings
    pooler: str = ""
    head_pooler: str = ""
    pooler_parts: tuple[str, ...] = KINDS
    pooled: tuple[str, ...] = ("classification", "multi_label", "regression")
    heads: Mapping[str, Mapping[str, str]]
    unbiased: tuple[str, ...] = ()
    decoder: str
    former: Mapping[str, str] = field(default_factory=dict)
    architectures: Mapping[tuple[str, ...], str]
    without_pooler: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """Their name of the token embeddings; "" if there are none."""
        return self.embeddings.get("embeddings.words.weight", "")

    def count_layers(self, settings: Any) -> int:
        """Return the number of stored layers."""
        return settings.layers if self.stored_layers is None else self.stored_layers(settings)

    def tensors(self, settings: Any, known: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the body's tensors except the pooler: our name, and their names, whose rows are concatenated.

        A shared sublayer is yielded once per stored layer.

        Args:
            settings: the settings of the body.
            known: our names of the tensors in the body, and of those that only directories have.
        """
        existing = set(known)
        for ours, names in self._tensors(settings):
            if ours in existing:
                yield ours, names

    def _tensors(self, settings: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield what `tensors` does, and the tensors that not all bodies have."""
        for ours, theirs in self.embeddings.items():
            yield from [(ours, (theirs,))] if ours.endswith((".weight", ".bias")) else _both(ours, (theirs,))
        for number in range(self.count_layers(settings)):
            layer = self.layer.format(number)
            own = {part: settings.owner(number, part) for part in ("attention", "feed_forward")}
            names = {"attention.qkv": self.qkv, **{ours: (name,) for ours, name in self.block.items()}}
            for ours, inside in names.items():
                part = "attention" if ours.startswith("attention") else "feed_forward"
                yield from _both(f"{BLOCKS}{own[part]}.{ours}", tuple(f"{layer}.{name}" for name in inside))
        for ours, theirs in self.top.items():
            yield from _both(f"{BLOCKS}{settings.layers - 1}.{ours}", (theirs,))

    def stored(self, settings: Any, ours: str, value: Tensor) -> Tensor:
        """Return a tensor, or its part that has a name of theirs, as directories store it.

        Args:
            settings: the settings of the body.
            ours: our name of it.
            value: the tensor, as the body has it.
        """
        return value.t() if self._is_transposed(ours) else value

    def loaded(self, ours: str, value: Tensor) -> Tensor:
        """Return a tensor as the body has it: the inverse of `stored`."""
        return value.t().contiguous() if self._is_transposed(ours) else value

    def _is_transposed(self, ours: str) -> bool:
        """Return whether their tensor is the transpose of ours."""
        return self.transposed and ours.startswith(BLOCKS) and ours.endswith(".weight") and "norm" not in ours


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


def _both(ours: str, theirs: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for kind in KINDS:
        yield f"{ours}.{kind}", tuple(f"{name}.{kind}" for name in theirs)


BERT_BLOCK = {
    "attention.out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward.up": "intermediate.dense",
    "feed_forward.down": "output.dense",
    "feed_forward_norm": "output.LayerNorm",
}
"""BERT's names within a layer, which the closest relatives keep."""
BERT_EMBEDDINGS = {
    "embeddings.words.weight": "embeddings.word_embeddings.weight",
    "embeddings.positions.weight": "embeddings.position_embeddings.weight",
    "embeddings.segments.weight": "embeddings.token_type_embeddings.weight",
    "embeddings.norm": "embeddings.LayerNorm",
}
BERT_QKV = ("attention.self.query", "attention.self.key", "attention.self.value")
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
    "token_classification": {"out": "classifier"},
    "question_answering": {"out": "qa_outputs"},
}


TEXT_HEAD = {"out": "classifier.out_proj"}
DENSE_HEADS = {**TASK_HEADS, "classification": TEXT_HEAD, "multi_label": TEXT_HEAD, "regression": TEXT_HEAD}
"""Those of families whose heads on texts have a dense layer of their own."""
BERT_LM = {
    "dense": "cls.predictions.transform.dense",
    "norm": "cls.predictions.transform.LayerNorm",
    "bias": "cls.predictions.bias",
}
ROBERTA_LM = {"dense": "lm_head.dense", "norm": "lm_head.layer_norm", "bias": "lm_head.bias"}


def architectures(name: str, **others: str) -> dict[tuple[str, ...], str]:
    """Return the class names of transformers by sets of our heads, where `name` is their name of the family."""
    return {
        (): f"{name}Model",
        ("classification",): f"{name}ForSequenceClassification",
        ("multi_label",): f"{name}ForSequenceClassification",
        ("regression",): f"{name}ForSequenceClassification",
        ("token_classification",): f"{name}ForTokenClassification",
        ("question_answering",): f"{name}ForQuestionAnswering",
        ("masked_lm",): f"{name}ForMaskedLM",
        **{tuple(heads.split("__")): f"{name}{theirs}" for heads, theirs in others.items()},
    }


def without_pooler(name: str, *others: str) -> tuple[str, ...]:
    """Return the class names of the heads that read tokens, and of others, by what follows the name of the family."""
    return tuple(f"{name}{head}" for head in (*others, "ForMaskedLM", "ForTokenClassification", "ForQuestionAnswering"))
