"""What the directories of a family of models are like: how they call tensors and settings.

A `Family` is a constant of its own file, `BERT` in bert.py for example; checkpoints/huggingface.py reads and writes
their directories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from unmask.families.body import BodySettings
from unmask.layers.block import Activation

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
"""hidden_act to ours."""
SHARED_KEY = "unmask_shared"
"""Under this name config.json says which sublayer is the same in all layers, where transformers has a copy in each."""
KINDS = ("weight", "bias")
BLOCKS = "blocks."
"""So begin our names of a layer's tensors."""


@dataclass(frozen=True, kw_only=True)
class Format:
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
        read: from config.json and the settings read so far to those that no single key tells; "kind" among them, where
            the body is one of another family.
        write: from the settings to keys of config.json that are no single setting.
        embeddings: our tensors below the layers to theirs.
        layer: theirs of a layer, its number in braces.
        stored_layers: how many layers a directory stores; None: all.
        qkv: theirs of query, key and value in a layer, which are one tensor here.
        block: our other tensors of a layer to theirs.
        transposed: whether a layer's matrices lie (in, out).
        lacking: tensors (by our names) that a directory has and the body has not; when read they may be missing.
        simplify: settings without what the tensors (by our names) show to have no effect. Raises ValueError where they
            are not those of a body that is known here.
        pooler: theirs of the pooler in the body.
        head_pooler: the same in heads of whole texts, where it is a part of the head.
        heads: our heads, each of our parts to theirs ("bias" is one tensor).
        unbiased: parts of theirs that have no bias.
        decoder: theirs of the vocabulary's decoder, which is tied and not stored.
        architectures: by our heads.
        without_pooler: architectures that have none.
    """

    model_type: str
    prefix: str
    config: Mapping[str, str]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    always: Mapping[str, Any] = field(default_factory=dict)
    activations: Mapping[str, Activation] = field(default_factory=lambda: ACTIVATIONS)
    dropouts: tuple[str, ...] = ("attention_probs_dropout_prob",)
    head_dropout: str = "classifier_dropout"
    read: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]] = lambda config, table: {}
    write: Callable[[Any], dict[str, Any]] = lambda settings: {}
    embeddings: Mapping[str, str]
    layer: str
    stored_layers: Callable[[Any], int] | None = None
    qkv: tuple[str, ...]
    block: Mapping[str, str]
    transposed: bool = False
    lacking: Callable[[Any], dict[str, Tensor]] = lambda settings: {}
    simplify: Callable[[Any, Mapping[str, Tensor]], Any] = lambda settings, tensors: settings
    pooler: str = ""
    head_pooler: str = ""
    heads: Mapping[str, Mapping[str, str]]
    unbiased: tuple[str, ...] = ()
    decoder: str
    architectures: Mapping[tuple[str, ...], str]
    without_pooler: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """Theirs of the token embeddings."""
        return self.embeddings["embeddings.words.weight"]

    def count_layers(self, settings: Any) -> int:
        """Return how many layers are stored."""
        return settings.layers if self.stored_layers is None else self.stored_layers(settings)

    def tensors(self, settings: Any, known: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Give the body's tensors but for the pooler: ours, and theirs, of several of which the rows are joined.

        A sublayer that layers share comes once for each layer that is stored.

        Args:
            settings: the body's.
            known: our names of what the body has, or the directory beside it.
        """
        there = set(known)
        for ours, theirs in self.embeddings.items():
            pairs = [(ours, (theirs,))] if ours.endswith(".weight") else _both(ours, (theirs,))
            yield from (pair for pair in pairs if pair[0] in there)
        for number in range(self.count_layers(settings)):
            layer = self.layer.format(number)
            own = {part: settings.owner(number, part) for part in ("attention", "feed_forward")}
            names = {"attention.qkv": self.qkv, **{ours: (name,) for ours, name in self.block.items()}}
            for ours, inside in names.items():
                part = "attention" if ours.startswith("attention") else "feed_forward"
                yield from _both(f"{BLOCKS}{own[part]}.{ours}", tuple(f"{layer}.{name}" for name in inside))

    def is_transposed(self, ours: str) -> bool:
        """Return whether a tensor is the transposed one of ours."""
        return self.transposed and ours.startswith(BLOCKS) and ours.endswith(".weight") and "norm" not in ours


@dataclass(frozen=True)
class Family:
    """A family of models.

    Attributes:
        settings: the recipe's [encoder] for it.
        format: of its directories.
    """

    settings: type[BodySettings]
    format: Format

    @property
    def kind(self) -> str:
        """What it is called in recipes."""
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
    "init_std": "initializer_range",
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
