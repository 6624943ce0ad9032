"""Explanations beside transformers: its model one text at a time for occlusion, its gradients for the integral.

Every family, with random weights that are scaled up. Integrated gradients are computed from the output of the
embedding layer of transformers' model, which a hook replaces, with a loop over the nodes: nothing of unmask.
"""

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from unmask.data.batches.frame import Frame
from unmask.inference.backend import TorchBackend
from unmask.inference.explanation import Explainer
from unmask.model.model import Model
from unmask.tasks.classification import Classification
from unmask.tasks.explained import SampleWords, Word
from unmask.tasks.multi_label import MultiLabel
from unmask.tasks.regression import Regression
from unmask.tasks.token_classification import TokenClassification
from unmask.training.machine import choose_machine

from .conftest import scale
from .test_family import EXTRACT, SHAPES, from_theirs, theirs_of

MASK, PAD = 4, 0
TASKS = {
    "classification": (Classification(temperature=1.5), ("a", "b", "c")),
    "regression": (Regression(), ()),
    "token_classification": (TokenClassification(), ("O", "B-X", "I-X")),
}
REMOVES = ("gpt", "xlnet")
"""Families that were not trained to read masks."""
STEPS = 4
CASES = 2
"""Samples of each shape and head."""
VARIED = ("roberta", "deberta", "modernbert", "eurobert", "xlnet")
"""Families with which all heads run by default: their summaries, positions and ways to remove words differ."""


def explainer_of(shape, head, directory, task=None):
    """Return our explainer with the weights of transformers' model, and this model."""
    theirs = scale(theirs_of(shape, head), 3)
    learner = from_theirs(theirs, head, directory)
    settings, labels = TASKS[head]
    tokenizer = SimpleNamespace(mask=MASK, pad=PAD, size=300)
    part = (task or settings).part
    model = Model(learner.encoder, tokenizer, {part: learner.parts[head].published()}, labels, task or settings)
    return Explainer(model, model.task, TorchBackend(model, choose_machine("cpu", "float32"))), theirs.eval()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a function that returns what `explainer_of` does, once for each shape and head."""
    return cache(lambda shape, head: explainer_of(shape, head, tmp_path_factory.mktemp("theirs")))


def samples_of(explainer, head):
    """Return texts and pairs of words of one to three tokens, with their words."""
    settings = explainer.model.encoder.settings
    extract = EXTRACT if settings.summary == "extract" else None
    frame, rng = Frame(cls=2, sep=3, extract=extract, last=settings.summary == "last"), np.random.default_rng(3)
    made = []
    for number in range(CASES):
        lengths = [int(size) for size in rng.integers(1, 9, 2 if number % 2 and head != "token_classification" else 1)]
        texts = [rng.integers(5, 300, length) for length in lengths]
        counts = [np.minimum(np.cumsum(rng.integers(0, 2, length)), length) for length in lengths]
        first = counts[0] - counts[0][0]
        index = [first, *(first[-1] + 1 + count - count[0] for count in counts[1:])]
        words = [Word(word, word + 1, int(word > first[-1])) for word in range(int(index[-1][-1]) + 1)]
        sample = frame.wrap(*texts).named((number,))
        of_tokens = frame.spread(*index)
        starts = np.array([np.flatnonzero(of_tokens == word)[0] for word in range(len(words))])
        sample = sample.add(positions={"first": starts}) if head == "token_classification" else sample
        made.append((sample, SampleWords(0, words, of_tokens)))
    return made


def their_logits(theirs, sample, left=slice(None)):
    """Return the logits of transformers' model for one sequence, or for what is left of it, (targets, outputs)."""
    inputs = {"input_ids": torch.from_numpy(sample.ids[left])[None]}
    if getattr(theirs.config, "type_vocab_size", 1) > 1 or theirs.config.model_type == "xlnet":
        inputs["token_type_ids"] = torch.from_numpy(sample.segments[left])[None]
    logits = theirs(**inputs).logits
    return logits[0, torch.from_numpy(sample.positions["first"])] if "first" in sample.positions else logits


def log_odds(row, output):
    """Return the log-odds of an output by its probability; the number of a regression."""
    if len(row) == 1:
        return row[0]
    return torch.logit(row.double().softmax(0)[output])


def decided(logits, head):
    """Return the target and the output of each decision, and what divides the logits."""
    if head == "token_classification":
        return [(row, int(tag)) for row, tag in enumerate(logits.argmax(1)) if tag], 1.0
    return [(0, int(logits[0].argmax()))], 1.5 if head == "classification" else 1.0


def _repeats(shape, head):
    """Return whether the family is tested with classification, and the head with other families."""
    return head != "classification" and shape not in VARIED


ALL = [
    pytest.param(shape, head, marks=pytest.mark.exhaustive if "," in shape or _repeats(shape, head) else ())
    for shape in SHAPES
    for head in TASKS
    if head == "classification" or shape.partition(",")[0] != "gpt"
]


@pytest.mark.parametrize(("shape", "head"), ALL)
def test_occlusion_is_the_change_in_transformers(shape, head, made):
    explainer, theirs = made(shape, head)
    removes = shape.partition(",")[0] in REMOVES
    if removes and head == "token_classification":
        with pytest.raises(Exception, match="reads no masks"):
            explainer.occlude(*samples_of(explainer, head)[0])
        return
    for sample, words in samples_of(explainer, head):
        found = explainer.occlude(sample, words)
        with torch.no_grad():
            whole = their_logits(theirs, sample)
            decisions, temperature = decided(whole, head)
            assert len(found) == len(decisions)
            for explanation, (target, output) in zip(found, decisions, strict=True):
                value = log_odds(whole[target] / temperature, output)
                assert explanation.value == pytest.approx(value.item(), abs=1e-4)
                if head == "token_classification":
                    assert explanation.start == target
                for number, word in enumerate(explanation.words):
                    hidden = words.index == number
                    masked = sample if removes else sample.changed(ids=np.where(hidden, MASK, sample.ids))
                    logits = their_logits(theirs, masked, ~hidden if removes else slice(None))
                    changed = value - log_odds(logits[target] / temperature, output)
                    assert word.contribution == pytest.approx(changed.item(), abs=1e-4)


def their_gradients(theirs, sample, baseline, target, output, temperature):
    """Return the integrated gradients of each token, (tokens,), by transformers' model."""
    table = theirs.get_input_embeddings()
    end, start = (table(torch.from_numpy(ids)[None]).detach() for ids in (sample.ids, baseline))
    total = torch.zeros_like(end, dtype=torch.float64)
    for node, weight in zip(*np.polynomial.legendre.leggauss(STEPS), strict=True):
        point = (start + (node + 1) / 2 * (end - start)).float().requires_grad_()
        hook = table.register_forward_hook(lambda module, inputs, result, point=point: point.view_as(result))
        logits = their_logits(theirs, sample)
        hook.remove()
        log_odds(logits[target] / temperature, output).backward()
        total += weight / 2 * point.grad.double()
    return (total * (end - start)).sum(2)[0].numpy()


@pytest.mark.parametrize(("shape", "head"), ALL)
def test_integrated_gradients_are_those_of_transformers(shape, head, made):
    explainer, theirs = made(shape, head)
    for sample, words in samples_of(explainer, head):
        with torch.no_grad():
            whole = their_logits(theirs, sample)
        decisions, temperature = decided(whole, head)
        ours = explainer.task.decisions(whole.numpy(), explainer.model.labels)
        found = explainer._path(sample, words).integrate(ours, STEPS) if ours else []
        baseline = np.where(words.index >= 0, PAD if shape.partition(",")[0] in REMOVES else MASK, sample.ids)
        for values, (target, output) in zip(found, decisions, strict=True):
            expected = their_gradients(theirs, sample, baseline, target, output, temperature)
            assert values.numpy() == pytest.approx(expected, abs=1e-4 * max(1, np.abs(expected).max()))
            assert values[torch.from_numpy(words.index) < 0].abs().max() == 0


def test_each_label_of_several_is_explained_by_its_logit(tmp_path):
    task = MultiLabel(threshold=0.3, temperature=0.5)
    explainer, theirs = explainer_of("roberta", "classification", tmp_path, task)
    for sample, words in samples_of(explainer, "classification"):
        with torch.no_grad():
            (whole,) = their_logits(theirs, sample)
        chosen = [number for number, value in enumerate((whole / 0.5).sigmoid()) if value > 0.3]
        found = explainer.occlude(sample, words)
        assert [one.label for one in found] == ["abc"[number] for number in chosen or [int(whole.argmax())]]
        for explanation in found:
            assert explanation.value == pytest.approx(2 * whole["abc".index(explanation.label)].item(), abs=1e-4)
