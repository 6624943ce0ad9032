"""RoBERTa's directories (modeling_roberta.py of transformers 5).

Positions are counted from the id of padding on, plus one; the table of positions has as many rows more. The head of
whole texts has its own dense layer with tanh, which is what BERT's pooler is.
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

ROBERTA = Family(
    model_type="roberta",
    prefix="roberta.",
    config=BERT_CONFIG,
    embeddings=BERT_EMBEDDINGS,
    layer="encoder.layer.{}",
    qkv=BERT_QKV,
    block=BERT_BLOCK,
    pooler="pooler.dense",
    head_pooler="classifier.dense",
    heads={
        "masked_lm": {"dense": "lm_head.dense", "norm": "lm_head.layer_norm", "bias": "lm_head.bias"},
        **TASK_HEADS,
        "classification": {"out": "classifier.out_proj"},
        "regression": {"out": "classifier.out_proj"},
    },
    decoder="lm_head.decoder.weight",
    architectures=architectures("Roberta"),
    without_pooler=("RobertaForMaskedLM", "RobertaForTokenClassification", "RobertaForQuestionAnswering"),
)
