"""Stored predictions: students learn from them as from the teacher, which then reads nothing; what is refused."""

import json
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch

from unmask.data.corpus.build import write_corpus
from unmask.model.model import load_model, save_model
from unmask.nn.layers.vocabulary import soft_vocabulary_loss
from unmask.objectives.teacher import Teacher
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.training.runs.directory import RunDirectory
from unmask.workflows.distillation.distill import distill
from unmask.workflows.distillation.targets import LEAST, TOP, TargetStore, Top, sample_key

from .conftest import FILES, recipe_of

OFF = {"objective.hidden_cosine": False}


@pytest.fixture
def store(tmp_path):
    found = TargetStore(tmp_path / "store", {"teacher": "a"})
    for number in range(5):
        values = np.full((number, TOP), number, np.float16)
        found.put(bytes([number] * 16), values, np.full((number, TOP), 7, np.int32))
    return found


def test_what_is_stored_is_read_again(store):
    store.flush()
    store.put(b"x" * 16, np.ones((2, TOP), np.float16), np.ones((2, TOP), np.int32))
    store.flush()
    again = TargetStore(store.directory, {"teacher": "a"})
    assert len(again) == 6 and bytes([9] * 16) not in again
    for number in range(5):
        values, ids = again[bytes([number] * 16)]
        assert values.shape == (number, TOP) and (values == number).all() and (ids == 7).all()
    assert len(list(store.directory.glob("part-*"))) == 2


@pytest.mark.parametrize("teacher", ["a", "b"])
def test_what_another_student_stores_while_one_begins_is_not_lost(tmp_path, monkeypatch, teacher):
    @contextmanager
    def waited_for(directory, *, wait):
        monkeypatch.undo()
        other = TargetStore(directory, {"teacher": "a"})
        other.put(b"x" * 16, np.ones((2, TOP), np.float16), np.ones((2, TOP), np.int32))
        other.flush()
        yield

    directory = tmp_path / "store"
    monkeypatch.setattr("unmask.workflows.distillation.targets.only_writer", waited_for)
    if teacher == "a":
        assert len(TargetStore(directory, {"teacher": teacher})) == 1
    else:
        with pytest.raises(UserError, match="these predictions are of another teacher: a, not b"):
            TargetStore(directory, {"teacher": teacher})
    assert len(TargetStore(directory, {"teacher": "a"})) == 1


def test_other_predictions_and_damaged_files_are_refused(store, tmp_path):
    store.flush()
    with pytest.raises(UserError, match="these predictions are of another teacher: a, not b; remove the directory"):
        TargetStore(store.directory, {"teacher": "b"})
    (part,) = store.directory.glob("part-*")
    content = bytearray(part.read_bytes())
    content[-1] ^= 1
    part.write_bytes(content)
    with pytest.raises(UserError, match=r"part-00000\.safetensors: the file was altered or truncated"):
        TargetStore(store.directory, {"teacher": "a"})
    written = (store.directory / "manifest.json").read_text()
    for name in ("../part-00000.safetensors", "part-" + "9" * 400, "\u0000"):
        changed = json.loads(written) | {"files": {name: ""}}
        (store.directory / "manifest.json").write_text(json.dumps(changed))
        with pytest.raises(UserError, match=r"manifest.json: damaged \(no file is named"):
            TargetStore(store.directory, {"teacher": "a"})
    (store.directory / "manifest.json").write_text("{")
    with pytest.raises(UserError, match=r"manifest.json: damaged"):
        TargetStore(store.directory, {"teacher": "a"})
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    with pytest.raises(UserError, match="not a directory of predictions; choose another targets"):
        TargetStore(tmp_path / "other", {})


def test_a_key_is_that_of_what_is_read_and_where_predictions_are():
    ids, segments, positions = np.arange(5), np.zeros(5, np.int64), np.array([1, 3])
    keys = {
        sample_key(ids, segments, positions),
        sample_key(ids[::-1], segments, positions),
        sample_key(ids, segments + 1, positions),
        sample_key(ids, None, positions),
        sample_key(ids, segments, positions + 1),
    }
    assert len(keys) == 5
    assert sample_key(ids.astype(np.int32), segments, positions) in keys


def test_the_divergence_is_that_of_the_kept_tokens_and_the_rest():
    rng = np.random.default_rng(0)
    logits, ours = rng.normal(size=(2, 6, 40)) * 3
    p, q = (np.exp(one) / np.exp(one).sum(1, keepdims=True) for one in (logits, ours))
    ids = np.argsort(-p, 1)[:, :8]
    top, own = np.take_along_axis(p, ids, 1), np.take_along_axis(q, ids, 1)
    rest, own_rest = 1 - top.sum(1), 1 - own.sum(1)
    expected = (top * np.log(top / own)).sum() + (rest * np.log(rest / own_rest)).sum()
    rows = torch.from_numpy(ours).float().requires_grad_()
    given = Top(torch.from_numpy(ids), torch.from_numpy(np.log(top)).float())
    loss, agreed = soft_vocabulary_loss(rows, torch.eye(40), torch.zeros(40), given.log_probabilities(1.0), 1.0)
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-4)
    assert int(agreed) == (p.argmax(1) == q.argmax(1)).sum()
    loss.backward()
    again = torch.from_numpy(ours).double().requires_grad_()
    log_q = again.log_softmax(1)
    own = log_q.gather(1, torch.from_numpy(ids))
    log_top = torch.from_numpy(np.log(top))
    divergence = (log_top.exp() * (log_top - own)).sum()
    divergence = divergence - (torch.from_numpy(rest) * (1 - own.exp().sum(1)).log()).sum()
    divergence.backward()
    torch.testing.assert_close(rows.grad, again.grad.float(), rtol=1e-4, atol=1e-5)
    assert expected < (p * np.log(p / q)).sum(), "at most that of all tokens"
    certain = Top(torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, 1))
    assert certain.log_probabilities(1.0)(slice(0, 1), rows[:1].log_softmax(1)).exp().sum() < 1 + 2 * LEAST


def counting(monkeypatch):
    """Return a list to which a teacher adds each batch that it reads."""
    seen, real = [], Teacher.read
    monkeypatch.setattr(Teacher, "read", lambda self, batch: seen.append(batch) or real(self, batch))
    return seen


def test_a_second_student_on_text_needs_no_teacher(teacher, corpus, tmp_path, monkeypatch):
    recipe = recipe_of("distilbert-mini", objective__hidden_cosine=False)
    given = {"corpus": corpus, "layers": 2, "device": "cpu", "precision": "float32", "quiet": True}
    seen = counting(monkeypatch)
    first = distill(recipe, teacher, tmp_path / "first", targets=tmp_path / "targets", **given)
    reads = len(seen)
    second = distill(recipe, teacher, tmp_path / "second", targets=tmp_path / "targets", **given)
    steps = len(RunDirectory(first.parent).read_metrics("train"))
    assert len(seen) - reads == reads - steps > 0, "held-out text alone"
    assert load_model(first.parent).fingerprint() == load_model(second.parent).fingerprint()
    plain = distill(recipe, teacher, tmp_path / "plain", **given)
    losses = [RunDirectory(run.parent).read_metrics("train")[0]["soft_targets_loss"] for run in (first, plain)]
    assert 0 < losses[0] < losses[1], "most of such a flat distribution is in the rest"


def test_T1_a_resumed_run_with_stored_predictions_equals_an_unbroken_one(teacher, corpus, tmp_path, stopped_at):
    recipe = recipe_of("distilbert-mini", objective__hidden_cosine=False)
    given = {"corpus": corpus, "layers": 2, "device": "cpu", "precision": "float32", "quiet": True}
    whole = distill(recipe, teacher, tmp_path / "whole", targets=tmp_path / "one", **given)
    with stopped_at(3):
        distill(recipe, teacher, tmp_path / "cut", targets=tmp_path / "other", **given)
    assert len(TargetStore(tmp_path / "other", {})) > 0, "what was computed is kept"
    cut = distill(recipe, teacher, tmp_path / "cut", targets=tmp_path / "other", resume=True, **given)
    assert load_model(whole.parent).fingerprint() == load_model(cut.parent).fingerprint()


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("classification", marks=pytest.mark.exhaustive),
        pytest.param("token-classification", marks=pytest.mark.exhaustive),
        "question-answering",
    ],
)
def test_a_second_student_of_a_task_needs_no_teacher(kind, tuned, examples, tmp_path, monkeypatch):
    given = {"train": examples / FILES[kind], "layers": 2, "device": "cpu", "precision": "float32", "quiet": True}
    # answers are a softmax over tokens, so the last bias has no gradient: AdamW would enlarge its rounding error
    settings, seen = {**OFF, "budget.steps": 3, "optimizer.epsilon": 1e-4}, counting(monkeypatch)
    runs = []
    for name, targets in (("plain", None), ("first", tmp_path / "targets"), ("second", tmp_path / "targets")):
        seen.clear()
        out = tmp_path / name
        distill(read_recipe("distilbert-mini"), tuned(kind), out, targets=targets, settings=settings, **given)
        runs.append(load_model(out).encoder.state_dict())
        assert bool(seen) == (targets is None)
    for name, value in runs[0].items():
        torch.testing.assert_close(value, runs[1][name], rtol=1e-4, atol=1e-6)
        assert torch.equal(runs[1][name], runs[2][name])
    with pytest.raises(UserError, match="these predictions are of another data set: "):
        more = {**given, "dev": examples / FILES[kind]}
        distill(read_recipe("distilbert-mini"), tuned(kind), tmp_path / "run", targets=tmp_path / "targets",
                settings=settings, **more)  # fmt: skip


def test_what_cannot_be_stored_is_refused(teacher, corpus, documents, tmp_path, monkeypatch):
    store = tmp_path / "targets"
    given = {"corpus": corpus, "layers": 2, "device": "cpu", "precision": "float32", "quiet": True, "targets": store}
    with pytest.raises(UserError, match="reads hidden states, for which the teacher computes every batch"):
        distill(recipe_of("distilbert-mini"), teacher, tmp_path / "run", **given)
    soft = recipe_of("distilbert-mini", objective__hidden_cosine=False)
    first = distill(soft, teacher, tmp_path / "first", **given)
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(documents[:50]))
    other = write_corpus([text], corpus.tokenizer, tmp_path / "corpus")
    with pytest.raises(UserError, match="these predictions are of another corpus: "):
        distill(soft, teacher, tmp_path / "run", **{**given, "corpus": other})
    warm = recipe_of("distilbert-mini", objective__hidden_cosine=False, objective__soft_targets__temperature=3)
    with pytest.raises(UserError, match="these predictions are of another temperature: 2, not 3"):
        distill(warm, teacher, tmp_path / "run", **given)
    changed = replace(load_model(teacher), heads=load_model(first.parent).heads)
    save_model(tmp_path / "changed", changed, "")
    with pytest.raises(UserError, match="these predictions are of another teacher: "):
        distill(soft, tmp_path / "changed", tmp_path / "run", **given)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29500")
    with pytest.raises(UserError, match="targets works with a single process only"):
        distill(soft, teacher, tmp_path / "run", **given)
