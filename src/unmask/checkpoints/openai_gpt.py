"""GPT's directories (modeling_openai.py of transformers 5).

Its matrices lie (in, out), and "gelu" is the approximate one. Heads of tokens it has none, and that of whole texts has
no bias: regression, which needs one, is our own.
"""

from unmask.checkpoints.family import Family, architectures

OPENAI_GPT = Family(
    model_type="openai-gpt",
    prefix="transformer.",
    config={
        "layers": "n_layer",
        "width": "n_embd",
        "heads": "n_head",
        "positions": "n_positions",
        "dropout": "resid_pdrop",
        "activation": "afn",
        "epsilon": "layer_norm_epsilon",
        "deviation": "initializer_range",
    },
    defaults={"n_layer": 12, "n_embd": 768, "n_head": 12, "layer_norm_epsilon": 1e-5},
    activations={"gelu": "gelu_tanh", "relu": "relu"},
    dropouts=("embd_pdrop", "attn_pdrop"),
    head_dropout="unmask_head_dropout",
    embeddings={
        "embeddings.words.weight": "tokens_embed.weight",
        "embeddings.positions.weight": "positions_embed.weight",
    },
    layer="h.{}",
    qkv=("attn.c_attn",),
    block={
        "attention.out": "attn.c_proj",
        "attention_norm": "ln_1",
        "feed_forward.up": "mlp.c_fc",
        "feed_forward.down": "mlp.c_proj",
        "feed_forward_norm": "ln_2",
    },
    transposed=True,
    heads={"causal_lm": {}, "classification": {"out": "score"}},
    unbiased=("score",),
    decoder="lm_head.weight",
    architectures={**architectures("OpenAIGPT"), ("causal_lm",): "OpenAIGPTLMHeadModel"},
)
