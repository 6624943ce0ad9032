"""ELECTRA's directories (modeling_electra.py of transformers 5).

The head of whole texts has its own dense layer with GELU. The masked-LM head is that of a generator.
"""

from unmask.checkpoints.family import (
    BERT_BLOCK,
    BERT_CONFIG,
    BERT_EMBEDDINGS,
    BERT_QKV,
    TASK_HEADS,
    Family,
    architectures,
)

ELECTRA = Family(
    model_type="electra",
    prefix="electra.",
    config={**BERT_CONFIG, "embedding": "embedding_size"},
    defaults={"embedding_size": 128},
    always={"summary_use_proj": True, "summary_activation": "gelu"},
    embeddings=BERT_EMBEDDINGS,
    project="embeddings_project",
    layer="encoder.layer.{}",
    qkv=BERT_QKV,
    block=BERT_BLOCK,
    head_pooler="classifier.dense",
    heads={
        "masked_lm": {
            "dense": "generator_predictions.dense",
            "norm": "generator_predictions.LayerNorm",
            "bias": "generator_lm_head.bias",
        },
        "replaced_token": {
            "dense": "discriminator_predictions.dense",
            "out": "discriminator_predictions.dense_prediction",
        },
        **TASK_HEADS,
        "classification": {"out": "classifier.out_proj"},
        "regression": {"out": "classifier.out_proj"},
    },
    decoder="generator_lm_head.weight",
    architectures=architectures("Electra", replaced_token="ForPreTraining"),
    without_pooler=("ElectraForMaskedLM", "ElectraForTokenClassification", "ElectraForQuestionAnswering"),
)
