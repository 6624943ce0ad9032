"""Multi-head self-attention over a ragged batch (Vaswani et al. 2017, section 3.2.2).

Input: a stream of tokens and the offsets of its sequences. Output: the attention output of each token over its
sequence.

The kernel is injected. There are three, with equal outputs and gradients: `fused` for CPUs, `varlen` for GPUs, and
`plain` for export, attention scores and biases; `for_inference` has equal outputs on CPUs, but no gradient. `fastest`
chooses one of them at each call. Devices other than CPUs and CUDA's use `plain`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from unmask.nn.layers.fused_attention import fused, varlen
from unmask.nn.layers.inference_attention import for_inference, is_supported
from unmask.nn.layers.linear import Linear
from unmask.nn.layers.plain_attention import AttentionSpec, Kernel, plain
from unmask.nn.layers.rotary import readers

if TYPE_CHECKING:
    from unmask.data.batches.batch import Tokens

Body = TypeVar("Body", bound=nn.Module)


def choose_kernel(qkv: Tensor, tokens: Tokens, spec: AttentionSpec) -> Kernel:
    """Return the fastest kernel that supports the inputs.

    Args:
        qkv: queries, keys and values, (tokens, 3 * width); only their device, dtype and shape are used.
        tokens: offsets and groups of the sequences.
        spec: parameters of the attention.
    """
    if spec.bias is not None or torch.compiler.is_exporting() or not (qkv.is_cpu or qkv.is_cuda):
        return plain
    on_gpu = qkv.is_cuda and qkv.dtype == torch.bfloat16 and qkv.shape[1] // (3 * spec.heads) % 8 == 0
    if qkv.is_cpu and not torch.is_grad_enabled() and is_supported(tokens.groups, spec):
        return for_inference
    padding_in_stream = any(group.real is not None and group.index is None for group in tokens.groups)
    return varlen if on_gpu and not padding_in_stream else fused


def fastest(qkv: Tensor, tokens: Tokens, spec: AttentionSpec) -> Tensor:
    """Compute attention with the kernel that `choose_kernel` returns; see `Kernel`."""
    return choose_kernel(qkv, tokens, spec)(qkv, tokens, spec)


class SelfAttention(nn.Module):
    """Self-attention of each token to all tokens of its sequence, to itself and the previous ones, or to those nearby.

    Args:
        width: hidden size of the tokens; that of each head is `width // spec.heads`.
        spec: what tokens attend to, and how, in training; outside of it there is no dropout.
        biased: whether the two linear layers have biases.
        qkv: projection to queries, keys and values, (rows, width) to (rows, 3 * width); None: a linear layer.
        kernel: computes the attention; see `set_kernel`.

    Raises:
        ValueError: a rotation is given and the heads have an odd width.
    """

    def __init__(
        self,
        width: int,
        spec: AttentionSpec,
        *,
        biased: bool = True,
        qkv: nn.Module | None = None,
        kernel: Kernel = fastest,
    ) -> None:
        super().__init__()
        if spec.rotation is not None and width // spec.heads % 2:
            raise ValueError(f"rotary position embeddings need heads of an even width, not {width // spec.heads}")
        self.spec = spec
        self.kernel = kernel
        self.qkv: Any = qkv
        if qkv is None:
            self.qkv = Linear(width, 3 * width, bias=biased)
            self.qkv.stacked = 3
        self.out = Linear(width, width, bias=biased)

    @torch.no_grad()
    def attend_at(self, offsets: Sequence[int]) -> None:
        """Initialize the first heads to attend to the tokens at these offsets, -1 being the previous token.

        With rotary positions by biases (`Rotation.biases`), otherwise by weights (`readers` in rotary.py).
        """
        width = self.out.in_features
        heads, rotation = self.spec.heads, self.spec.rotation
        size = width // heads
        for head, offset in zip(range(heads), offsets, strict=False):
            if rotation is not None:
                query, key, _ = self.qkv.bias.view(3, heads, size)  # (heads, head width) each
                query[head], key[head] = rotation.biases(offset, size)
                continue
            query, key, _ = self.qkv.weight.view(3, heads, size, width)  # (heads, head width, width) each
            for part, reader in zip((query[head], key[head]), readers(offset, size, width), strict=True):
                part[: len(reader)] = 0
                part[: len(reader), : len(reader)] = reader

    def forward(
        self, x: Tensor, tokens: Tokens, scores: list[Tensor] | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """Return the attention output of each token.

        Args:
            x: (tokens, width).
            tokens: offsets and groups of the sequences.
            scores: if given, the scores before the softmax are appended for each group of the batch; they are computed
                by the plain kernel, see `plain`.
            rows: if given, the tokens to return, (rows,) int64.

        Returns:
            (tokens or rows, width).
        """
        qkv = self.qkv(x)  # (tokens, 3 * width)
        spec = self.spec if self.training else replace(self.spec, dropout=0.0)
        attended = self.kernel(qkv, tokens, spec) if scores is None else plain(qkv, tokens, spec, scores)
        return self.out(select(attended, rows))


def select(x: Tensor, rows: Tensor | None) -> Tensor:
    """Return some rows of a matrix; None: all."""
    return x if rows is None else x.index_select(0, rows)


def set_kernel(body: Body, kernel: Kernel) -> Body:
    """Set the kernel of every self-attention inside a module, in place, and return the module."""
    for module in body.modules():
        if isinstance(module, SelfAttention):
            module.kernel = kernel
    return body
