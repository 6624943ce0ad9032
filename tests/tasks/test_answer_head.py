"""The head of answers: its loss beside that of single windows, its columns, and what it learns from a teacher."""

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from unmask.data.batches.batch import collate
from unmask.data.labelled.question_files import Answer, Question
from unmask.objectives.learner import Learner
from unmask.tasks.answer_head import SENTENCES, SHARE, SUPPORT, UNTRAINED, AnswerHead
from unmask.tasks.passage_windows import LABEL, WindowSettings, cut_passages

PASSAGE = "the dog sees the cat near the sea . the poem follows the river . the cat finds the garden"
CLASSES = {"kind": 3, "more": 2}


@pytest.fixture
def learner(recipe, tokenizer):
    """A head with two classifiers and support on a small body, all with large random weights."""
    encoder, head = recipe.encoder.build(tokenizer.size), AnswerHead(recipe.encoder.head, CLASSES, support=True)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    return Learner(encoder, {"answers": head}).eval()


@pytest.fixture
def samples(tokenizer):
    """Windows with labels of all kinds; some have no sentence, and some no class that is trained on."""
    texts = [("who", "dog"), ("a", "the cat near"), ("the sea", None)]
    examples = [
        Question(name, name, PASSAGE, (Answer(name, PASSAGE.index(name)),) if name else (), not name)
        for _, name in texts
        if name
    ] + [Question("c", "the sea", PASSAGE, (), True)]
    windows, _ = cut_passages(tokenizer, examples, WindowSettings(24, 6, 4, True), gold=True)
    rng, made = np.random.default_rng(0), []
    for number, window in enumerate(windows):
        at = window.sample.positions["passage"][1:]
        chosen = np.sort(rng.choice(at, number % 4, replace=False))
        labels = {name: np.array([UNTRAINED if number % 5 == 2 else number % most]) for name, most in CLASSES.items()}
        share = np.full(len(chosen), 1 / max(1, len(chosen)))
        support = rng.integers(0, 2, len(chosen))
        made.append(window.sample.add(positions={SENTENCES: chosen}, labels={**labels, SUPPORT: support, SHARE: share}))
    return made


def logits_of(learner, sample):
    batch = collate([sample])
    with torch.no_grad():
        return learner.parts["answers"].predict(learner.encoder, learner.encoder(batch.tokens), batch)


def test_the_loss_is_the_sum_of_those_of_single_windows(learner, samples):
    expected = 0.0
    for sample in samples:
        logits = logits_of(learner, sample)  # (targets, columns)
        candidates = sample.positions["passage"]
        gold = torch.from_numpy(np.searchsorted(candidates, sample.labels[LABEL]))
        expected += sum(cross_entropy(logits[None, :, side], gold[side : side + 1]) for side in (0, 1)) / 2
        column = 2
        for name, most in CLASSES.items():
            label = torch.from_numpy(sample.labels[name])
            if label >= 0:
                expected += cross_entropy(logits[:1, column : column + most], label)
            column += most
        if len(sample.labels[SUPPORT]):
            at = np.searchsorted(candidates[1:], sample.positions[SENTENCES]) + 1
            truth = torch.from_numpy(sample.labels[SUPPORT]).float()
            expected += binary_cross_entropy_with_logits(logits[at, column], truth)
    batch = collate([learner.prepare(sample) for sample in samples])
    part = learner(batch)["answers"]
    assert batch.counts == {"answers": len(samples)}
    assert float(part.sum.detach()) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("fault", ["classes", "share", "sentences"])
def test_a_planted_fault_changes_the_loss(learner, samples, fault):
    def loss(given):
        return float(learner(collate([learner.prepare(sample) for sample in given]))["answers"].sum.detach())

    def changed(sample):
        labels, positions = dict(sample.labels), dict(sample.positions)
        if fault == "classes":
            labels["more"] = np.array([1 - max(0, int(labels["more"][0]))])
        elif fault == "share":
            labels[SHARE] = np.ones(len(labels[SHARE]))
        else:
            positions[SENTENCES] = positions[SENTENCES] - 1
        return type(sample)(
            key=sample.key, ids=sample.ids, segments=sample.segments, positions=positions, labels=labels
        )

    assert loss(list(map(changed, samples))) != pytest.approx(loss(samples), rel=1e-4)


def test_every_parameter_learns(learner, samples):
    learner(collate([learner.prepare(sample) for sample in samples]))["answers"].sum.backward()
    for name, parameter in learner.parts["answers"].named_parameters():
        assert parameter.grad.abs().sum() > 0, name


def test_classes_are_the_same_in_all_rows_of_a_window(learner, samples):
    batch = collate(samples)
    with torch.no_grad():
        logits = learner.parts["answers"].predict(learner.encoder, learner.encoder(batch.tokens), batch)
    assert logits.shape == (len(batch.positions["passage"]), 2 + 3 + 2 + 1)
    sizes = np.cumsum([len(sample.positions["passage"]) for sample in sorted(samples, key=len)])
    for rows, sample in zip(np.split(logits, sizes[:-1]), sorted(samples, key=len), strict=True):
        assert torch.allclose(rows, logits_of(learner, sample), atol=1e-4)
        assert (rows[:, 2:7] == rows[0, 2:7]).all()


def test_spans_and_classes_are_imitated(learner, samples):
    head, batch = learner.parts["answers"], collate(samples)
    with torch.no_grad():
        own = head.predict(learner.encoder, learner.encoder(batch.tokens), batch)
    assert float(head.imitate(own, own, batch, 2.0).sum) == pytest.approx(0, abs=1e-4)
    for column in range(own.shape[1]):
        other = own.clone()
        other[::3, column] += 1 if column < 2 else 0
        other[:, column] += 0 if column < 2 else 1
        learned = float(head.imitate(own, other, batch, 2.0).sum) > 1e-3
        assert learned == (column < own.shape[1] - 1), "all but support"


def test_a_head_without_more_has_the_tensors_of_question_answering(recipe):
    assert list(AnswerHead(recipe.encoder.head).state_dict()) == ["out.weight", "out.bias"]
