"""An ELMo from raw text to every use: perplexity, features, frozen under small models, tuned whole."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import unmask
from unmask.model.model import load_model

from .conftest import run, sets

PAGE = Path(__file__).resolve().parents[2] / "docs/elmo.md"
TINY = [
    *("encoder.width=16", "encoder.cells=16", "encoder.characters=4", "encoder.filters=[[1,8],[3,24]]"),
    *("layout.streams=8", "batch.sequences=8", "budget.steps=60", "optimizer.learning_rate=2e-2"),
    *("objective.bidirectional_lm.vocabulary=30", "tokenizer.vocabulary=60"),
]
SENTENCES = ["The dog sees the river.", "A zebra waits ."]
"""The text has no zebra."""
MIX = ["downstream.layers=[0,1,2]", "downstream.combine=mix"]


@pytest.fixture(scope="module")
def here(tmp_path_factory, text_file):
    """A folder with an ELMo in `run`, and labeled files of texts and of entities."""
    folder = tmp_path_factory.mktemp("elmo")
    run("pretrain", "elmo-mini", "--text", text_file, *sets(TINY), "--out", folder / "run")
    rng = np.random.default_rng(0)
    rows, tagged = ["text\tlabel"], []
    for number in range(60):
        word, label = (("dog", "good"), ("cat", "bad"))[number % 2]
        words = [str(one) for one in rng.permutation([word, *rng.choice(["river", "house", "Town"], 3)])]
        rows.append(f"{' '.join(words)}\t{label}")
        tagged += [f"{one} {'B-X' if one == word else 'O'}" for one in words] + [""]
    (folder / "train.tsv").write_text("\n".join(rows))
    (folder / "train.conll").write_text("\n".join(tagged))
    return folder


def finetune(here, out, task, *settings, options=("--frozen",), file="train.tsv"):
    """Fine-tune by a command; return its scores on the data that it was trained on."""
    given = ["--model", here / "run", "--train", here / file, "--dev", here / file]
    run("finetune", task, *given, *options, *sets(["budget.steps=100", "dropout=0", *settings]), "--out", out)
    scores = json.loads((out / "dev.json").read_text())["metrics"]
    again = json.loads(run("evaluate", "--model", out, "--data", here / file, "--json").out)["metrics"]
    assert again == pytest.approx(scores, abs=0.5), "with the encoder itself instead of its stored features"
    return scores


@torch.no_grad()
def losses(model, documents):
    """Return the mean losses of both directions, word by word, in one stream that reads all documents."""
    body, head, tokenizer = model.encoder.eval(), model.heads["bidirectional_lm"], model.tokenizer
    ids = [[tokenizer.cls, *tokenizer.closed.encode(sentence), tokenizer.sep] for sentence in documents]
    found = []
    for texts, lm in ((ids, body.forward_lm), ([text[::-1] for text in ids[::-1]], body.backward_lm)):
        inputs = np.concatenate([text[:-1] for text in texts])
        gold = torch.tensor(np.concatenate([text[1:] for text in texts])).clamp(max=len(head["bias"]) - 1)
        y = body.characters(torch.from_numpy(tokenizer.spell(inputs)).long())
        for number, layer in enumerate(lm):
            out, _ = layer(y, [1] * len(y), layer.start(1))
            y = out + y if number else out
        logits = torch.nn.functional.linear(y, head["decoder"], head["bias"])
        found.append(torch.nn.functional.cross_entropy(logits, gold.long()).item())
    return found


def test_perplexity_of_text_in_both_directions(here, tmp_path):
    (tmp_path / "text.txt").write_text("The dog sees the river. A zebra waits near the sea.")
    output = json.loads(run("evaluate", "--model", here / "run", "--data", tmp_path / "text.txt", "--json").out)
    metrics = output["metrics"]
    expected = losses(load_model(here / "run"), ["The dog sees the river.", "A zebra waits near the sea."])
    for name, loss in zip(("forward", "backward"), expected, strict=True):
        assert metrics[f"bidirectional_lm_{name}"] == pytest.approx(loss, abs=1e-4)
        assert metrics[f"bidirectional_lm_{name}_perplexity"] == pytest.approx(math.exp(loss), rel=1e-4)
    assert metrics["bidirectional_lm_loss"] == pytest.approx(sum(expected) / 2, abs=1e-4)


def test_nearly_all_of_a_longer_text_is_read(here, text_file, documents):
    output = run("evaluate", "--model", here / "run", "--data", text_file, "--json").out
    result = json.loads(output)["metrics"]
    assert 1 < result["bidirectional_lm_forward_perplexity"] < 25, "it has learned something"
    assert result["bidirectional_lm_accuracy"] > 0.1


def test_features_of_all_layers(here, tmp_path):
    model = unmask.load(here / "run", device="cpu")
    found = model.features(SENTENCES, layers=[0, 1, 2])
    assert found.values.shape == (2 * 2 + 6 + 4, 3, 16)
    assert torch.equal(found.values[:, 0, :8], found.values[:, 0, 8:]), "the vectors of words, once per direction"
    assert not torch.equal(found.values[1, 1, :8], found.values[1, 1, 8:])
    other = model.features(["The dog sees the cat."], layers=[0, 1, 2]).values
    same = torch.isclose(other[2], found.values[2], atol=1e-6).view(3, 2, 8).all(2)  # dog: layers, directions
    assert same.tolist() == [[True, True], [True, False], [True, False]], "backwards it depends on what follows"
    (tmp_path / "texts.txt").write_text("\n".join(SENTENCES) + "\n")
    given = ["--data", tmp_path / "texts.txt", "--layers=0,1,2", "--out", tmp_path / "out"]
    run("features", "--model", here / "run", *given)
    torch.testing.assert_close(load_file(tmp_path / "out/features.safetensors")["values"], found.values)


def test_the_example_of_the_page(here, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-elmo").symlink_to(here / "run")
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf8"), re.DOTALL)
    names = {}
    exec(compile(block, PAGE.name, "exec"), names)
    texts, positions = names["texts"], names["positions"]
    tokens = [token for text in texts for token in ["<S>", *text.split(), "</S>"]]
    assert [tokens[position] for position in positions] == ["bank", "bank"]
    same, *differences = (names["first"] - names["second"]).norm(dim=1).tolist()
    assert same == pytest.approx(0, abs=1e-6) and min(differences) > 0.01


def test_a_word_that_the_vocabulary_lacks_is_read_by_its_characters(here):
    model = unmask.load(here / "run", device="cpu")
    zebra, dog, again = (model.features([f"A {word} waits."], [0]).values[2] for word in ("zebra", "dog", "zebra"))
    assert torch.equal(zebra, again) and not torch.allclose(zebra, dog, atol=1e-3)


@pytest.mark.parametrize(
    ("kind", "layers"),
    [("linear", []), pytest.param("linear", MIX, marks=pytest.mark.exhaustive), ("average", MIX), ("rnn", MIX)],
)
def test_frozen_under_a_classifier(here, tmp_path, kind, layers):
    more = ["downstream.width=16", "optimizer.learning_rate=3e-2"] if kind == "rnn" else ["optimizer.learning_rate=0.1"]
    options = ("--frozen", "--downstream", kind)
    assert finetune(here, tmp_path / "out", "classification", *layers, *more, options=options)["accuracy"] > 65
    tuned, given = (load_model(run) for run in (tmp_path / "out", here / "run"))
    for name, value in given.encoder.state_dict().items():
        assert torch.equal(value, tuned.encoder.state_dict()[name])
    if layers:
        weights = tuned.heads["downstream"]
        assert weights["mix.weights"].any() and weights["mix.gamma"] != 1, "both are trained"


def test_static_vectors_of_words(here, tmp_path):
    settings = ["downstream.layers=[0]", "optimizer.learning_rate=0.1"]
    options = ("--frozen", "--downstream", "average")
    assert finetune(here, tmp_path / "out", "classification", *settings, options=options)["accuracy"] > 65


def test_an_lstm_finds_entities_over_the_frozen_model(here, tmp_path):
    settings = [*MIX, "downstream.width=16", "optimizer.learning_rate=3e-2"]
    given = {"options": ("--frozen", "--downstream", "rnn"), "file": "train.conll"}
    assert finetune(here, tmp_path / "out", "token-classification", *settings, **given)["f1"] > 85
    assert [one.text for one in unmask.load(tmp_path / "out").tag("river dog house").entities] == ["dog"]


@pytest.mark.parametrize(
    ("task", "file", "metric"),
    [
        ("classification", "train.tsv", "accuracy"),
        ("token-classification", "train.conll", "f1"),
    ],
)
def test_all_parameters_are_tuned(here, tmp_path, task, file, metric):
    settings = ["optimizer.learning_rate=1e-2", "budget.steps=40"]
    assert finetune(here, tmp_path / "out", task, *settings, options=(), file=file)[metric] > 85
    tuned, given = load_model(tmp_path / "out"), load_model(here / "run")
    for name, value in given.encoder.state_dict().items():
        assert not torch.equal(value, tuned.encoder.state_dict()[name]), name


def test_words_that_are_cut_are_counted(here, tmp_path):
    longer = "a" * 60
    (tmp_path / "train.tsv").write_text((here / "train.tsv").read_text() + f"\nthe {longer}\tgood\n")
    given = ["--model", here / "run", "--train", tmp_path / "train.tsv", *sets(["budget.steps=1"])]
    output = run("finetune", "classification", *given, "--out", tmp_path / "out")
    assert "1 word longer than 48 bytes, of which no more are read" in output.err
    with pytest.warns(unmask.InputWarning, match="1 word longer than 48 bytes"):
        unmask.load(tmp_path / "out").predict([longer])


def test_empty_and_invalid_words_are_refused(here, tmp_path):
    tagged = {"empty.jsonl": '{"words": ["a", ""], "tags": ["O", "O"]}\n', "bad.conll": b"\xff\xfe O\n"}
    for name, content in tagged.items():
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        error = run(
            "finetune",
            "token-classification",
            "--model",
            here / "run",
            "--train",
            path,
            "--out",
            tmp_path / "x",
            status=2,
        ).err
        assert name in error and len(error.splitlines()) == 1
    with pytest.raises(unmask.UserError, match="surrogate"):
        unmask.load(here / "run").features(["\udcff"])
