"""Texts longer than a window are classified by memory: what tells their class is more than a window before [CLS]."""

import numpy as np
import pytest
import torch

import unmask
from unmask.families.xlnet import XlnetSettings
from unmask.model.model import Model, save_model
from unmask.nn.encoders.two_streams import TwoStreams

WORDS = "dog cat river house teacher engine market letter garden window".split()  # noqa: SIM905
WINDOW, LONG = 24, 40


def texts(seed, number):
    """Return labeled texts of which the first words are often that of their class."""
    rng, lines = np.random.default_rng(seed), ["text\tlabel"]
    for index in range(number):
        label = ("poem", "bridge")[index % 2]
        words = rng.choice(WORDS, rng.integers(LONG - 5, LONG + 5))
        words[rng.choice(10, 5, replace=False)] = label
        lines.append(f"{' '.join(words)}\t{label}")
    return "\n".join(lines)


def accuracy_of(tmp_path, tokenizer, steps):
    torch.manual_seed(0)
    shape = {"layers": 2, "width": 32, "heads": 2, "feed_forward": 64, "dropout": 0.0, "init_std": 0.1}
    body = XlnetSettings(**shape, window=WINDOW, memory=24).build(tokenizer.size)
    save_model(tmp_path / "model", Model(body, tokenizer, {}), "card")
    files = {}
    for seed, name in enumerate(("train", "dev")):
        files[name] = tmp_path / f"{name}.tsv"
        files[name].write_text(texts(seed, (64, 24)[seed]))
    run = unmask.finetune(
        "classification",
        tmp_path / "model",
        train=[files["train"]],
        dev=[files["dev"]],
        out=tmp_path / "run",
        settings={
            "task.length": 128,
            "batch.sequences": 8,
            "budget.steps": steps,
            "optimizer.learning_rate": 3e-3,
            "schedule.kind": "constant",
        },
    )
    model = unmask.load(run)
    rows = [line.split("\t") for line in files["dev"].read_text().splitlines()[1:]]
    for text, label in rows:
        ids = model.model.tokenizer.encode(text)
        last = max(at for at, id in enumerate(ids) if model.model.tokenizer.token(id) == label)
        assert len(ids) + 1 - last > WINDOW
    return np.mean(
        [one.label == label for one, (_, label) in zip(model.predict([text for text, _ in rows]), rows, strict=True)]
    )


@pytest.mark.slow
def test_with_memory_the_class_is_learned(tmp_path, tokenizer):
    assert accuracy_of(tmp_path, tokenizer, 60) == 1


@pytest.mark.slow
def test_without_memory_it_is_a_guess(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(
        TwoStreams, "_remember", lambda self, tokens, entered, carry: self.start(len(tokens.offsets) - 1)
    )
    assert 0.25 < accuracy_of(tmp_path, tokenizer, 15) < 0.75
