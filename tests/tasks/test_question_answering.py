"""Question answering: settings, the search over windows, the threshold, the loss of the head, mistakes."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from unmask.data.batches.batch import collate
from unmask.data.labelled.question_files import Answer, Question
from unmask.data.tokenizers.train import train_vocabulary
from unmask.metrics import question_answering as metrics
from unmask.objectives.learner import Learner
from unmask.support.errors import UserError
from unmask.tasks.answer_head import AnswerHead
from unmask.tasks.extraction import Answered, Span
from unmask.tasks.mistakes import Mark, worst_first
from unmask.tasks.question_answering import QuestionAnswering, best_threshold

from .conftest import hold_out


def question(id, text, passage, answer=None, **more):
    answers = (Answer(answer, passage.index(answer)),) if answer else ()
    return Question(id, text, passage, answers, not answer, "f.json", f"question {id}", **more)


# Settings


@pytest.mark.parametrize(
    ("length", "stride", "limit", "answer"), [(384, 128, 64, 30), (512, 128, 64, 30), (128, 42, 21, 10), (12, 4, 2, 1)]
)
def test_short_windows_have_short_strides_questions_and_answers(length, stride, limit, answer):
    task = QuestionAnswering(length=length)
    assert (task.stride, task.question, task.answer) == (stride, limit, answer)
    assert QuestionAnswering(length=length, stride=3).stride == 3


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"length": 128, "question": 64, "stride": 52}, "windows with 61 tokens of a passage, 52 apart, do not hold"),
        ({"length": 64, "stride": 60}, "do not hold every answer of 5 tokens: increase length, or decrease stride"),
        ({"length": 3}, "windows with -1 tokens"),
        ({"stride": -1}, "stride must be at least 1"),
        ({"answer": -2}, "answer must be at least 1"),
        ({"best": 0}, "best must be at least 1"),
    ],
)
def test_settings_that_would_lose_answers_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        QuestionAnswering(**values)


def test_no_answer_is_allowed_if_training_questions_have_none():
    some, none = question("a", "a?", "b c", "b"), question("b", "a?", "b c")
    task = QuestionAnswering()
    assert task.settle([some], ()).no_answer is False
    assert task.settle([some, none], ()).no_answer is True
    assert QuestionAnswering(no_answer=True).settle([some], ()).no_answer is True
    with pytest.raises(UserError, match=r"f\.json: question b has no answer, but task\.no_answer is false"):
        QuestionAnswering(no_answer=False).settle([some, none], ())
    with pytest.raises(UserError, match=r"task\.threshold has no effect: every question has an answer"):
        QuestionAnswering(threshold=0.5).settle([some], ())


def test_training_needs_answers_that_occur_in_their_passages():
    task = QuestionAnswering()
    some = question("a", "a?", "b c", "b")
    nowhere = Question("b", "a?", "b c", (Answer("x", None),), False, "f.json", "question b")
    with pytest.raises(
        UserError, match=r"f\.json: question b: the answer 'x' occurs nowhere in its passage; correct or"
    ):
        task.label_names([some, nowhere])
    with pytest.raises(UserError, match="none of the 1 questions has an answer"):
        task.label_names([question("b", "a?", "b c")])
    one_of_two = Question("c", "a?", "b c", (Answer("x", None), Answer("b", 0)))
    assert task.label_names([some, one_of_two]) == ()


def test_a_tenth_of_the_passages_is_held_out():
    examples = [question(f"{i}-{j}", "a?", f"b {i}", "b") for i in range(40) for j in range(1 + i % 3)]
    task = QuestionAnswering(no_answer=True)
    train, held = hold_out(task, examples, seed=0)
    assert sorted(one.id for one in train + held) == sorted(one.id for one in examples)
    assert abs(len(held) - len(examples) / 10) <= 1.5
    assert not {one.passage for one in held} & {one.passage for one in train}
    assert hold_out(task, examples, seed=0) == (train, held)
    assert hold_out(task, examples, seed=1) != (train, held)
    with pytest.raises(UserError, match="3 passages are too few to hold out a tenth"):
        hold_out(task, examples[:5], seed=0)
    assert task.tunes
    for other in (QuestionAnswering(no_answer=False), QuestionAnswering(no_answer=True, threshold=0.0)):
        assert not other.tunes


def test_questions_that_cannot_be_trained_on_are_reported(tokenizer):
    task = QuestionAnswering(length=64, no_answer=False)
    framed = task.frame(tokenizer, [question("a", "a?", "the dog")], (), gold=True)
    assert framed.samples == []
    (note,) = framed.notes
    assert "they have no answer, but the model always gives one: 1" in note


@pytest.mark.parametrize("no_answer", [None, False, True])
def test_questions_that_are_wrong_whatever_the_answer_are_noted(tokenizer, no_answer):
    examples = [question("a", "a?", "the dog"), question("b", "a?", "the dog", "dog"), question("c", "a?", "a dog")]
    notes = QuestionAnswering(length=64, no_answer=no_answer).frame(tokenizer, examples, (), gold=False).notes
    assert ["to which the model always gives one" in note and note.endswith(": 2") for note in notes] == (
        [] if no_answer else [True]
    )


def test_columns_and_formats_are_for_rows(tmp_path):
    for name, idle in (("columns", {"columns": {"text": "0"}}), ("format", {"columns": {}, "kind": "tsv"})):
        with pytest.raises(UserError, match=f"^{name} has no effect"):
            QuestionAnswering().read([tmp_path], **idle)


# Search


def brute_force(task, example, windows, logits):
    """Return the best score of each text among all spans of all windows."""
    scores = {}
    for window, values in zip(windows, logits, strict=True):
        values = values[task.no_answer :]
        for i in range(len(values)):
            for j in range(i, min(len(values), i + task.answer)):
                text = example.passage[window[i][0] : window[j][1]]
                scores[text] = max(scores.get(text, -np.inf), float(values[i, 0] + values[j, 1]))
    return scores


@pytest.mark.parametrize("no_answer", [False, True])
def test_windows_are_compared_by_their_logits(tokenizer, no_answer):
    task = QuestionAnswering(length=24, question=4, stride=6, answer=5, no_answer=no_answer, best=7)
    passage = (
        "the dog sees the cat near the sea . the poem follows the river , the cat finds the garden in the old town"
    )
    examples = [question("a", "dog", passage), question("b", "the cat", passage[:40])]
    framed = task.frame(tokenizer, examples, (), gold=False)
    rng = np.random.default_rng(0)
    logits = [rng.normal(size=(len(it.positions["passage"]), 2)).astype(np.float32) for it in framed.samples]
    found = framed.read(logits)
    assert [(one.id, one.question) for one in found] == [("a", "dog"), ("b", "the cat")]
    taken = 0
    for example, answered in zip(examples, found, strict=True):
        words = len(tokenizer.encode(example.question)) + 2
        offsets, number = tokenizer.encode_offsets(example.passage)[1], 0
        windows, begin = [], 0
        while True:
            windows.append(offsets[begin : begin + 24 - words - 1])
            number += 1
            if begin + 24 - words - 1 >= len(offsets):
                break
            begin += 6
        own = logits[taken : taken + number]
        taken += number
        scores = brute_force(task, example, windows, own)
        best = sorted(scores, key=lambda text: -scores[text])[:7]
        spans = [span for span in answered.nbest if span.answer]
        assert [span.answer for span in spans] == best
        assert all(example.passage[span.start : span.end] == span.answer for span in spans)
        null = min(float(values[0].sum()) for values in own)
        expected = torch.tensor([scores[text] for text in best] + [null] * no_answer, dtype=torch.float64).softmax(0)
        probabilities = {span.answer: span.probability for span in answered.nbest}
        assert [probabilities[text] for text in best + [""] * no_answer] == pytest.approx(expected.tolist())
        assert list(probabilities.values()) == sorted(probabilities.values(), reverse=True)
        assert answered.answer == answered.nbest[0].answer
        assert answered.margin == pytest.approx(null - scores[best[0]] if no_answer else 0)
    assert taken == len(logits)


@pytest.mark.parametrize(("threshold", "answer"), [(None, ""), (0.0, ""), (2.9, ""), (3.1, "dog")])
def test_no_answer_must_exceed_the_best_by_the_threshold(tokenizer, threshold, answer):
    task = QuestionAnswering(length=64, no_answer=True, threshold=threshold)
    framed = task.frame(tokenizer, [question("a", "the", "the dog sees the cat")], (), gold=False)
    values = np.zeros((len(framed.samples[0].positions["passage"]), 2), np.float32)
    index = tokenizer.encode_offsets("the dog sees the cat")[1].index((4, 7))
    values[1 + index], values[0] = 2.0, 3.5  # 4 for "dog", 7 for no answer
    (found,) = framed.read([values])
    assert found.answer == answer
    assert (found.start, found.end) == ((4, 7) if answer else (None, None))
    assert found.margin == pytest.approx(3)
    assert found.probability == next(span.probability for span in found.nbest if span.answer == answer)


def test_no_answer_starts_or_ends_with_a_space(documents):
    """In a byte-level vocabulary, whitespace may be a token by itself."""
    tokenizer, passage = train_vocabulary("bpe", documents, size=350, lowercase=False), "  dog  dog\xa0cat\u3000 "
    task = QuestionAnswering(length=64, answer=30)
    framed = task.frame(tokenizer, [question("a", "the", passage)], (), gold=False)
    rng = np.random.default_rng(0)
    (found,) = framed.read([rng.normal(size=(len(framed.samples[0].positions["passage"]), 2)).astype(np.float32)])
    texts = [span.answer for span in found.nbest]
    assert {"dog", "cat", "dog  dog"} < set(texts)
    assert all(text == text.strip() for text in texts)
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("no_answer", [False, True])
def test_a_passage_without_tokens_has_no_answer(tokenizer, no_answer):
    task = QuestionAnswering(length=64, no_answer=no_answer)
    framed = task.frame(tokenizer, [Question("a", "dog", "\u200b\u0301")], (), gold=False)
    (sample,) = framed.samples
    (found,) = framed.read([np.zeros((len(sample.positions["passage"]), 2), np.float32)])
    assert (found.answer, found.start, found.end) == ("", None, None)


# Threshold


def answered(text, margin):
    """Return a prediction with this best answer and this margin of "no answer"."""
    none = 1 / (1 + np.exp(-margin))
    return Answered("q", "a?", text, 0, 1, 1 - none, (Span(text, 0, 1, 1 - none), Span("", None, None, none)))


def total_f1(examples, predictions, threshold):
    predicted = ["" if one.margin > threshold else one.nbest[0].answer for one in predictions]
    gold = [tuple(answer.text for answer in one.answers) for one in examples]
    return metrics.example_scores(gold, predicted, "SQuAD")[:, 1].sum()


@pytest.mark.seeds(20)
def test_the_threshold_is_the_best_one(seed):
    rng = np.random.default_rng(seed)
    number = int(rng.integers(1, 40))
    examples, predictions = [], []
    for _ in range(number):
        gold = str(rng.choice(["x", "x y", "z"])) if rng.random() < 0.6 else None
        examples.append(question("a", "a?", "x y z", gold))
        margin = float(np.round(rng.normal(loc=-1 if gold else 1), 1))  # with ties
        predictions.append(answered(str(rng.choice(["x", "y", "z"])), margin))
    threshold = best_threshold(examples, predictions)
    tried = [total_f1(examples, predictions, value) for value in np.arange(-8, 8, 0.05) + 0.025]
    assert total_f1(examples, predictions, threshold) == pytest.approx(max(tried))
    task = QuestionAnswering(no_answer=True).tune(examples, predictions)
    assert (task.threshold, task.no_answer) == (threshold, True)


def test_the_threshold_nearest_to_0_is_chosen_among_equals():
    examples = [question("a", "a?", "x y", "x"), question("b", "a?", "x y")]
    assert best_threshold(examples, [answered("x", -3.0), answered("x", 2.0)]) == pytest.approx(-0.5)
    assert best_threshold(examples[:1], [answered("x", -3.0)]) == pytest.approx(-2.0)
    assert best_threshold(examples[1:], [answered("x", -3.0)]) == pytest.approx(-4.0)


# Head


def windows_of(tokenizer, no_answer):
    text = "the dog sees the cat near the sea . the poem follows the river . the cat finds the garden"
    examples = [
        question("a", "who sees", text, "dog"),
        question("b", "a", text, "the cat near"),
        question("c", "the", text[:30], "cat"),
    ]
    task = QuestionAnswering(length=24, question=4, stride=6, answer=5, no_answer=no_answer)
    return task.frame(tokenizer, [*examples, question("d", "b", text)] if no_answer else examples, (), gold=True)


@pytest.mark.parametrize("no_answer", [False, True])
def test_the_loss_is_the_sum_of_those_of_single_windows(tokenizer, recipe, no_answer):
    encoder, head = recipe.encoder.build(tokenizer.size), AnswerHead(recipe.encoder.head)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    learner = Learner(encoder, {"question_answering": head}).eval()
    samples = [learner.prepare(sample) for sample in windows_of(tokenizer, no_answer).samples]
    assert len({len(sample) for sample in samples}) > 1
    assert any(not sample.labels["question_answering"].any() for sample in samples) == no_answer
    expected, correct = 0.0, 0
    for sample in samples:
        last = encoder(collate([sample]).tokens).last
        logits = (last @ head.out.weight.T + head.out.bias)[sample.positions["passage"]]
        gold = np.searchsorted(sample.positions["passage"], sample.labels["question_answering"])
        losses = [cross_entropy(logits[None, :, i], torch.tensor([gold[i]])) for i in (0, 1)]
        expected += float(sum(losses).detach()) / 2
        correct += logits.argmax(0).tolist() == gold.tolist()
    batch = collate(samples)
    part = learner(batch)["question_answering"]
    assert batch.counts == {"question_answering": len(samples)}
    assert float(part.sum.detach()) == pytest.approx(expected, rel=1e-5)
    assert int(part.metrics["accuracy"]) == correct
    assert not part.metrics["accuracy"].requires_grad
    assert part.sum.dtype == learner.bfloat16()(batch)["question_answering"].sum.dtype == torch.float32


# Mistakes


def test_mistakes_are_marked_in_the_passage():
    text = "the dog sees the cat"
    examples = [question(str(number), "what?", text, "cat") for number in range(3)]
    spans = [("cat", 17, 20, 0.9), ("dog", 4, 7, 0.4), ("the dog", 0, 7, 0.8)]
    predictions = [Answered(one.id, one.question, *span, ()) for one, span in zip(examples, spans, strict=True)]
    worst, second = worst_first(QuestionAnswering().mistakes(examples, predictions, ()))
    assert (worst.predicted, worst.gold, worst.score, second.predicted) == ("the dog", "cat", 0.8, "dog")
    asked, passage = worst.passages
    assert (asked.name, asked.text, passage.text) == ("question", "what?", text)
    assert passage.gold == (Mark(17, 20),)
    assert passage.predicted == (Mark(0, 7),)
    none = Answered("0", "what?", "", None, None, 0.7, ())
    (mistake,) = QuestionAnswering(no_answer=True).mistakes(examples[:1], [none], ())
    assert (mistake.predicted, mistake.passages[1].predicted) == ("no answer", ())
