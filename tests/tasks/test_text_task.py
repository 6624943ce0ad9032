"""Long texts in windows: the samples, the mean of the vectors beside one computed by hand, runs, what is refused."""

import json

import msgspec
import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

import unmask
from unmask.data.batches.batch import GROUP, collate
from unmask.data.batches.frame import Frame
from unmask.data.labelled.labelled_file import Row
from unmask.inference.export import Export, export_model
from unmask.inference.load import load
from unmask.inference.predictor import Predictor
from unmask.model.model import load_model
from unmask.objectives.learner import Learner
from unmask.support.errors import InputWarning, UserError
from unmask.tasks import pooled_head
from unmask.tasks.classification import Classification
from unmask.tasks.multi_label import MultiLabel
from unmask.tasks.regression import Regression
from unmask.tasks.rows import frame_rows
from unmask.training.machine import choose_machine

CPU = choose_machine("cpu", "float32")
WORDS = "river house teacher market garden letter engine".split()  # noqa: SIM905
SIZES = (3, 40, 17, 9, 100)
LABELS = ("a", "b", "c")


def row(text, label="b"):
    return Row({"text": text, "label": label}, "a.tsv", 2, ("a", "c"))


@pytest.fixture
def rows(tokenizer):
    """Texts of these numbers of tokens, one per word."""
    assert all(len(tokenizer.encode(word)) == 1 for word in WORDS)
    rng = np.random.default_rng(0)
    return [row(" ".join(rng.choice(WORDS, size)), LABELS[size % 3]) for size in SIZES]


@pytest.mark.parametrize(("windows", "stride"), [(2, 0), (4, 7), (20, 10)])
def test_a_text_is_read_in_overlapping_windows(tokenizer, rows, windows, stride):
    task = Classification(length=12, windows=windows, stride=stride)
    framed = frame_rows(tokenizer, rows, task.length, windows=task.windows, stride=task.stride)
    assert task.stride == (stride or 7)
    for number, (one, cut) in enumerate(zip(rows, framed.cut, strict=True)):
        ids = tokenizer.encode(one.values["text"])
        starts = [start for start in range(0, 200, task.stride) if start == 0 or start + 10 - task.stride < len(ids)]
        expected = [[tokenizer.cls, *ids[start : start + 10], tokenizer.sep] for start in starts[:windows]]
        own = framed.samples[framed.ends[number] : framed.ends[number + 1]]
        assert [sample.ids.tolist() for sample in own] == expected
        assert cut == (len(ids) > (windows - 1) * task.stride + 10)
        grouped = task.frame(tokenizer, rows, LABELS, gold=True).samples[number]
        assert grouped.parts == tuple(map(len, expected)) and grouped.key == (0, number)
        assert grouped.ids.tolist() == [id for part in expected for id in part]
    cut = sum(framed.cut)
    assert framed.notes == (
        (f"{cut} of 5 texts are longer than {windows} windows of 12 tokens and were cut",) * (cut > 0)
    )


def test_a_single_window_is_what_there_was(tokenizer, rows):
    (one, *_), (same, *_) = (
        task.frame(tokenizer, rows, LABELS, gold=True).samples for task in (Classification(), Classification(windows=1))
    )
    assert one.parts == same.parts == () and one.ids.tolist() == same.ids.tolist()


TASKS = {
    "classification": Classification(length=12, windows=6),
    "multi_label": MultiLabel(length=12, windows=6),
    "regression": Regression(length=12, windows=6, mean=0.0, deviation=2.0),
}


def build(task, recipe, tokenizer):
    torch.manual_seed(0)
    encoder = msgspec.structs.replace(recipe.encoder, init_std=0.3).build(tokenizer.size)  # the vectors of texts differ
    head = task.build(recipe.encoder.head, () if task.part == "regression" else LABELS)
    torch.nn.init.normal_(head.out.weight)
    return Learner(encoder, {task.part: head}).eval()


def by_hand(learner, tokenizer, task, rows):
    """Return the outputs of the linear layer for the mean vector of each text, whose windows are computed alone."""
    head, found = learner.parts[task.part], []
    for one in rows:
        ids, vectors = tokenizer.encode(one.values["text"]), []
        for start in range(0, 6 * 7, 7):
            if start == 0 or start + 3 < len(ids):
                tokens = collate([Frame.of(tokenizer).wrap(ids[start : start + 10])]).tokens
                vectors.append(learner.encoder.pooler(learner.encoder(tokens).last[:1]))
        found.append(head.out(torch.cat(vectors).mean(0)))
    return torch.stack(found)  # (texts, outputs)


def loss_by_hand(part, outputs, rows):
    if part == "classification":
        gold = torch.tensor([LABELS.index(one.values["label"]) for one in rows])
        return cross_entropy(outputs, gold, reduction="sum")
    if part == "multi_label":
        gold = torch.tensor([[1.0, 0.0, 1.0]]).expand(len(rows), -1)
        return binary_cross_entropy_with_logits(outputs, gold, reduction="sum")
    gold = torch.tensor([float(one.values["label"]) / 2 for one in rows])
    return (outputs[:, 0] - gold).square().sum()


def labeled(part, rows):
    return [row(one.values["text"], str(number)) for number, one in enumerate(rows)] if part == "regression" else rows


def loss_of(learner, task, tokenizer, rows):
    samples = task.frame(tokenizer, rows, LABELS, gold=True).samples
    batch = collate([learner.prepare(sample) for sample in samples])
    return learner(batch)[task.part], batch


@pytest.mark.parametrize("part", TASKS)
def test_the_loss_is_that_of_the_mean_vector_of_each_text(part, recipe, tokenizer, rows):
    task, rows = TASKS[part], labeled(part, rows)
    learner = build(task, recipe, tokenizer)
    found, batch = loss_of(learner, task, tokenizer, rows)
    assert batch.counts == {part: 15 if part == "multi_label" else 5}
    assert len(batch.keys) > 5 and GROUP in batch.labels
    outputs = by_hand(learner, tokenizer, task, rows)
    expected = loss_by_hand(part, outputs, rows)
    torch.testing.assert_close(found.sum, expected, rtol=1e-4, atol=1e-5)
    gradients = [torch.autograd.grad(loss, learner.encoder.words.weight)[0] for loss in (found.sum, expected)]
    rounding = 1e-4 * float(gradients[1].abs().max())  # small elements are differences of large ones
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=rounding)


@pytest.mark.parametrize("part", TASKS)
def test_predictions_are_those_of_the_mean_vector(part, recipe, tokenizer, rows):
    task, rows = TASKS[part], labeled(part, rows)
    learner = build(task, recipe, tokenizer)
    outputs = by_hand(learner, tokenizer, task, rows)
    framed = task.frame(tokenizer, rows, LABELS, gold=False)
    batches = [collate([sample]) for sample in framed.samples]
    head = learner.parts[part]
    logits = [head.predict(learner.encoder, learner.encoder(one.tokens), one).detach().numpy() for one in batches]
    found = framed.read(logits)
    if part == "regression":
        assert [one.score for one in found] == pytest.approx((2 * outputs[:, 0]).tolist(), rel=1e-3, abs=1e-4)
    else:
        expected = outputs.softmax(1) if part == "classification" else outputs.sigmoid()
        scores = torch.tensor([list(one.scores.values()) for one in found])
        torch.testing.assert_close(scores, expected.detach(), rtol=1e-3, atol=1e-5)
    assert [one.cut for one in found] == [False] * 4 + [True]


@pytest.mark.parametrize("fault", ["windows of another text", "the first window alone"])
def test_a_planted_fault_changes_the_loss(recipe, tokenizer, rows, monkeypatch, fault):
    task, right = TASKS["classification"], pooled_head._members
    learner = build(task, recipe, tokenizer)
    before = float(loss_of(learner, task, tokenizer, rows)[0].sum.detach())

    def wrong(batch):
        members = right(batch)
        if fault == "windows of another text":
            return members.roll(1, 1)
        return members & torch.tensor([key[-1] == 0 for key in batch.keys])

    monkeypatch.setattr(pooled_head, "_members", wrong)
    assert float(loss_of(learner, task, tokenizer, rows)[0].sum.detach()) != pytest.approx(before, rel=1e-2)


# Runs


@pytest.fixture(scope="module")
def hidden(tmp_path_factory):
    """Texts of 48 tokens that differ only in the words at the end, which decide on their label."""
    path = tmp_path_factory.mktemp("hidden") / "hidden.tsv"
    lines = [f"{GOOD}\tgood", f"{BAD}\tbad"] * 20
    path.write_text("\n".join(["text\tlabel", *lines]))
    return path


GOOD, BAD = (" ".join([*WORDS * 6, *[word] * 6]) for word in ("dog", "cat"))
RUN = ("task.length=16", "task.windows=5", "budget.steps=60")


def test_what_lies_beyond_the_first_window_is_learned(fine_tuned, hidden, tmp_path):
    run = fine_tuned("classification", hidden, tmp_path / "run", *RUN)
    assert json.loads((run / "dev.json").read_text())["metrics"]["accuracy"] == 100
    model = load(run)
    assert (model.task.windows, model.task.stride) == (5, 10)
    found = model.predict([GOOD, BAD])
    assert [(one.label, one.cut) for one in found] == [("good", False), ("bad", False)]
    with pytest.warns(InputWarning, match="1 of 2 texts is longer than 5 windows of 16 tokens and was cut"):
        assert [one.cut for one in model.predict([GOOD, f"{GOOD} {GOOD}"])] == [False, True]
    assert unmask.evaluate(run, hidden, quiet=True)["metrics"]["accuracy"] == 100
    again = [one.scores["good"] for one in model.predict([BAD, "dog", GOOD])]
    assert again[::2] == pytest.approx([found[1].scores["good"], found[0].scores["good"]], abs=1e-6)


def test_without_windows_the_texts_are_equal(fine_tuned, hidden, tmp_path):
    run = fine_tuned("classification", hidden, tmp_path / "run", RUN[0], RUN[2])
    assert json.loads((run / "dev.json").read_text())["metrics"]["accuracy"] == 50


def test_an_exported_model_reads_windows(fine_tuned, hidden, tmp_path):
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    pytest.importorskip("onnxscript", reason="the extra onnx is not installed")
    model = load_model(fine_tuned("classification", hidden, tmp_path / "run", *RUN[:2], "budget.steps=2"))
    export_model(model, Export("onnx"), tmp_path / "out")
    one, two = (predictor.predict([GOOD, "cat"]) for predictor in (Predictor(model, CPU), load(tmp_path / "out")))
    assert [it.scores["good"] for it in one] == pytest.approx([it.scores["good"] for it in two], abs=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"windows": 0}, "windows must be at least 1"),
        ({"stride": 8}, "stride has no effect on a single window"),
        ({"windows": 2, "length": 12, "stride": 11}, "stride must be from 1 to 10"),
        ({"windows": 2, "stride": -1}, "stride must be from 1 to 126"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Classification(**settings)


def test_pairs_and_auxiliary_objectives_are_refused(fine_tuned, hidden, tokenizer, tmp_path):
    pair = Row({"text": "dog", "text_b": "cat", "label": "a"}, "a.tsv", 2)
    with pytest.raises(
        UserError, match=r"^task\.windows is for single texts, but these are pairs of texts; pass single texts"
    ):
        Classification(windows=2).frame(tokenizer, [pair], ("a", "b"), gold=True)
    settings = (*RUN, "objective.masked_lm.weight=1")
    with pytest.raises(UserError, match=r"groups of windows; pass .*masked_lm.: False. or settings=..task.win"):
        fine_tuned("classification", hidden, tmp_path / "run", *settings)
