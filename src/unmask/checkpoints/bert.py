"""BERT's directories (modeling_bert.py of transformers 5)."""

from unmask.checkpoints.family import (
    BERT_BLOCK,
    BERT_CONFIG,
    BERT_EMBEDDINGS,
    BERT_QKV,
    TASK_HEADS,
    Family,
    architectures,
)

BERT = Family(
    model_type="bert",
    prefix="bert.",
    config=BERT_CONFIG,
    embeddings=BERT_EMBEDDINGS,
    layer="encoder.layer.{}",
    qkv=BERT_QKV,
    block=BERT_BLOCK,
    pooler="pooler.dense",
    heads={
        "masked_lm": {
            "dense": "cls.predictions.transform.dense",
            "norm": "cls.predictions.transform.LayerNorm",
            "bias": "cls.predictions.bias",
        },
        "next_sentence": {"out": "cls.seq_relationship"},
        **TASK_HEADS,
    },
    decoder="cls.predictions.decoder.weight",
    architectures=architectures("Bert", masked_lm__next_sentence="ForPreTraining"),
    without_pooler=("BertForTokenClassification", "BertForQuestionAnswering"),
)
