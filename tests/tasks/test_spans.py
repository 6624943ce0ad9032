"""Spans: every span is classified once, whatever the length; the head's scores; what is settled; it learns."""

import json
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.batches.batch import Sample, collate
from unmask.data.labelled.annotations import read_annotations
from unmask.data.labelled.tagged_sentence import TaggedSentence, join_words, split_text
from unmask.families.bert import BertSettings
from unmask.inference.load import load
from unmask.inference.stream import save_predictions
from unmask.metrics.intervals import measure_all
from unmask.metrics.token_classification import Chunk
from unmask.nn.encoders.encoder import Encoded
from unmask.support.errors import UserError
from unmask.tasks import spans
from unmask.tasks.spans import UNTRAINED, SpanHead, Spans
from unmask.tasks.tagged import Entity, Tagged
from unmask.workflows.distillation.augment import rebuild, texts_of
from unmask.workflows.finetuning.finetune import finetune

LABELS = ("O", "X", "Y", "Z")
SHAPE = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=64, dropout=0.0, init_std=0.5)


def sentence(words, chunks=(), **more):
    return TaggedSentence(*join_words(words), spans=tuple(chunks), **more)


@st.composite
def sentences(draw):
    """Draw a sentence with any spans, at most one of the same words."""
    words = draw(st.lists(st.text(min_size=1, max_size=9), min_size=1, max_size=40))
    ends = (
        st.tuples(st.integers(0, len(words)), st.integers(0, len(words))).map(sorted).filter(lambda of: of[0] < of[1])
    )
    places = draw(st.lists(ends, max_size=8, unique_by=tuple))
    return sentence(words, [Chunk(draw(st.sampled_from(LABELS[1:])), *place) for place in sorted(places)])


@given(st.lists(sentences(), min_size=1, max_size=3), st.integers(3, 40), st.integers(1, 9))
def test_each_span_is_trained_on_and_read_once_whatever_the_length(tokenizer, examples, length, width):
    task = Spans(length=length, width=width, nested=True)
    framed = task.frame(tokenizer, examples, LABELS, gold=True)
    assert max(map(len, framed.samples)) <= length
    targets = [sample.labels["spans"].reshape(-1, width) for sample in framed.samples]
    assert [len(rows) for rows in targets] == [len(sample.positions["first"]) for sample in framed.samples]
    rng = np.random.default_rng(0)  # what is no span of a window may have any logits
    logits = [np.eye(4)[rows.clip(0)] * 50 for rows in targets]  # (words, widths, labels)
    for values, rows in zip(logits, targets, strict=True):
        values[rows == UNTRAINED] = rng.normal(size=(int((rows == UNTRAINED).sum()), 4)) * 9
    logits = [values.reshape(len(values), -1) for values in logits]
    predictions = framed.read(logits)
    gold = [list(example.spans) for example in examples]
    read = [list(example.spans) for example in task.labelled(examples, predictions)]
    assert all(set(some) <= set(every) for some, every in zip(read, gold, strict=True))
    missed = sum(map(len, gold)) - sum(map(len, read))
    noted = [note for note in framed.notes if "cannot be found" in str(note)]
    assert [note.number for note in noted] == ([missed] if missed else [])
    count = sum(len(example.starts) for example in examples)
    assert sum((rows[:, 0] != UNTRAINED).sum() for rows in targets) == count, "each word begins spans in one window"


@pytest.mark.parametrize("block", [1, 7, 1 << 14])
def test_scores_are_those_of_each_span_computed_alone(monkeypatch, block):
    monkeypatch.setattr(spans, "BLOCK", block)
    torch.manual_seed(0)
    encoder, head, widths = SHAPE.build(50), SpanHead(SHAPE.head, 4, 3).eval(), 3
    torch.nn.init.normal_(head.start.bias)
    batch = collate([_sample(number, number + 2) for number in range(4)])
    last = torch.randn(len(batch.tokens.ids), 16, requires_grad=True)
    logits = head.predict(encoder, Encoded(last, {}), batch).view(-1, widths, 4)
    first, offsets = batch.positions["first"], batch.tokens.offsets
    checked = 0
    weight = torch.cat([head.start.weight, head.end.weight, torch.eye(len(head.start.weight))], 1)
    expected, where = [], []
    for row, token in enumerate(first.tolist()):
        end = next(int(offset) for offset in offsets if offset > token)
        for width in range(widths):
            if row + width < len(first) and first[row + width] < end:
                parts = [last[token], last[first[row + width]], head.width.weight[width]]
                hidden = torch.nn.functional.gelu(weight @ torch.cat(parts) + head.start.bias)
                expected.append(head.out.weight @ hidden + head.out.bias)
                where.append((row, width))
                checked += 1
    assert checked > 10
    rows, columns = zip(*where, strict=True)
    torch.testing.assert_close(logits[list(rows), list(columns)], torch.stack(expected), rtol=1e-4, atol=1e-5)
    part = head.score(encoder, Encoded(last, {}), batch)
    gold = batch.labels["spans"].view(-1, widths)[list(rows), list(columns)]
    assert (batch.labels["spans"] != UNTRAINED).sum() == checked
    loss = torch.nn.functional.cross_entropy(torch.stack(expected), gold, reduction="sum")
    torch.testing.assert_close(part.sum, loss, rtol=1e-4, atol=1e-5)
    of_part, of_loss = (torch.autograd.grad(value, last, retain_graph=True)[0] for value in (part.sum, loss))
    torch.testing.assert_close(of_part, of_loss, rtol=1e-3, atol=1e-5)
    assert part.metrics["accuracy"] == (torch.stack(expected).argmax(1) == gold).sum()


def _sample(number, words):
    """Return a sequence of words of one token each, some of which are spans."""
    ids = np.arange(words + 2) + 5
    rng = np.random.default_rng(number)
    inside = np.arange(words)[:, None] + np.arange(3) < words
    gold = np.where(inside, rng.integers(0, 4, (words, 3)), UNTRAINED)
    positions, labels = {"first": 1 + np.arange(words)}, {"spans": gold.reshape(-1)}
    return Sample(key=(number,), ids=ids, positions=positions, labels=labels)


def test_a_batch_without_words_has_no_loss():
    encoder, head = SHAPE.build(50), SpanHead(SHAPE.head, 4, 3)
    batch = collate([_sample(0, 0)])
    part = head.score(encoder, Encoded(torch.randn(2, 16), {}), batch)
    assert part.sum == 0
    part.sum.backward()


def test_equal_targets_are_imitated_without_loss():
    head, batch = SpanHead(SHAPE.head, 4, 3), collate([_sample(number, 5) for number in range(3)])
    teacher, student = torch.randn(15, 12), torch.randn(15, 12)
    ignored = (batch.labels["spans"] == UNTRAINED).view(15, 3)[..., None].expand(15, 3, 4).reshape(15, 12)
    same = torch.where(ignored, student, teacher)
    assert head.imitate(same, teacher, batch, 2.0).sum.abs() < 1e-5
    assert head.imitate(student, teacher, batch, 2.0).sum > 1


def test_the_width_is_what_the_entities_need_and_nesting_whether_there_is_any():
    def settled(*widths, **given):
        examples = [sentence(["a"] * 60, [Chunk("X", 0, width)]) for width in widths]
        return Spans(**given).settle(examples, ("O", "X")).width

    assert settled(1, 3) == 3
    assert settled(*[2] * 99, 40) == 8  # 99 % are not wider
    assert settled(*[2] * 95, *[20] * 5) == 20
    assert settled(*[12] * 199, 40) == 12
    assert settled(1, 3, width=5) == 5
    flat = sentence(["a"] * 9, [Chunk("X", 0, 2), Chunk("X", 2, 4)])
    crossing = sentence(["a"] * 9, [Chunk("X", 0, 3), Chunk("X", 2, 4)])
    assert Spans().settle([flat], ("O", "X")).nested is False
    assert Spans().settle([flat, crossing], ("O", "X")).nested is True
    assert Spans(nested=False).settle([flat, crossing], ("O", "X")).nested is False


@given(st.integers(0, 10**6))
def test_without_nesting_the_most_probable_of_overlapping_entities_are_predicted(tokenizer, seed):
    rng, example = np.random.default_rng(seed), sentence(["dog"] * 9)
    logits = rng.normal(size=(9, 3 * 4)) * 3
    nested, flat = (
        Spans(width=3, nested=value).frame(tokenizer, [example], LABELS, gold=False).read([logits])[0].entities
        for value in (True, False)
    )
    expected = []
    for entity in sorted(nested, key=lambda of: -of.probability):
        if all(entity.end <= other.start or other.end <= entity.start for other in expected):
            expected.append(entity)
    assert flat == sorted(expected, key=lambda of: of.start)
    for entity in nested:
        start, width = entity.start // 4, len(entity.text.split())
        weights = np.exp(logits.reshape(9, 3, 4)[start, width - 1])
        assert entity.label == LABELS[weights.argmax()]
        assert entity.probability == pytest.approx(weights.max() / weights.sum())


@given(st.lists(sentences(), min_size=1, max_size=4), st.integers(0, 10**6))
def test_scores_are_those_of_sets(examples, seed):
    rng, predictions, right = np.random.default_rng(seed), [], 0
    for example in examples:
        drawn = [entity for entity in example.entities if rng.random() < 0.6]
        right += len(drawn)
        drawn += [entity._replace(type="W") for entity in example.entities if rng.random() < 0.3]
        predictions.append(Tagged(example.text, [Entity(*entity, "", 1.0) for entity in drawn]))
    scores = measure_all(Spans().measure(examples, predictions, LABELS), len(examples))
    gold, predicted = (
        sum(len(of) for of in each) for each in ([e.spans for e in examples], [p.entities for p in predictions])
    )
    assert scores["recall"] == pytest.approx(100 * right / gold if gold else 0)
    assert scores["precision"] == pytest.approx(100 * right / predicted if predicted else 0)


def test_types_that_the_model_does_not_know_are_refused():
    example = sentence(["a", "b"], [Chunk("V", 1, 2)], file="a.jsonl", line=3)
    with pytest.raises(UserError, match=r"a.jsonl:3: unknown type 'V'; the model knows X, Y, Z"):
        Spans().measure([example], [Tagged("a b", [])], LABELS)
    with pytest.raises(UserError, match="a span has the label 'O'"):
        Spans().label_names([sentence(["a"], [Chunk("O", 0, 1)])])
    with pytest.raises(UserError, match="there is no entity in 1 text"):
        Spans().label_names([sentence(["a"])])


def test_entities_are_found_in_variants_of_examples():
    example = sentence(["the", "old", "dog"], [Chunk("X", 0, 3), Chunk("Y", 2, 3)])
    (words,) = texts_of(example)
    assert words.protected == ((0, 11), (8, 11))
    moved = rebuild(example, [("the older dog", lambda offset: offset + 2 * (offset > 7))])
    assert moved.entities == [("X", 0, 13), ("Y", 10, 13)]


def nested(seed):
    """Return a text whose phrases "the A of B" are ORG, with the place B inside."""
    rng, parts, found = np.random.default_rng(seed), [], []
    for _ in range(3):
        offset = len(" ".join([*parts, ""]))
        place = rng.choice(["river", "garden", "sea"])
        if rng.random() < 0.5:
            phrase = f"the {rng.choice(['dog', 'cat', 'house'])} of {place}"
            found.append({"start": offset, "end": offset + len(phrase), "label": "ORG"})
        else:
            phrase = str(place)
        start = offset + len(phrase) - len(place)
        found.append({"start": start, "end": start + len(place), "label": "LOC"})
        parts += [phrase, "sees"]
    return {"text": " ".join(parts), "spans": found}


def test_nested_entities_are_learned_and_written_as_annotators_read_them(fine_tuned, tmp_path):
    train, test = tmp_path / "train.jsonl", tmp_path / "test.jsonl"
    train.write_text("\n".join(json.dumps(nested(seed)) for seed in range(200)))
    test.write_text("\n".join(json.dumps(nested(seed)) for seed in range(200, 240)))
    run = fine_tuned("spans", train, tmp_path / "run", "budget.steps=100", "task.length=40")
    predictor = load(run, device="cpu")
    assert (predictor.task.width, predictor.task.nested) == (4, True)
    examples = predictor.task.read([test], columns={})
    predictions = predictor.run(examples)
    scores = measure_all(predictor.task.measure(examples, predictions, predictor.labels), len(examples))
    assert min(scores.values()) > 95, scores
    (found,) = predictor.predict([examples[0].text])
    assert found == predictor.tag(examples[0].text)
    assert [entity.start for entity in found.entities] == [entity.start for entity in predictions[0].entities]
    for name in ("out.jsonl", "out.doccano.jsonl", "out.labelstudio.json"):
        save_predictions(predictor.task, tmp_path / name, examples, predictions)
        content = (tmp_path / name).read_text()
        if name.endswith(".json"):  # as people accept predictions
            (tmp_path / name).write_text(re.sub('"predictions"', '"annotations"', content))
        (again, *_) = read_annotations([tmp_path / name], columns={}, overlapping=True)
        assert again.entities == [(entity.label, entity.start, entity.end) for entity in predictions[0].entities]


def test_a_model_is_trained_further_on_shorter_entities(fine_tuned, tmp_path):
    """The width would otherwise follow the new entities, and the head would not fit."""
    train, short = tmp_path / "train.jsonl", tmp_path / "short.jsonl"
    train.write_text("\n".join(json.dumps(nested(seed)) for seed in range(20)))
    run = fine_tuned("spans", train, tmp_path / "run", "budget.steps=1")
    records = [nested(seed) for seed in range(20)]
    for record in records:
        record["spans"][0] = {"start": 0, "end": 3, "label": "ORG"}
        record["spans"] = [span for span in record["spans"] if " " not in record["text"][span["start"] : span["end"]]]
    short.write_text("\n".join(map(json.dumps, records)))
    finetune("spans", run, [short], tmp_path / "more", settings={"budget.steps": 1}, device="cpu", quiet=True)
    assert load(tmp_path / "more", device="cpu").task.width == load(run, device="cpu").task.width == 4


def test_words_without_annotations_are_read():
    example = Spans().from_texts(["A dog."])[0]
    assert example == split_text("A dog.")
    assert example.entities == []
