"""Fast attention kernels: `fused` for CPUs, `varlen` and `padded` for GPUs; without gradient on CPUs, `for_inference`.

**On CPUs** attention is computed in panels (support/panels.py) where these are, without padding. Elsewhere, and if the
batch contains padding, it is two batched products with a softmax in between, as one autograd function: torch's fused
kernel for CPUs has no dropout, and a slow backward pass except for long sequences in float32, which it computes.
Sequences are padded to the longest one of their `Group`, or short ones are put into common rows, in which tokens attend
to those of their own sequence: a padding position reads an arbitrary token, is attended to with probability 0, and its
output is discarded. Heads are computed in chunks, so that their probabilities stay in the cache; those of long
sequences are not saved for the backward pass but recomputed. With a window, only keys in reach are read
(score_blocks.py). Queries and keys, and their gradients, are rotated in the group's copy by heads.

**On GPUs** it is torch's variable-length FlashAttention (Dao 2023), which needs no padding. torch's public function for
it does not support dropout, so the underlying operator is called. It runs on newer GPUs only, in 16 bits; and it is
private, so that a version of torch may lack it. Otherwise sequences are padded to the longest one of their `Group` for
the public `scaled_dot_product_attention`, which has kernels for all GPUs. Where there is Triton, queries and keys are
rotated by a kernel of its own (rotary_kernel.py).

**On CPUs without gradient** it is, where it is not computed in panels, torch's fused kernel, which reads queries, keys
and values where they are, and writes no scores; only its backward pass is slow. Sequences are padded to the longest one
of their `Group`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from unmask.nn.layers.dropout import draw, keep
from unmask.nn.layers.plain_attention import AttentionSpec, attended_positions, by_heads
from unmask.nn.layers.score_blocks import choose, pays, to_bias
from unmask.support import gpus, panels
from unmask.support.capabilities import panels_multiply

if TYPE_CHECKING:
    from unmask.data.batches.groups import Group
    from unmask.data.batches.tokens import Tokens
    from unmask.nn.layers.rotary import Rotation

FEW_SCORES = 2**18
"""Maximum number of attention scores that are computed in float32: bf16 products would need a new kernel for nearly
every batch, as numbers of sequences and their lengths vary, which takes longer than so few scores."""
WIDEST = 256
"""Width of the widest heads that FlashAttention takes."""
ALIGNMENT = 16
"""Number of which the lengths of a mask's rows in memory are multiples."""
LONG = 1024
"""Minimum sequence length at which probabilities are recomputed in the backward pass, by torch's kernel if it can."""
EXACT = (torch.float32, torch.float64)
"""Types in which torch's kernel for long sequences is faster."""
REGISTER = 32
"""bf16 numbers in a register. torch's bf16 softmax backward is slow for rows shorter than this: float32 is used."""
MANY_REGISTERS = 128
"""torch's bf16 softmax forward is slow for shorter rows that leave a register partly empty: float32 is used."""


def fused(qkv: Tensor, tokens: Tokens, spec: AttentionSpec) -> Tensor:
    """Compute attention; see `Kernel`. Biases are not supported."""
    assert spec.bias is None
    if fits_panels(qkv, qkv.shape[1] // 3, tokens, spec):
        return _InPanels.apply(qkv.contiguous(), for_panels(qkv.shape[1] // 3, tokens, spec))  # type: ignore[no-untyped-call]
    groups = tokens.groups if pays(spec.window, tokens.attention_groups[-1].longest) else tokens.attention_groups
    output: Tensor = _Attention.apply(qkv, groups, spec)  # type: ignore[no-untyped-call]
    return output


class _Attention(torch.autograd.Function):
    """softmax(query key^T / sqrt(width)) value, with dropout on the probabilities.

    Shape:
        qkv: (tokens, 3 * width), the concatenated query, key and value of each token, each for all heads; returns
        (tokens, width).
    """

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, groups: tuple[Group, ...], spec: AttentionSpec) -> Tensor:
        heads, dropout = spec.heads, spec.dropout
        ctx.groups, ctx.spec, ctx.seed = groups, spec, draw() if dropout else 0
        out = _stream(qkv, qkv.shape[1] // 3, groups)
        saved: list[Tensor | None] = []
        learning = ctx.needs_input_grad[0]
        for number, group in enumerate(groups):
            inputs = _to_heads(qkv, group, heads, 3, copy=spec.rotation is not None)  # (3, rows, longest, head width)
            if inputs.dtype == torch.bfloat16 and inputs.shape[1] * group.longest**2 <= FEW_SCORES:
                inputs = inputs.float()
            if spec.rotation is not None:
                _rotate(inputs[:2], spec.rotation)
            saved += [inputs] if learning else []
            if _is_for_torch(group, spec, inputs):
                output, sums = _forward(inputs, group, spec)
                saved += [output, sums] if learning else []
                _from_heads(output[None], group, heads, out)
                continue
            blocks = choose(group, spec, inputs)
            inputs = blocks.pad(inputs)
            output = torch.empty_like(inputs[0])
            for part in blocks.parts():
                key, value = (blocks.keys(x, part) for x in inputs[1:])
                scores = blocks.scores(blocks.queries(inputs[0], part), key, part)
                probabilities = blocks.silence(softmax(scores), part)
                mask = _kept(probabilities, dropout, ctx.seed, number, part)
                dropped = probabilities if mask is None else probabilities * mask
                torch.bmm(dropped, value, out=blocks.queries(output, part))
                if learning and group.longest < LONG:
                    saved += (probabilities, mask)
            _from_heads(blocks.strip(output).mul_(1 / (1 - dropout))[None], group, heads, out)
        ctx.save_for_backward(*saved)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad_out,), spec = grads, ctx.spec
        heads, dropout = spec.heads, spec.dropout
        saved = iter(ctx.saved_tensors)
        grad_qkv = _stream(grad_out, 3 * grad_out.shape[1], ctx.groups)
        for number, group in enumerate(ctx.groups):
            inputs = next(saved)
            grad = _to_heads(grad_out, group, heads, 1)[0].to(inputs.dtype) * (1 / (1 - dropout))
            if group.real is not None:  # the outputs at padding were discarded
                grad.view(group.sequences, heads, *grad.shape[1:]).mul_(group.real[:, None, :, None])
            if _is_for_torch(group, spec, inputs):
                sums = _backward(grad, inputs, (next(saved), next(saved)), group, spec)
            else:
                sums = _backward_in_parts(grad, inputs, saved, group, spec, (ctx.seed, number))
            if spec.rotation is not None:
                _rotate(sums[:2], spec.rotation, back=True)
            _from_heads(sums, group, heads, grad_qkv)
        return grad_qkv, None, None


def _is_for_torch(group: Group, spec: AttentionSpec, inputs: Tensor) -> bool:
    """Return whether torch's fused kernel computes a group, also its gradient: one that is long, not in 16 bits."""
    plain = not (spec.dropout or spec.is_local(group.longest) or group.owner is not None or group.keys is not None)
    return plain and group.longest >= LONG and inputs.dtype in EXACT and None not in _torch_kernels()


def _torch_kernels() -> tuple[Any, Any]:
    """Return torch's private fused kernel and its backward pass, each None if this version lacks it."""
    name = "_scaled_dot_product_flash_attention_for_cpu"
    return getattr(torch.ops.aten, name, None), getattr(torch.ops.aten, f"{name}_backward", None)


def _forward(inputs: Tensor, group: Group, spec: AttentionSpec) -> tuple[Tensor, Tensor]:
    """Return the output, (sequences, heads, longest, head width), and the logarithm of each query's sum."""
    by_sequence = inputs.view(3, group.sequences, spec.heads, *inputs.shape[2:])
    output, sums = _torch_kernels()[0](*by_sequence, 0.0, spec.causal, attn_mask=_bias(group, spec, inputs))
    return output, sums


def _backward(
    grad: Tensor, inputs: Tensor, results: tuple[Tensor, Tensor], group: Group, spec: AttentionSpec
) -> Tensor:
    """Return the gradient of the inputs, (3, rows, longest, head width), given that of the output and the results."""
    by_sequence = (x.view(group.sequences, spec.heads, *x.shape[1:]) for x in (grad, *inputs))
    bias = _bias(group, spec, inputs)
    grads = _torch_kernels()[1](*by_sequence, *results, 0.0, spec.causal, attn_mask=bias)
    return torch.stack(grads).flatten(1, 2)


def _backward_in_parts(
    grad: Tensor, inputs: Tensor, saved: Iterator[Any], group: Group, spec: AttentionSpec, key: tuple[int, int]
) -> Tensor:
    """Return the same part by part, given the saved probabilities and masks, which those of long sequences lack.

    `key` are the seed of dropout and the number of the group.
    """
    blocks = choose(group, spec, inputs)
    inputs, grad = blocks.pad(inputs), blocks.pad(grad)
    sums = blocks.sums_like(inputs)
    for part in blocks.parts():
        query, out = blocks.queries(inputs[0], part), blocks.queries(grad, part)
        keys, values = (blocks.keys(x, part) for x in inputs[1:])
        if group.longest < LONG:
            probabilities, mask = next(saved), next(saved)
        else:
            probabilities = blocks.silence(softmax(blocks.scores(query, keys, part)), part)
            mask = _kept(probabilities, spec.dropout, *key, part)
        dropped = probabilities if mask is None else probabilities * mask
        blocks.add_product(sums[2], part, dropped.transpose(1, 2), out)
        scores = torch.bmm(out, values.transpose(1, 2))
        scores = softmax_backward(scores if mask is None else scores.mul_(mask), probabilities)
        torch.bmm(scores, keys, out=blocks.queries(sums[0], part))
        blocks.add_product(sums[1], part, scores.transpose(1, 2), query)
    sums = blocks.strip(sums)
    sums[:2].mul_(inputs.shape[-1] ** -0.5)
    return sums


def _bias(group: Group, spec: AttentionSpec, like: Tensor) -> Tensor | None:
    """Return the bias of the scores at padding; if attention is causal, padding comes after all real tokens."""
    return None if group.real is None or spec.causal else to_bias(group.real, like)[:, None, None]


def _stream(like: Tensor, width: int, groups: tuple[Group, ...]) -> Tensor:
    """Return a new stream, (rows, width), for `_from_heads` to write to; its rows beyond the tokens are 0."""
    stream = like.new_empty(len(like), width)
    stream[groups[-1].stop :] = 0
    return stream


def _to_heads(stream: Tensor, group: Group, heads: int, parts: int, *, copy: bool = False) -> Tensor:
    """Return a group's tokens by heads: (tokens, parts * width) to (parts, sequences * heads, longest, head width).

    Unless `copy` is set the result may be a view of the stream, as for one sequence or one head.
    """
    rows = stream[group.start : group.stop] if group.slots is None else stream.index_select(0, group.slots)
    x = rows.view(group.sequences, group.longest, parts, heads, -1).permute(2, 0, 3, 1, 4)
    if copy:
        x = x.clone(memory_format=torch.contiguous_format)
    return x.reshape(parts, group.sequences * heads, group.longest, -1)


def _from_heads(x: Tensor, group: Group, heads: int, stream: Tensor) -> None:
    """Write a group's tokens back into the stream: the inverse of `_to_heads`."""
    parts = len(x)
    x = x.view(parts, group.sequences, heads, group.longest, -1).permute(1, 3, 0, 2, 4)
    rows = x.reshape(group.sequences * group.longest, -1)
    stream[group.start : group.stop] = rows if group.index is None else rows.index_select(0, group.index)


def _rotate(x: Tensor, rotation: Rotation, back: bool = False) -> None:
    """Rotate a group's queries and keys, or with `back` their gradients, in place, (2, rows, longest, head width)."""
    cos, sin = rotation.tables(x.shape[2], x.shape[3], x)
    rotation.rotate_(x, cos, -sin if back else sin)


def softmax(scores: Tensor) -> Tensor:
    """Return the attention probabilities of masked scores, (batch, queries, keys)."""
    if scores.dtype == torch.bfloat16 and scores.shape[-1] < MANY_REGISTERS and scores.shape[-1] % REGISTER:
        return scores.softmax(-1, dtype=torch.float32).bfloat16()
    return scores.softmax(-1)


def softmax_backward(grad: Tensor, probabilities: Tensor) -> Tensor:
    """Return the gradient of the scores, given the gradient of their softmax `probabilities`."""
    backward = getattr(torch.ops.aten, "_softmax_backward_data", _public_softmax_backward)
    if grad.dtype == torch.bfloat16 and grad.shape[-1] < REGISTER:
        return backward(grad.float(), probabilities.float(), -1, torch.float32).bfloat16()
    return backward(grad, probabilities, -1, probabilities.dtype)


def _public_softmax_backward(grad: Tensor, probabilities: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """Compute the same as torch's private operator, which uses float32 for bf16."""
    wide = torch.promote_types(dtype, torch.float32)
    products = grad.to(wide) * probabilities.to(wide)
    return products.addcmul_(probabilities.to(wide), products.sum(dim, keepdim=True), value=-1).to(dtype)


def _kept(probabilities: Tensor, rate: float, seed: int, group: int, part: slice) -> Tensor | None:
    """Return the dropout mask of a chunk's probabilities, which is the same at each call; None without dropout."""
    if not rate:
        return None
    return keep(probabilities.shape, rate, probabilities.dtype, (seed, group, part.start), probabilities.device)


def varlen(qkv: Tensor, tokens: Tokens, spec: AttentionSpec) -> Tensor:
    """Compute attention; see `Kernel` and `flash_supports`. Biases and padding in the stream are not supported."""
    assert spec.bias is None
    longest = _longest(tokens)
    query, key, value = _split(qkv, tokens, spec, tokens.position_ids)
    output, *_ = _flash()(
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


def padded(qkv: Tensor, tokens: Tokens, spec: AttentionSpec) -> Tensor:
    """Compute attention; see `Kernel`. Biases are not supported.

    The groups differ in their products alone: tokens are moved into the slots of all groups at once, and back.
    """
    assert spec.bias is None
    slots, index = tokens.once("slots", lambda: _slots(tokens.groups, qkv.device))
    positions = tokens.position_ids
    if slots is not None and index is not None:
        qkv = _ToSlots.apply(qkv, slots, index)  # type: ignore[no-untyped-call]
        positions = tokens.once("positions", lambda: tokens.position_ids.index_select(0, slots))
    masks = tokens.once(
        ("masks", spec.causal, spec.window, qkv.dtype), lambda: [_mask(group, spec, qkv) for group in tokens.groups]
    )
    parts = _split(qkv, tokens, spec, positions)
    sizes = [group.sequences * group.longest for group in tokens.groups]
    outputs = []
    by_group = [torch.split(part, sizes) if len(sizes) > 1 else (part,) for part in parts]
    for group, mask, *rows in zip(tokens.groups, masks, *by_group, strict=True):
        shape = group.sequences, group.longest, *parts[0].shape[1:]
        query, key, value = (part.reshape(shape).transpose(1, 2) for part in rows)  # (sequences, heads, longest, width)
        output = scaled_dot_product_attention(query, key, value, mask, spec.dropout)
        outputs.append(output.transpose(1, 2).flatten(0, 1).flatten(1))
    stream = torch.cat(outputs) if len(outputs) > 1 else outputs[0]  # (slots, width)
    return stream if index is None else _FromSlots.apply(stream, index)  # type: ignore[no-untyped-call]


def flash_supports(qkv: Tensor, heads: int) -> bool:
    """Return whether torch's FlashAttention computes with queries, keys and values, (tokens, 3 * width), on a GPU."""
    width = qkv.shape[1] // (3 * heads)
    fits = qkv.dtype in (torch.bfloat16, torch.float16) and width % 8 == 0 and width <= WIDEST
    return fits and _flash() is not None and gpus.describe(qkv.device).flash


def _longest(tokens: Tokens) -> int:
    """Return the length of the longest sequence."""
    return max(group.longest for group in tokens.groups)


def _split(qkv: Tensor, tokens: Tokens, spec: AttentionSpec, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values, rotated, (rows, heads, head width) each, given the position of each row."""
    if spec.rotation is None:
        query, key, value = qkv.view(len(qkv), 3, spec.heads, -1).unbind(1)
        return query, key, value
    width = qkv.shape[1] // (3 * spec.heads)
    tables = spec.rotation.tables(_longest(tokens), width, qkv)
    if gpus.has_triton(qkv.device):
        from unmask.nn.layers import rotary_kernel

        return rotary_kernel.split_rotated(qkv, spec.heads, spec.rotation, tables, positions)
    cos, sin = tokens.once(
        ("angles", spec.rotation, width, qkv.dtype, len(positions)),  # those of the tokens or of slots
        lambda: tuple(table.index_select(0, positions) for table in tables),
    )
    return split_rotated(qkv, spec.heads, spec.rotation, cos, sin)


def split_rotated(
    qkv: Tensor, heads: int, rotation: Rotation, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values of each head, of which queries and keys are rotated.

    Args:
        qkv: queries, keys and values, (tokens, 3 * width).
        heads: number of heads.
        rotation: the rotation.
        cos, sin: cosine and sine of each token's angles, (tokens, head width / 2).

    Returns:
        Three tensors (tokens, heads, head width).
    """
    split: tuple[Tensor, Tensor, Tensor] = _SplitRotated.apply(qkv, heads, rotation, cos, sin)  # type: ignore[no-untyped-call]
    return split


class _SplitRotated(torch.autograd.Function):
    """A rotation is linear, and its transpose rotates back, so that nothing but the angles is saved."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, heads: int, rotation: Rotation, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(cos, sin)
        ctx.rotation = rotation
        x = qkv.clone().view(len(qkv), 3, heads, -1)  # (tokens, 3, heads, head width)
        rotation.rotate_(x[:, :2], cos[:, None, None], sin[:, None, None])
        return x.unbind(1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (cos, sin), x = ctx.saved_tensors, torch.stack(grads, 1)  # (tokens, 3, heads, head width)
        ctx.rotation.rotate_(x[:, :2], cos[:, None, None], -sin[:, None, None])
        return x.view(len(x), -1), None, None, None, None


def _flash() -> Any:
    """Return torch's operator, or None if this version lacks it."""
    return getattr(torch.ops.aten, "_flash_attention_forward", None)


def _slots(groups: tuple[Group, ...], device: torch.device) -> tuple[Tensor | None, Tensor | None]:
    """Return the token in each slot of all groups, (slots,), and the slot of each token, (tokens,); None: the same."""
    if all(group.index is None for group in groups):
        return None, None
    slots, index, start = [], [], 0
    for group in groups:
        everything = torch.arange(group.stop - group.start, device=device)
        slots.append(everything + group.start if group.slots is None else group.slots)
        index.append((everything if group.index is None else group.index) + start)
        start += group.sequences * group.longest
    return torch.cat(slots), torch.cat(index)


class _ToSlots(torch.autograd.Function):
    """Padding, whose outputs are discarded and which is not attended to, has no gradient: none has to be summed."""

    @staticmethod
    def forward(ctx: Any, stream: Tensor, slots: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        return stream.index_select(0, slots)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return grads[0].index_select(0, *ctx.saved_tensors), None, None


class _FromSlots(torch.autograd.Function):
    """The inverse of `_ToSlots`."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.slots = len(rows)
        return rows.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (index,), (grad,) = ctx.saved_tensors, grads
        return grad.new_zeros(ctx.slots, grad.shape[1]).index_copy_(0, index, grad), None


def _mask(group: Group, spec: AttentionSpec, like: Tensor) -> Tensor | None:
    """Return what is added to the scores, broadcastable to (sequences, heads, longest, longest): 0 or -inf.

    Rows begin at multiples of `ALIGNMENT` numbers: torch's kernels would copy the mask in each layer otherwise.
    """
    attended = attended_positions(group, spec, like.device)
    if attended is None:
        return None
    if group.real is not None and spec.limited:
        attended = attended | ~group.real[:, None, :, None]  # torch returns NaN for tokens that attend to nothing
    *outer, longest = attended.shape
    mask = like.new_zeros(*outer, -(-longest // ALIGNMENT) * ALIGNMENT)[..., :longest]
    return mask.masked_fill_(~attended, -math.inf)


def for_inference(qkv: Tensor, tokens: Tokens, spec: AttentionSpec) -> Tensor:
    """Compute attention; see `Kernel` and `is_supported`."""
    width = qkv.shape[1] // 3
    if fits_panels(qkv, width, tokens, spec):
        return panels.attend(qkv, for_panels(width, tokens, spec))
    first = tokens.groups[0]
    if first.index is None and first.stop == len(qkv):  # all tokens, such as those of a text alone
        return _attended(qkv, first, spec)
    stream = qkv.new_empty(len(qkv), qkv.shape[1] // 3)
    for group in tokens.groups:
        rows, target = _attended(qkv, group, spec), stream[group.start : group.stop]
        if group.index is None:
            target.copy_(rows)
        else:
            torch.index_select(rows, 0, group.index, out=target)
    stream[tokens.groups[-1].stop :] = 0
    return stream


def fits_panels(like: Tensor, width: int, tokens: Tokens, spec: AttentionSpec) -> bool:
    """Return whether attention is computed in panels: of real tokens on a CPU, with heads of full panels.

    Args:
        like: a tensor with the dtype and device of queries, keys and values.
        width: that of all heads.
        tokens, spec: as for `Kernel`.
    """
    heads_fit = like.is_cpu and like.dtype in panels.COLUMNS and not width % (spec.heads * panels.WIDE)
    if not heads_fit or spec.bias is not None or spec.terms != 1 or not panels_multiply(like.dtype):
        return False
    return not any(group.masked for group in tokens.groups)


def for_panels(width: int, tokens: Tokens, spec: AttentionSpec) -> panels.Attention:
    """Return what panels.py is told of an attention; draw the seed of its dropout."""
    tables, rotation = None, spec.rotation
    if rotation is not None:
        tables = rotation.tables(_longest(tokens), width // spec.heads, torch.empty(0, dtype=torch.float32))
    return panels.Attention(
        tokens.offsets,
        spec.heads,
        tables,
        adjacent=rotation is not None and rotation.interleaved,
        before=spec.window,
        after=0 if spec.causal else spec.window,
        dropout=spec.dropout,
        seed=draw() if spec.dropout else 0,
    )


class _InPanels(torch.autograd.Function):
    """The same as `_Attention` by panels.py, which computes probabilities and dropout again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, attention: panels.Attention) -> Tensor:
        sums = qkv.new_empty(len(qkv), attention.heads, 2, dtype=torch.float32)
        y = panels.attend(qkv, attention, sums)
        ctx.attention = attention
        ctx.save_for_backward(qkv, y, sums)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        qkv, y, sums = ctx.saved_tensors
        return panels.attend_back(grads[0], qkv, y, ctx.attention, sums), None


def _attended(qkv: Tensor, group: Group, spec: AttentionSpec) -> Tensor:
    """Return the outputs of a group's sequences with their padding, (sequences * longest, width)."""
    local, mask = spec.is_local(group.longest), None
    if local:
        mask = attended_positions(group, spec, qkv.device)
    elif not spec.causal and group.attended is not None:  # if causal, padding comes after all real tokens
        mask = group.attended[:, None, None, :]
    heads = by_heads(qkv, group, spec)  # each (sequences, heads, longest, head width)
    output = scaled_dot_product_attention(*heads, attn_mask=mask, is_causal=spec.causal and not local)
    return output.transpose(1, 2).reshape(group.sequences * group.longest, -1)


def is_supported(groups: tuple[Group, ...], spec: AttentionSpec) -> bool:
    """Return whether `for_inference` supports the parameters: no dropout, no bias, and no window that saves much."""
    return _is_plain(spec) and not any(pays(spec.window, group.longest) for group in groups)


def _is_plain(spec: AttentionSpec) -> bool:
    return not spec.dropout and spec.bias is None and spec.terms == 1
