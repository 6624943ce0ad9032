"""Attention on CPUs without gradient, by torch's fused kernel.

That kernel reads queries, keys and values where they are, and writes no scores; only its backward pass is slow.
Sequences are padded to the longest one of their `Group`, as in `fused`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from unmask.nn.layers.plain_attention import AttentionSpec, attended_positions, by_heads
from unmask.nn.layers.score_blocks import pays

if TYPE_CHECKING:
    from unmask.data.batches.batch import Tokens
    from unmask.data.batches.groups import Group


def for_inference(qkv: Tensor, tokens: Tokens, spec: AttentionSpec) -> Tensor:
    """Compute attention; see `Kernel` and `is_supported`."""
    stream = qkv.new_empty(len(qkv), qkv.shape[1] // 3)
    for group in tokens.groups:
        local = spec.is_local(group.longest)
        mask = None  # if causal, padding comes after all real tokens
        if local or not spec.causal:
            mask = attended_positions(group, spec if local else AttentionSpec(spec.heads), qkv.device)
        heads = by_heads(qkv, group, spec)  # each (sequences, heads, longest, head width)
        output = scaled_dot_product_attention(*heads, attn_mask=mask, is_causal=spec.causal and not local)
        rows, target = output.transpose(1, 2).reshape(-1, stream.shape[1]), stream[group.start : group.stop]
        if group.index is None:
            target.copy_(rows)
        else:
            torch.index_select(rows, 0, group.index, out=target)
    stream[tokens.groups[-1].stop :] = 0
    return stream


def is_supported(groups: tuple[Group, ...], spec: AttentionSpec) -> bool:
    """Return whether `for_inference` supports the parameters: no dropout, no bias, and no window that saves much."""
    plain = not spec.dropout and spec.bias is None and spec.terms == 1
    return plain and not any(pays(spec.window, group.longest) for group in groups)
