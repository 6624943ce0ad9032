"""What the directories of one family of models are like: how they call tensors and settings.

A family is a constant of its own file, `bert.py` for example; `huggingface.py` reads and writes them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from unmask.encoders.transformer import TransformerSettings
from unmask.layers.block import Activation

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
"""hidden_act to ours."""
KINDS = ("weight", "bias")


@dataclass(frozen=True, kw_only=True)
class Family:
    """Names that stand for a weight and a bias are without `.weight` and `.bias`.

    Attributes:
        model_type: in config.json.
        prefix: of the body's tensors, in models with a head.
        config: keys of config.json by our settings.
        defaults: what holds where config.json leaves a key away, if it is not what our settings say.
        always: what config.json says beside them.
        activations: theirs by ours.
        dropouts: further keys of config.json for the one dropout.
        head_dropout: the key for that before the last layer of a head, one of ours where the family has none.
        embeddings: our tensors to theirs.
        project: theirs of the projection of narrow embeddings.
        layer: theirs of a layer, its number in braces.
        qkv: theirs of query, key and value in a layer, which are one tensor here.
        block: our other tensors of a layer to theirs.
        transposed: whether a layer's matrices lie (in, out).
        pooler: theirs of the pooler in the body.
        head_pooler: the same in heads of whole texts, where it is a part of the head.
        heads: our heads, each of our parts to theirs ("bias" is one tensor).
        unbiased: parts of theirs that have no bias.
        decoder: theirs of the vocabulary's decoder, which is tied and not stored.
        architectures: by our heads.
        without_pooler: architectures that have none.
        groups: whether layers are stored in groups, one group for layers that are the same.
    """

    model_type: str
    prefix: str
    config: Mapping[str, str]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    always: Mapping[str, Any] = field(default_factory=dict)
    activations: Mapping[str, Activation] = field(default_factory=lambda: ACTIVATIONS)
    dropouts: tuple[str, ...] = ("attention_probs_dropout_prob",)
    head_dropout: str = "classifier_dropout"
    embeddings: Mapping[str, str]
    project: str = ""
    layer: str
    qkv: tuple[str, ...]
    block: Mapping[str, str]
    transposed: bool = False
    pooler: str = ""
    head_pooler: str = ""
    heads: Mapping[str, Mapping[str, str]]
    unbiased: tuple[str, ...] = ()
    decoder: str
    architectures: Mapping[tuple[str, ...], str]
    without_pooler: tuple[str, ...] = ()
    groups: bool = False

    def tensors(self, settings: TransformerSettings) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Give the body's tensors but for the pooler: ours, and theirs, of several of which the rows are joined.

        A sublayer that layers share comes once for each layer that is stored.
        """
        for ours, theirs in self.embeddings.items():
            if ours == "embeddings.segments.weight" and not settings.segments:
                continue
            yield from (((ours, (theirs,)),) if ours.endswith(".weight") else _both(ours, (theirs,)))
        if self.projects(settings):
            yield from _both("embeddings.project", (self.project,))
        for number in range(self.stored_layers(settings)):
            layer = self.layer.format(number)
            own = {part: 0 if settings.shared in ("all", part) else number for part in ("attention", "feed_forward")}
            yield from _both(f"blocks.{own['attention']}.attention.qkv", tuple(f"{layer}.{name}" for name in self.qkv))
            for ours, theirs in self.block.items():
                part = "attention" if ours.startswith("attention") else "feed_forward"
                yield from _both(f"blocks.{own[part]}.{ours}", (f"{layer}.{theirs}",))

    def lies_across(self, ours: str) -> bool:
        """Say whether a tensor is the transposed one of ours."""
        return self.transposed and ours.startswith("blocks.") and ours.endswith(".weight") and "norm" not in ours

    def projects(self, settings: TransformerSettings) -> bool:
        """Say whether a projection of the embeddings is stored: ALBERT's is even where none is needed."""
        return settings.embedding is not None or self.groups

    def stored_layers(self, settings: TransformerSettings) -> int:
        """Return how many layers are stored: one for all, where the family knows shared ones."""
        return 1 if self.groups and settings.shared == "all" else settings.layers


def _both(ours: str, theirs: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for kind in KINDS:
        yield f"{ours}.{kind}", tuple(f"{name}.{kind}" for name in theirs)


def shape_of(ours: str, settings: TransformerSettings, vocabulary: int) -> tuple[int, ...]:
    """Return the shape of one of the encoder's tensors."""
    width, narrow, inner = settings.width, settings.embedding_width, settings.feed_forward
    name, _, kind = ours.rpartition(".")
    last = name.rpartition(".")[2]
    rows, columns = width, width
    if ours.startswith("embeddings."):
        tables = {"words": vocabulary, "positions": settings.offset + settings.positions, "segments": settings.segments}
        if last in tables:
            return tables[last], narrow
        rows, columns = (narrow, narrow) if last == "norm" else (width, narrow)
    elif last == "qkv":
        rows = 3 * width
    elif last == "up":
        rows = inner
    elif last == "down":
        columns = inner
    return (rows,) if kind == "bias" or last.endswith("norm") else (rows, columns)


BERT_BLOCK = {
    "attention.out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward.up": "intermediate.dense",
    "feed_forward.down": "output.dense",
    "feed_forward_norm": "output.LayerNorm",
}
"""BERT's names within a layer, which its closest relatives kept."""
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
    "deviation": "initializer_range",
}
TASK_HEADS = {
    "classification": {"out": "classifier"},
    "regression": {"out": "classifier"},
    "token_classification": {"out": "classifier"},
    "question_answering": {"out": "qa_outputs"},
}


def architectures(name: str, **others: str) -> dict[tuple[str, ...], str]:
    """Return what transformers calls the models with each set of our heads, `name` being the family's."""
    return {
        (): f"{name}Model",
        ("classification",): f"{name}ForSequenceClassification",
        ("regression",): f"{name}ForSequenceClassification",
        ("token_classification",): f"{name}ForTokenClassification",
        ("question_answering",): f"{name}ForQuestionAnswering",
        ("masked_lm",): f"{name}ForMaskedLM",
        **{tuple(heads.split("__")): f"{name}{theirs}" for heads, theirs in others.items()},
    }
