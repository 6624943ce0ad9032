"""Attention for GPUs in bf16: torch's variable-length FlashAttention (Dao 2023), which needs no padding.

torch's public function for it does not support dropout, so the underlying operator is called. That one is private: if
the installed version of torch lacks it, sequences are padded for the public `scaled_dot_product_attention`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from unmask.data.batches.batch import Tokens
from unmask.data.batches.groups import Group
from unmask.nn.layers.attention_spec import AttentionSpec
from unmask.nn.layers.plain_attention import attended_positions


def varlen(qkv: Tensor, tokens: Tokens, spec: AttentionSpec) -> Tensor:
    """Compute attention; see `Kernel`. Biases and padding in the stream are not supported."""
    assert spec.bias is None
    x = qkv.view(len(qkv), 3, spec.heads, -1)  # (tokens, 3, heads, head width)
    query, key, value = x.unbind(1)
    longest = max(group.longest for group in tokens.groups)
    if spec.rotation is not None:
        tables = spec.rotation.tables(longest, x.shape[-1], x)
        cos, sin = (table[tokens.position_ids][:, None, None] for table in tables)  # (tokens, 1, 1, head width / 2)
        query, key = spec.rotation.rotate(x[:, :2], cos, sin).unbind(1)
    flash = _flash()
    if flash is None:
        return torch.cat([_padded(query, key, value, group, spec) for group in tokens.groups])
    output, *_ = flash(
        query,
        key,
        value,
        tokens.offsets,
        tokens.offsets,
        longest,
        longest,
        spec.dropout,
        is_causal=spec.causal,
        return_debug_mask=False,
        window_size_left=spec.window,
        window_size_right=0 if spec.causal and spec.window is not None else spec.window,
    )
    return output.flatten(1)


def _flash() -> Any:
    """Return torch's operator, or None if this version lacks it."""
    return getattr(torch.ops.aten, "_flash_attention_forward", None)


def _padded(query: Tensor, key: Tensor, value: Tensor, group: Group, spec: AttentionSpec) -> Tensor:
    """Return the outputs of a group's tokens, (tokens of the group, width)."""
    query, key, value = (_by_heads(x, group) for x in (query, key, value))
    attended = attended_positions(group, spec, query.device)
    if attended is not None and group.real is not None and spec.limited:
        attended = attended | ~group.real[:, None, :, None]  # torch returns NaN for tokens that attend to nothing
    output = scaled_dot_product_attention(query, key, value, attended, spec.dropout)
    rows = output.transpose(1, 2).reshape(group.sequences * group.longest, -1)
    return rows if group.index is None else rows.index_select(0, group.index)


def _by_heads(x: Tensor, group: Group) -> Tensor:
    """Return a group's tokens by sequence: (tokens, heads, head width) to (sequences, heads, longest, head width)."""
    rows = x[group.start : group.stop] if group.slots is None else x.index_select(0, group.slots)
    return rows.reshape(group.sequences, group.longest, *x.shape[1:]).transpose(1, 2)
