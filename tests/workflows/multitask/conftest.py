"""Examples of three small tasks, an encoder that learns them, and a finished run."""

import numpy as np
import pytest
import torch

import unmask
from unmask.families.bert import BertSettings
from unmask.model.model import Model, save_model

HERE = {"device": "cpu", "precision": "float32", "quiet": True}
SHAPE = BertSettings(layers=2, width=32, heads=2, feed_forward=64, positions=64, init_std=0.2)
OTHERS = ("river", "house", "teacher", "market", "garden")


@pytest.fixture(scope="session")
def tables(tmp_path_factory):
    """Three tasks: the label of a text, its tags, and a number."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("tasks")
    labels, tags, numbers = ["text\tlabel"], [], ["text\tlabel"]
    for number in range(90):
        words = [("dog", "cat")[number % 2], *rng.choice(OTHERS, rng.integers(2, 7))]
        words = list(rng.permutation(words))
        labels.append(f"{' '.join(words)}\t{('good', 'bad')[number % 2]}")
        tags += [*(f"{word} {'B-X' if word in ('dog', 'cat') else 'O'}" for word in words), ""]
        numbers.append(f"{' '.join(words)}\t{len(words)}")
    (folder / "labels.tsv").write_text("\n".join(labels[:61]))
    (folder / "tags.conll").write_text("\n".join(tags))
    (folder / "numbers.tsv").write_text("\n".join(numbers[:31]))
    return {
        "mood": {"task": "classification", "train": str(folder / "labels.tsv"), "settings": {"length": 24}},
        "names": {"task": "token-classification", "train": [str(folder / "tags.conll")], "settings": {"length": 32}},
        "size": {
            "task": "regression",
            "train": [folder / "numbers.tsv"],
            "dev": [folder / "numbers.tsv"],
            "settings": {"length": 24},
        },
    }


@pytest.fixture(scope="session")
def start(tmp_path_factory, tokenizer):
    """An encoder whose random weights are large enough to distinguish words."""
    path = tmp_path_factory.mktemp("start")
    torch.manual_seed(0)
    save_model(path, Model(SHAPE.build(tokenizer.size), tokenizer), "")
    return path


@pytest.fixture(scope="module")
def run(start, tables, tmp_path_factory):
    """A run on all three tasks."""
    out = tmp_path_factory.mktemp("run") / "out"
    unmask.multitask(tables, start, out, settings={"budget.steps": 60, "optimizer.learning_rate": 5e-3}, **HERE)
    return out
