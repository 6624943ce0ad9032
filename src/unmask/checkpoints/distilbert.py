"""DistilBERT's directories (modeling_distilbert.py of transformers 5): no segments, and a pooler with ReLU in heads."""

from unmask.checkpoints.family import TASK_HEADS, Family, architectures

DISTILBERT = Family(
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
        "deviation": "initializer_range",
    },
    embeddings={
        "embeddings.words.weight": "embeddings.word_embeddings.weight",
        "embeddings.positions.weight": "embeddings.position_embeddings.weight",
        "embeddings.norm": "embeddings.LayerNorm",
    },
    layer="transformer.layer.{}",
    defaults={"seq_classif_dropout": 0.2},
    dropouts=("attention_dropout",),
    head_dropout="seq_classif_dropout",
    qkv=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    block={
        "attention.out": "attention.out_lin",
        "attention_norm": "sa_layer_norm",
        "feed_forward.up": "ffn.lin1",
        "feed_forward.down": "ffn.lin2",
        "feed_forward_norm": "output_layer_norm",
    },
    head_pooler="pre_classifier",
    heads={
        "masked_lm": {"dense": "vocab_transform", "norm": "vocab_layer_norm", "bias": "vocab_projector.bias"},
        **TASK_HEADS,
    },
    decoder="vocab_projector.weight",
    architectures=architectures("DistilBert"),
    without_pooler=(
        "DistilBertModel",
        "DistilBertForMaskedLM",
        "DistilBertForTokenClassification",
        "DistilBertForQuestionAnswering",
    ),
)
