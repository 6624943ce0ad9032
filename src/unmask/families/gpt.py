"""GPT (Radford et al. 2018, section 4.1): BERT's layers with causal attention; its format (modeling_openai.py).

Embeddings are not normalized and have no segments, GELU is approximated, and there is no pooler: the vector of a text
is read at an extra last token. Feed-forward layers are four times as wide as the others. Initial weights are not
truncated (train.py of openai/finetune-transformer-lm). In directories matrices are stored as (in, out), and "gelu" is
the approximation. transformers has no token-level heads for it, and its sequence-level head has no bias; the regression
head, which needs one, is therefore our own.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Literal

from unmask.families.body import TransformerSettings
from unmask.families.format import Family, Format, Tensors, architectures, in_layers
from unmask.nn.encoders.encoder import LEFT_TO_RIGHT, SCORES, SEPARATE_LAYERS, TOKEN_EMBEDDINGS, HeadSpec, Initializer
from unmask.nn.encoders.transformer import Transformer
from unmask.nn.layers.embeddings import Embeddings


class GptSettings(TransformerSettings, frozen=True, kw_only=True, tag="gpt"):
    """The recipe's [encoder] for `kind = "gpt"`; see `TransformerSettings`.

    Attributes:
        activation: "gelu_tanh" or "relu".
        epsilon: epsilon of the LayerNorms.
    """

    activation: Literal["gelu_tanh", "relu"] = "gelu_tanh"
    epsilon: float = 1e-5

    summary = "extract"
    capabilities = frozenset({LEFT_TO_RIGHT, TOKEN_EMBEDDINGS, SCORES, SEPARATE_LAYERS})

    @property
    def feed_forward(self) -> int:
        """See `TransformerSettings`."""
        return 4 * self.width

    @property
    def causal(self) -> bool:
        """See `TransformerSettings`."""
        return True

    @property
    def init(self) -> Initializer:
        """See `TransformerSettings`."""
        return Initializer(self.init_std, truncated=False)

    @property
    def head(self) -> HeadSpec:
        """See `TransformerSettings`."""
        return replace(super().head, bias=False)

    def build(self, vocabulary: int) -> Transformer:
        """See `BodySettings`."""
        embeddings = Embeddings(vocabulary, self.positions, 0, self.width, None, dropout=self.dropout, epsilon=None)
        return self.compose(vocabulary, embeddings, self.blocks(), None)


def transposed(settings: GptSettings, tensors: Tensors) -> Tensors:
    """Return the tensors with the matrices of the layers transposed: directories store them as (in, out)."""
    return {
        name: value.t().contiguous() if re.fullmatch(r"h\.\d+\.(attn|mlp)\..+\.weight", name) else value
        for name, value in tensors.items()
    }


GPT = Family(
    GptSettings,
    Format(
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
            "init_std": "initializer_range",
        },
        defaults={"n_layer": 12, "n_embd": 768, "n_head": 12, "layer_norm_epsilon": 1e-5},
        activations={"gelu": "gelu_tanh", "relu": "relu"},
        dropouts=("embd_pdrop", "attn_pdrop"),
        head_dropout="unmask_head_dropout",
        tensors={
            "embeddings.words.weight": "tokens_embed.weight",
            "embeddings.positions.weight": "positions_embed.weight",
            **in_layers(
                "h.{}",
                {
                    "attention.qkv": "attn.c_attn",
                    "attention.out": "attn.c_proj",
                    "attention_norm": "ln_1",
                    "feed_forward.up": "mlp.c_fc",
                    "feed_forward.down": "mlp.c_proj",
                    "feed_forward_norm": "ln_2",
                },
            ),
        },
        to_hf=transposed,
        from_hf=lambda settings, tensors: (settings, transposed(settings, tensors)),
        heads={"causal_lm": {}, "classification": {"out": "score"}, "multi_label": {"out": "score"}},
        unbiased=("score",),
        decoder="lm_head.weight",
        architectures={**architectures("OpenAIGPT"), ("causal_lm",): "OpenAIGPTLMHeadModel"},
    ),
)
