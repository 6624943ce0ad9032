"""Attention of a single sequence without gradient, by torch's fused kernel for CPUs.

For a text that comes alone, the calls of the kernel for batches take longer than what they compute.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from unmask.batches.batch import Tokens
from unmask.layers.attention_spec import AttentionSpec
from unmask.layers.plain_attention import by_heads


def single(qkv: Tensor, tokens: Tokens, spec: AttentionSpec) -> Tensor:
    """Compute attention; see `Kernel`. Batches, dropout, biases and windows are not supported; see `is_single`."""
    (group,) = tokens.groups
    output = scaled_dot_product_attention(*by_heads(qkv, group, spec), is_causal=spec.causal)
    rows = output.transpose(1, 2).reshape(group.longest, -1)  # (tokens, width)
    return pad(rows, (0, 0, 0, len(qkv) - len(rows)))


def is_single(tokens: Tokens, spec: AttentionSpec) -> bool:
    """Return whether `single` supports a batch and the parameters of the attention."""
    group = tokens.groups[0]
    alone = len(tokens.groups) == group.sequences == 1 and group.real is None
    return alone and not spec.dropout and spec.bias is None and spec.window is None and spec.terms == 1
