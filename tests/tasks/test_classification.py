"""Labels, truncation and the training of a classifier."""

import json
import tomllib

import msgspec
import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from unmask.data.batches.batch import collate
from unmask.data.labelled.labelled_file import Row
from unmask.families.bert import BertSettings
from unmask.inference.load import load
from unmask.model.model import load_model
from unmask.objectives.learner import Learner
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides, write
from unmask.tasks.classification import Classification, Prediction
from unmask.tasks.mistakes import worst_first
from unmask.training.machine import Machine
from unmask.workflows.finetuning.finetune import finetune

from .conftest import hold_out

TASK = Classification()
CPU = Machine(torch.device("cpu"), "float32")


def make(labels):
    return [Row({"text": f"x{line}", "label": label}, "a.tsv", line) for line, label in enumerate(labels, 2)]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["pos", "neg", "pos"], ("neg", "pos")),
        (["10", "9", "-1", "9"], ("-1", "9", "10")),
        (["10.0", "9.5", "-1.0", "1e1"], ("-1.0", "9.5", "10.0", "1e1")),
        (["10.0", "9.5", "inf"], ("10.0", "9.5", "inf")),
        (["10", "9", "x"], ("10", "9", "x")),
        (["①", "②"], ("①", "②")),
        (["1", "01", "2"], ("01", "1", "2")),
        (["-", "1"], ("-", "1")),
    ],
)
def test_labels_are_sorted(tokenizer, labels, expected):
    assert TASK.label_names(make(labels)) == expected
    assert TASK.label_names(make(labels[::-1])) == expected
    framed = TASK.frame(tokenizer, make(labels), expected, gold=True)
    found = [int(sample.labels["classification"][0]) for sample in framed.samples]
    assert found == [expected.index(label) for label in labels]


def test_one_label_is_refused():
    with pytest.raises(UserError, match=r"a\.tsv: all 3 examples have the label 'x'; is it the right column\?"):
        TASK.label_names(make(["x", "x", "x"]))


def test_D17_an_unknown_label_is_named(tokenizer):
    with pytest.raises(UserError, match=r"a\.tsv:3: unknown label 'maybe'; the model knows no, yes"):
        TASK.frame(tokenizer, make(["yes", "maybe"]), ["no", "yes"], gold=True)


@pytest.mark.parametrize(
    ("name", "labels", "remedy"),
    [
        ("entailment", ["CONTRADICTION", "ENTAILMENT"], "write it as the model does: 'ENTAILMENT'"),
        ("1", ["0.0", "1.0"], "write it as the model does: '1.0'"),
        ("0", ["False", "True"], "write it as the model does: 'False'"),
        (
            "yes",
            ["LABEL_0", "LABEL_1"],
            r"name the labels of the model under id2label in its config\.json, or",
        ),
        ("maybe", ["no", "yes"], "correct the label, or train on a file that contains it"),
        ("-1", ["0", "1", "2"], "if it stands for a missing label, remove these rows; otherwise correct the label"),
        ("-", ["no", "yes"], "if it stands for a missing label, remove these rows; otherwise correct the label"),
    ],
)
def test_what_to_do_about_an_unknown_label_is_said(tokenizer, name, labels, remedy):
    with pytest.raises(UserError, match=rf"unknown label '{name}'; the model knows {', '.join(labels)}; {remedy}"):
        TASK.frame(tokenizer, make([name]), labels, gold=True)


def test_truncation_keeps_the_beginning(tokenizer):
    texts = ["The dog sees the cat near the sea. " * 20, "dog", ""]
    rows = [Row({"text": text, "label": label}, "a.tsv", 2) for text, label in zip(texts, "101", strict=True)]
    long, short, empty = Classification(length=16).frame(tokenizer, rows, ("0", "1"), gold=True).samples
    assert long.ids.tolist() == [tokenizer.cls, *tokenizer.encode(texts[0])[:14], tokenizer.sep]
    assert short.ids.tolist() == [tokenizer.cls, *tokenizer.encode("dog"), tokenizer.sep]
    assert empty.ids.tolist() == [tokenizer.cls, tokenizer.sep]
    assert [sample.labels["classification"].tolist() for sample in (long, short, empty)] == [[1], [0], [1]]
    assert [sample.key for sample in (long, short, empty)] == [(0, 0), (0, 1), (0, 2)]


def test_a_tenth_of_each_label_is_held_out():
    rows = make(["a"] * 100 + ["b"] * 30)
    train, held = hold_out(TASK, rows, seed=0)
    assert sorted(row.line for row in train + held) == [row.line for row in rows]
    assert [row.values["label"] for row in held] == ["a"] * 10 + ["b"] * 3
    assert hold_out(TASK, rows, seed=0)[1] == held
    assert hold_out(TASK, rows, seed=1)[1] != held
    with pytest.raises(UserError, match="too few to hold out a tenth"):
        hold_out(TASK, make(["a", "b"]), seed=0)


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """120 texts whose label depends on one word at a random position."""
    rng = np.random.default_rng(0)
    lines = ["text\tlabel"]
    for _ in range(120):
        word, label = (("dog", "good"), ("cat", "bad"))[rng.integers(2)]
        words = [word, *rng.choice(["river", "house", "teacher", "market", "garden"], 4)]
        lines.append(f"{' '.join(rng.permutation(words))}\t{label}")
    path = tmp_path_factory.mktemp("task") / "train.tsv"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipe") / "tiny.toml"
    small = [
        "encoder.layers=1",
        "encoder.width=32",
        "encoder.feed_forward=64",
        "encoder.positions=64",
        "layout.length=48",
    ]
    path.write_text(write(read_recipe("bert-tiny", parse_overrides(small))))
    return path


def tune(recipe_file, tokenizer_directory, task, out, *settings, **options):
    settings = ("budget.epochs=1", *settings)
    return finetune(
        "classification",
        f"random:{recipe_file}",
        [task],
        out,
        tokenizer=tokenizer_directory,
        settings=parse_overrides(settings),
        device="cpu",
        precision="float32",
        quiet=True,
        **options,
    )


def test_a_classifier_learns(recipe_file, tokenizer_directory, task, tmp_path):
    settings = ("budget.epochs=25", "optimizer.learning_rate=5e-3", "task.length=24", "dropout=0.0")
    model = tune(recipe_file, tokenizer_directory, task, tmp_path / "run", *settings, dev=[task])
    result = json.loads((tmp_path / "run" / "dev.json").read_text())
    assert result["metrics"]["accuracy"] == 100
    assert result["labels"] == ["bad", "good"]
    prediction = load(model, device="cpu").predict(["house dog river market house", "garden river cat"])
    assert [one.label for one in prediction] == ["good", "bad"]
    assert sum(prediction[0].scores.values()) == pytest.approx(1)
    assert list(prediction[0].scores) == ["bad", "good"]


def test_settings_take_effect_and_resume_refuses_others(recipe_file, tokenizer_directory, task, tmp_path):
    losses = {}
    for name, settings in (("plain", ()), ("dropout", ("dropout=0.5",)), ("seed", ("seed=3",))):
        tune(recipe_file, tokenizer_directory, task, tmp_path / name, *settings)
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        losses[name] = [json.loads(line)["loss"] for line in lines]
    assert losses["plain"] != losses["dropout"], "dropout overrides that of the model"
    assert losses["plain"][0] == losses["dropout"][0], "the initial weights are the same"
    assert losses["plain"][0] != losses["seed"][0]
    assert load_model(tmp_path / "dropout").encoder.settings.dropout == 0.5
    with pytest.raises(UserError, match=r"dropout was not set, now 0\.5"):
        tune(recipe_file, tokenizer_directory, task, tmp_path / "plain", "dropout=0.5", resume=True)
    other = tmp_path / "other.tsv"
    other.write_text(task.read_text().replace("dog", "a dog"))
    with pytest.raises(UserError, match=r"inputs\.dev was \w+, now \w+; inputs\.train was \w+, now \w+"):
        tune(recipe_file, tokenizer_directory, other, tmp_path / "plain", resume=True)
    with pytest.raises(UserError, match=r"inputs\.model was \w+, now \w+"):
        finetune(
            "classification",
            tmp_path / "seed",
            [task],
            tmp_path / "plain",
            settings=parse_overrides(["budget.epochs=1"]),
            resume=True,
        )
    tune(recipe_file, tokenizer_directory, task, tmp_path / "plain", resume=True)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("task.length=65", "length 65 exceeds the 64 positions of the model"),
        ("task.length=2", "length must be at least 3"),
        ("dropout=1.0", r"dropout must be a number < 1\.0"),
        ("seed=-1", "seed must be a whole number >= 0"),
        ("encoder.width=4", "unknown key `encoder`"),
        ("budget.epochs=0", "a budget must be positive"),
    ],
)
def test_bad_settings_are_refused(recipe_file, tokenizer_directory, task, tmp_path, setting, message):
    with pytest.raises(UserError, match=message):
        tune(recipe_file, tokenizer_directory, task, tmp_path / "run", setting)
    assert not (tmp_path / "run").exists()


# Class weights


def head_of(labels, **settings):
    shape = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=32, dropout=0.0)
    task = Classification(**settings)
    return Learner(shape.build(200), {"classification": task.build(shape.head, labels)}).eval()


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (0.5, 2.0, 7.0)])
def test_weights_are_those_of_cross_entropy(tokenizer, weights):
    labels, rows = ("a", "b", "c"), make(["a", "c", "b", "c", "a"])
    learner = head_of(labels, weights=weights)
    batch = collate([learner.prepare(it) for it in TASK.frame(tokenizer, rows, labels, gold=True).samples])
    part = learner(batch)["classification"]
    logits = learner.parts["classification"].predict(learner.encoder, learner.encoder(batch.tokens), batch)
    theirs = torch.nn.CrossEntropyLoss(torch.tensor(weights), reduction="none")
    torch.testing.assert_close(part.sum, theirs(logits, torch.tensor([0, 2, 1, 2, 0])).sum())
    assert batch.counts == {"classification": 5}, "the mean is over examples, whatever their weights"
    plain = head_of(labels)
    plain.load_state_dict(learner.state_dict())
    assert torch.equal(plain(batch)["classification"].sum, part.sum) == (weights == (1.0, 1.0, 1.0))


def test_balanced_weights_are_those_of_scikit_learn():
    rows = make(["b"] * 6 + ["a"] * 3 + ["c"])
    settled = Classification(weights="balanced").settle(rows, ("b", "c", "a"))
    names = np.array([row.values["label"] for row in rows])
    expected = compute_class_weight("balanced", classes=np.array(["b", "c", "a"]), y=names)
    assert settled.weights == pytest.approx(expected)
    totals = {label: weight * (names == label).sum() for label, weight in zip("bca", settled.weights, strict=True)}
    assert set(np.round(list(totals.values()), 9)) == {round(10 / 3, 9)}, "each label weighs the same"
    assert np.mean([dict(zip("bca", settled.weights, strict=True))[name] for name in names]) == pytest.approx(1)
    assert settled.settle(rows, ("b", "c", "a")) == settled
    assert TASK.settle(rows, ("b", "c", "a")) == msgspec.structs.replace(TASK, pairs=False)


def test_weights_are_stored_with_run_and_model(recipe_file, tokenizer_directory, task, tmp_path):
    lines = task.read_text().splitlines()
    rare = tmp_path / "rare.tsv"
    rare.write_text("\n".join([*lines, *(line for line in lines if line.endswith("\tbad"))]))
    tune(recipe_file, tokenizer_directory, rare, tmp_path / "run", "task.weights=balanced", dev=[task])
    low, high = load_model(tmp_path / "run").task.weights
    assert low < 1 < high
    assert tomllib.loads((tmp_path / "run" / "recipe.toml").read_text())["task"]["weights"] == [low, high]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("task.weights=[1.0, 2.0, 3.0]", "3 weights for 2 labels; give one each for bad, good"),
        ("task.weights=[1.0, 0.0]", "weights must be above 0"),
        ("task.weights=even", "task.weights cannot be 'even'; known: balanced"),
    ],
)
def test_bad_weights_are_refused(recipe_file, tokenizer_directory, task, tmp_path, setting, message):
    with pytest.raises(UserError, match=message):
        tune(recipe_file, tokenizer_directory, task, tmp_path / "run", setting)


# Calibration


def test_the_temperature_is_tuned_and_divides_logits(tokenizer):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(400, 2)).astype(np.float32)
    drawn = rng.random(400) > torch.from_numpy(logits).softmax(1)[:, 0].numpy()
    rows = make(["ab"[index] for index in drawn.astype(int)])

    def read(task):
        return task.frame(tokenizer, rows, ("a", "b"), gold=False).read([4 * row[None] for row in logits])

    task = Classification(temperature="tuned")
    tuned = task.tune(rows, read(task))
    assert tuned.temperature == pytest.approx(4, rel=0.3)
    assert (task.tunes, tuned.tunes, TASK.tunes) == (True, False, False)
    found, expected = read(tuned), torch.from_numpy(4 * logits / tuned.temperature).softmax(1)
    assert torch.tensor([list(one.scores.values()) for one in found]) == pytest.approx(expected, abs=1e-6)
    assert [one.label for one in found] == [one.label for one in read(task)]
    calibration = tuned.calibration(rows, found)
    assert calibration["expected_calibration_error"] < calibration["without_temperature"]
    assert list(TASK.calibration(rows, read(TASK))) == ["expected_calibration_error"]


# Mistakes


def test_mistakes_are_sorted_by_confidence():
    rows, labels = make(["a", "b", "a", "b"]), ("a", "b")
    probabilities = [(0.4, 0.6), (0.1, 0.9), (0.1, 0.9), (0.7, 0.3)]
    predictions = [Prediction("x", "ab"[y > x], {"a": x, "b": y}) for x, y in probabilities]
    found = worst_first(TASK.mistakes(rows, predictions, labels))
    assert [(it.caption, it.score) for it in found] == [("a.tsv:4", 0.9), ("a.tsv:5", 0.7), ("a.tsv:2", 0.6)]
    assert (found[0].gold, found[0].predicted, found[0].probabilities) == ("a", "b", {"a": 0.1, "b": 0.9})
    assert [passage.text for passage in found[0].passages] == ["x4"]
