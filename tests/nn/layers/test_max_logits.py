"""The largest logits of texts and their gradients, beside logits that are stored."""

import pytest
import torch

from unmask.nn.layers import vocabulary as module
from unmask.nn.layers.vocabulary import densely, max_logits


@pytest.mark.parametrize("chunk", [1, 200, 1 << 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_they_are_those_of_all_logits(chunk, dtype, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", {"cpu": chunk, "gpu": chunk})
    generator = torch.Generator().manual_seed(0)
    for lengths in ([5], [1, 1, 3], [2, 7, 4, 1, 9]):
        offsets = [0, *torch.tensor(lengths).cumsum(0).tolist()]
        tensors = [torch.randn(size, generator=generator) for size in ((offsets[-1], 6), (40, 6), (40,))]
        weights = torch.randn(len(lengths), 40, generator=generator)
        weights[weights < 0] = 0  # as where log(1 + ReLU) is 0
        exact = [tensor.to(dtype, copy=True).float().requires_grad_() for tensor in tensors]
        logits = exact[0] @ exact[1].T + exact[2]
        expected = torch.stack([part.amax(0) for part in logits.split(lengths)])
        (expected * weights).sum().backward()
        given = [tensor.to(dtype, copy=True).requires_grad_() for tensor in tensors]
        found = max_logits(*given, offsets)
        (found * weights).sum().backward()
        slack = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 0.1, "atol": 0.3}
        torch.testing.assert_close(found, expected, **slack)
        if dtype == torch.float32:
            for ours, theirs in zip(given, exact, strict=True):
                torch.testing.assert_close(ours.grad, theirs.grad, **slack)
            highest = [part.argmax(0) for part in logits.split(lengths)]
            rows = torch.stack(highest) + torch.tensor(offsets[:-1])[:, None]
            with torch.no_grad():
                on_gpu = densely(weights, rows.int(), *given[:2], offsets)
            for ours, theirs in zip(on_gpu, exact, strict=False):
                torch.testing.assert_close(ours, theirs.grad, **slack)
        with torch.no_grad():
            torch.testing.assert_close(max_logits(*given, offsets), found, rtol=0, atol=0)
