"""Entities from logits, and their probabilities at a temperature: a case by hand, properties, a run."""

import msgspec
import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

import unmask
from unmask.data.labelled.tagged_sentence import TaggedSentence, join_words
from unmask.inference.load import load
from unmask.tasks.tagged import Entity, Tagged, read_tags
from unmask.tasks.token_classification import TokenClassification
from unmask.tasks.tuning import smoothed

LABELS = ("O", "B-X", "I-X")
TASK = TokenClassification(temperature="tuned")


def sentence(text):
    pairs = [[*word.split("/"), "O"][:2] for word in text.split()]
    return TaggedSentence(*join_words([word for word, _ in pairs]), tuple(tag for _, tag in pairs), "a.conll", 1, 1)


def test_a_case_by_hand():
    """Odds of 1 to 9 to 1 become 1 to 3 to 1 at temperature 2, and those of 1 to 1 to 4 become 1 to 1 to 2."""
    one = sentence("Ann/B-X Lee/I-X sees/O")
    logits = np.log(np.array([[1.0, 9.0, 1.0], [1.0, 1.0, 4.0], [2.0, 1.0, 1.0]]))
    found = read_tags(one, LABELS, [logits[:1], logits[1:]], 2.0)
    assert found.entities == [Entity("X", 0, 7, "Ann Lee", pytest.approx(2 / 4))]
    assert read_tags(one, LABELS, [logits], 1.0).entities[0].probability == pytest.approx(4 / 6)
    wrong = sentence("Ann/B-X Lee/O sees/O")
    task = TokenClassification(temperature=2.0)
    calibration = task.calibration([wrong], [found])
    third = np.sqrt(2) / (np.sqrt(2) + 2)
    assert calibration == {  # each word is in a bin of its own
        "expected_calibration_error": pytest.approx(100 * (2 / 5 + 2 / 4 + 1 - third) / 3, rel=1e-5),
        "without_temperature": pytest.approx(100 * (2 / 11 + 4 / 6 + 2 / 4) / 3, rel=1e-5),
        "temperature": 2.0,
    }


def test_scores_are_neither_written_nor_compared():
    one = sentence("Ann/B-X")
    found = read_tags(one, LABELS, [np.array([[0.0, 2.0, 0.0]])], 1.0)
    assert found.scores is not None
    assert msgspec.to_builtins(found).keys() == {"text", "entities"}
    assert found == Tagged(found.text, found.entities)
    assert read_tags(sentence(""), LABELS, [], 1.0).scores is None


def drawn(scale, size=600):
    """Return sentences of 1 to 5 words whose tags are drawn from a model, and its logits, too large by a factor."""
    rng, examples, logits = np.random.default_rng(0), [], []
    for _ in range(size):
        rows = 2 * rng.normal(size=(rng.integers(1, 6), 3))
        gold = (softmax(rows, 1).cumsum(1) < rng.random((len(rows), 1))).sum(1)
        examples.append(sentence(" ".join(f"w/{LABELS[tag]}" for tag in gold)))
        logits.append((scale * rows).astype(np.float32))
    return examples, logits


def read(task, examples, logits, tokenizer):
    framed = task.frame(tokenizer, examples, LABELS, gold=False)
    return framed.read(logits)


@pytest.mark.parametrize("scale", [0.5, 4.0])
def test_the_temperature_has_the_smallest_loss_of_the_words_and_changes_no_entity(tokenizer, scale):
    examples, logits = drawn(scale)
    before = read(TASK, examples, logits, tokenizer)
    tuned = TASK.tune(examples, before)
    rows, gold = np.concatenate(logits), [LABELS.index(tag) for one in examples for tag in one.tags]
    targets = smoothed(np.eye(len(LABELS))[gold])
    least = minimize_scalar(lambda t: -(targets * log_softmax(rows / t, 1)).sum(), bounds=(0.05, 20), method="bounded")
    assert tuned.temperature == pytest.approx(least.x, rel=1e-3)
    assert tuned.temperature == pytest.approx(scale, rel=0.2)
    assert (TASK.tunes, tuned.tunes, TokenClassification().tunes) == (True, False, False)
    after = read(tuned, examples, logits, tokenizer)
    strip = [[(it.label, it.start, it.end) for it in one.entities] for one in after]
    assert strip == [[(it.label, it.start, it.end) for it in one.entities] for one in before]
    calibration = tuned.calibration(examples, after)
    assert calibration["expected_calibration_error"] < calibration["without_temperature"]
    uncalibrated = TokenClassification().calibration(examples, before)["expected_calibration_error"]
    assert calibration["without_temperature"] == pytest.approx(uncalibrated, abs=1e-3)


def test_tags_of_another_scheme_are_not_compared(tokenizer):
    labels = ("O", "B-X", "I-X", "E-X", "S-X")
    found = read_tags(sentence("Ann/B-X"), labels, [np.eye(5)[4:]], 1.0)
    assert TokenClassification().calibration([sentence("Ann/B-X")], [found]) == {}


def test_a_bad_temperature_is_refused():
    with pytest.raises(ValueError, match=r"temperature must be a number from 0\.001 to 1000"):
        TokenClassification(temperature=0.0)


def test_a_tagger_is_calibrated_on_sentences_set_aside(fine_tuned, tmp_path):
    path, rng = tmp_path / "train.conll", np.random.default_rng(0)
    guesses = ["\n".join(f"Sea\t{tag}" for tag in rng.choice(["B-LOC", "O"], 6)) for _ in range(40)]
    path.write_text("\n\n".join(f"Dog\tB-PER\nsees\tO\n{guess}" for guess in guesses))
    run = fine_tuned("token-classification", path, tmp_path / "run", "task.temperature=tuned", "budget.steps=3")
    model = load(run)
    assert isinstance(model.task.temperature, float) and model.task.temperature != 1
    found = unmask.evaluate(run, path, quiet=True)
    assert found["calibration"]["temperature"] == model.task.temperature
    assert "expected_calibration_error" in found["calibration"]
