"""The masks of a published ALBERT, by the command."""

import json

import pytest
import torch

from unmask.cli.main import main
from unmask.tokenizers.load import load_tokenizer

REACTION = "C C ( = O ) [MASK] . O C C"
"""Acetic acid, of which an oxygen is hidden, and ethanol."""


@pytest.mark.shared
def test_a_trained_albert_fills_masks_as_in_transformers(shared, capsys):
    from transformers import AlbertForMaskedLM

    directory = shared / "checkpoints/albert-rxnmapper"
    assert main(["fill", "--model", str(directory), REACTION]) == 2
    assert "pickled weights can execute arbitrary code" in capsys.readouterr().err
    assert main(["fill", "--model", str(directory), "--allow-pickle", REACTION, "--top", "3", "--json"]) == 0
    filled = json.loads(capsys.readouterr().out)
    (mask,) = filled["masks"]
    assert mask["position"] == REACTION.index("[MASK]")
    tokenizer = load_tokenizer(directory)
    ids = torch.tensor([tokenizer.cls, *tokenizer.encode(REACTION).tolist(), tokenizer.sep])
    with torch.no_grad():
        logits = AlbertForMaskedLM.from_pretrained(directory).eval()(ids[None]).logits[0, ids == tokenizer.mask]
    probabilities, best = logits.softmax(1).topk(3)
    assert [one["piece"] for one in mask["candidates"]] == tokenizer.pieces(best[0].tolist())
    assert [one["probability"] for one in mask["candidates"]] == pytest.approx(probabilities[0].tolist(), rel=1e-4)
    assert mask["candidates"][0]["token"] == "O"
