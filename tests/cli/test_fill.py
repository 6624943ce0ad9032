"""`unmask fill` as a user types it, with a tiny model and a published ALBERT; and user errors."""

import json

import pytest
import torch

from unmask.cli.main import main
from unmask.data.tokenizers.load import load_tokenizer

from .conftest import name_case, run_fork

REACTION = "C C ( = O ) [MASK] . O C C"
"""Acetic acid with a masked oxygen, and ethanol."""


def test_fill(line):
    texts = ["The [MASK] sees the [MASK].", "Ünï 😀 [MASK]"]
    output, errors = run_fork("fill", "--model", line / "run", *texts, "--top", 3, "--json")
    assert errors == ""
    fillings = [json.loads(text) for text in output.splitlines()]
    assert [one["text"] for one in fillings] == texts
    assert [[mask["position"] for mask in one["masks"]] for one in fillings] == [[4, 20], [6]]
    vocabulary = set((line / "run" / "model" / "vocab.txt").read_text().splitlines())
    for mask in (mask for one in fillings for mask in one["masks"]):
        probabilities = [candidate["probability"] for candidate in mask["candidates"]]
        assert len(probabilities) == 3
        assert probabilities == sorted(probabilities, reverse=True)
        assert 0 < sum(probabilities) < 1
        assert {candidate["piece"] for candidate in mask["candidates"]} <= vocabulary
    output, _ = run_fork("fill", "--model", line / "run", texts[0])
    assert output.startswith(f"{texts[0]}\n  at 4: ")


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
    assert [one["piece"] for one in mask["candidates"]] == tokenizer.tokens(best[0].tolist())
    assert [one["probability"] for one in mask["candidates"]] == pytest.approx(probabilities[0].tolist(), rel=1e-4)
    assert mask["candidates"][0]["token"] == "O"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fill", "--model", "{line}/run", "\udcff [MASK]"), "a lone surrogate"),
        (("fill", "--model", "{line}/tuned", "The [MASK]."), "no masked-LM head"),
        (("fill", "--model", "{line}/run", "No mask here."), "no mask in 'No mask here.'"),
        (("fill", "--model", "{line}/run", "The [MASK].", "--top", "0"), "--top 0: not a whole number of 1 or more"),
        (
            ("fill", "--model", "{line}/run", "dog " * 70 + "[MASK]"),
            "but the model reads at most 64; shorten it",
        ),
    ],
    ids=name_case,
)
def test_a_users_mistake_is_one_line_and_status_2(refused, arguments, message):
    refused(arguments, message)
