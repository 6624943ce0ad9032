"""DistilBERT (Sanh et al. 2019, arXiv 1910.01108): BERT's body without segments; its format (modeling_distilbert.py).

LayerNorm epsilon is 1e-12, which directories do not store. Sequence-level heads have a dense layer with ReLU and a
separate dropout rate before the last layer, which token-level heads do not use.
"""

from __future__ import annotations

from dataclasses import replace

from unmask.families.body import TransformerSettings
from unmask.families.format import BERT_EMBEDDINGS, TASK_HEADS, Family, Format, architectures, in_layers
from unmask.nn.encoders.encoder import HeadSpec
from unmask.nn.encoders.transformer import Transformer
from unmask.nn.layers.embeddings import Embeddings
from unmask.nn.layers.pooler import Pooler


class DistilBertSettings(TransformerSettings, frozen=True, kw_only=True, tag="distilbert"):
    """The recipe's [encoder] for `kind = "distilbert"`; see `TransformerSettings`.

    Attributes:
        feed_forward: inner width of the feed-forward layers.
    """

    feed_forward: int

    @property
    def epsilon(self) -> float:
        """See `TransformerSettings`."""
        return 1e-12

    @property
    def head(self) -> HeadSpec:
        """See `TransformerSettings`."""
        return replace(super().head, token_dropout=self.dropout)

    def build(self, vocabulary: int) -> Transformer:
        """See `BodySettings`."""
        embeddings = Embeddings(
            vocabulary, self.positions, 0, self.width, None, dropout=self.dropout, epsilon=self.epsilon
        )
        return self.compose(vocabulary, embeddings, self.blocks(), Pooler(self.width, "relu"))


DISTILBERT = Family(
    DistilBertSettings,
    Format(
        model_type="distilbert",
        prefix="distilbert.",
        config={
            "layers": "n_layers",
            "width": "dim",
            "heads": "n_heads",
            "feed_forward": "hidden_dim",
            "positions": "max_position_embeddings",
            "dropout": "dropout",
            "activation": "activation",
            "init_std": "initializer_range",
        },
        defaults={"seq_classif_dropout": 0.2},
        dropouts=("attention_dropout",),
        head_dropout="seq_classif_dropout",
        tensors=BERT_EMBEDDINGS
        | in_layers(
            "transformer.layer.{}",
            {
                "attention.qkv": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
                "attention.out": "attention.out_lin",
                "attention_norm": "sa_layer_norm",
                "feed_forward.up": "ffn.lin1",
                "feed_forward.down": "ffn.lin2",
                "feed_forward_norm": "output_layer_norm",
            },
        ),
        head_pooler="pre_classifier",
        heads={
            "masked_lm": {"dense": "vocab_transform", "norm": "vocab_layer_norm", "bias": "vocab_projector.bias"},
            **TASK_HEADS,
        },
        decoder="vocab_projector.weight",
        architectures=architectures("DistilBert"),
    ),
)
