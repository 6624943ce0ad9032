"""ALBERT's directories (modeling_albert.py of transformers 5).

Layers are stored in groups; all layers of a group are the same. There is always a projection of the embeddings.
"""

from unmask.checkpoints.family import BERT_CONFIG, BERT_EMBEDDINGS, TASK_HEADS, Family, architectures

ALBERT = Family(
    model_type="albert",
    prefix="albert.",
    config={**BERT_CONFIG, "embedding": "embedding_size"},
    defaults={
        "embedding_size": 128,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.0,
        "classifier_dropout_prob": 0.1,
    },
    head_dropout="classifier_dropout_prob",
    always={"inner_group_num": 1},
    embeddings=BERT_EMBEDDINGS,
    project="encoder.embedding_hidden_mapping_in",
    layer="encoder.albert_layer_groups.{}.albert_layers.0",
    qkv=("attention.query", "attention.key", "attention.value"),
    block={
        "attention.out": "attention.dense",
        "attention_norm": "attention.LayerNorm",
        "feed_forward.up": "ffn",
        "feed_forward.down": "ffn_output",
        "feed_forward_norm": "full_layer_layer_norm",
    },
    pooler="pooler",
    heads={
        "masked_lm": {"dense": "predictions.dense", "norm": "predictions.LayerNorm", "bias": "predictions.bias"},
        "sentence_order": {"out": "sop_classifier.classifier"},
        **TASK_HEADS,
    },
    decoder="predictions.decoder.weight",
    architectures=architectures("Albert", masked_lm__sentence_order="ForPreTraining"),
    without_pooler=("AlbertForTokenClassification", "AlbertForQuestionAnswering"),
    groups=True,
)
