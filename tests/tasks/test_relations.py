"""Relations: markers around each pair of spans, long texts, what is refused; they are learned."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.labelled.annotations import read_annotations
from unmask.data.labelled.tagged_sentence import Relation, TaggedSentence, join_words
from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.inference.load import load
from unmask.inference.stream import save_predictions
from unmask.metrics.intervals import measure_all
from unmask.metrics.token_classification import Chunk
from unmask.support.errors import InputWarning, UserError
from unmask.tasks.relations import PredictedRelation, Related, Relations

from .test_spans import sentences

LABELS = ("O", "in", "of")


def sentence(words, chunks, relations=(), **more):
    return TaggedSentence(*join_words(words), spans=tuple(chunks), relations=tuple(relations), **more)


def test_the_spans_of_a_pair_are_marked():
    words = ["the", "house", "old", "river", "dog"]
    tokenizer = train_wordpiece([" ".join([*words, "place", *"@*#^"])] * 9, size=100)
    chunks = [Chunk("place", 0, 4), Chunk("river", 2, 4), Chunk("dog", 4, 5)]
    example = sentence(words, chunks, [Relation("in", 1, 0)])
    framed = Relations().frame(tokenizer, [example], LABELS, gold=True)
    marked = {}
    for sample, pair in zip(framed.samples, [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)], strict=True):
        (head,), (tail,) = sample.positions["head"], sample.positions["tail"]
        assert [tokenizer.token(int(sample.ids[at])) for at in (head, tail)] == ["@", "#"]
        assert sample.labels["relations"].tolist() == [1 if pair == (1, 0) else 0]
        marked[pair] = sample.ids[1:-1].tolist()
    for pair, text in {
        (0, 1): "@ * place * the house # ^ river ^ old river # @ dog",
        (1, 0): "# ^ place ^ the house @ * river * old river @ # dog",
        (2, 1): "the house # ^ river ^ old river # @ * dog * dog @",
    }.items():
        assert marked[pair] == tokenizer.encode(text).tolist()
    assert not framed.notes


def test_vocabularies_without_the_marks_are_noted(tokenizer):
    example = sentence(["dog", "cat"], [Chunk("X", 0, 1), Chunk("X", 1, 2)])
    (note,) = Relations().frame(tokenizer, [example], LABELS, gold=False).notes
    assert note.startswith("the vocabulary lacks a mark")


@given(sentences(), st.integers(12, 60), st.integers(0, 10**6))
def test_each_pair_that_fits_is_read_once_with_as_many_words_around_it_as_fit(tokenizer, example, length, seed):
    rng = np.random.default_rng(seed)
    pairs = [(a, b) for a in range(len(example.spans)) for b in range(len(example.spans)) if a != b]
    relations = [Relation(LABELS[1 + rng.integers(2)], *pair) for pair in pairs if rng.random() < 0.4]
    example = sentence(example.words, example.spans, relations)
    task = Relations(length=length)
    framed = task.frame(tokenizer, [example], LABELS, gold=True)
    whole = Relations(length=100_000).frame(tokenizer, [example], LABELS, gold=True).samples
    assert len(whole) == len(pairs)
    assert max(map(len, framed.samples), default=0) <= length
    missed = len(pairs) - len(framed.samples)
    assert [note.number for note in framed.notes if "not read" in str(note)] == ([missed] if missed else [])
    inside = [sample for sample in whole if len(sample) <= length]
    for sample in inside:  # read whole
        assert any(np.array_equal(sample.ids, other.ids) for other in framed.samples)
    logits = [np.eye(3)[sample.labels["relations"]] * 50 for sample in framed.samples]
    (prediction,) = framed.read(logits)
    (again,) = task.labelled([example], [prediction])
    assert set(again.relations) <= set(relations)
    assert missed or sorted(again.relations) == sorted(relations)
    assert [(of.label, of.start, of.end) for of in prediction.spans] == example.entities


@given(st.lists(sentences(), min_size=1, max_size=4), st.integers(0, 10**6))
def test_scores_are_those_of_sets(examples, seed):
    rng, gold, predictions, counts = np.random.default_rng(seed), [], [], np.zeros(3)
    for example in examples:
        numbers = range(len(example.spans))
        true, guessed = (
            {(a, b): LABELS[rng.integers(3)] for a in numbers for b in numbers if a != b} for _ in range(2)
        )
        gold.append(sentence(example.words, example.spans, [Relation(of, *at) for at, of in true.items() if of != "O"]))
        found = [PredictedRelation(of, *at, 0.5) for at, of in guessed.items() if of != "O"]
        predictions.append(Related(example.text, [], found))
        counts += [
            sum(of != "O" and guessed[at] == of for at, of in true.items()),
            sum(of != "O" for of in guessed.values()),
            sum(of != "O" for of in true.values()),
        ]
    scores = measure_all(Relations().measure(gold, predictions, LABELS), len(gold))
    right, predicted, relevant = counts
    assert scores["precision"] == pytest.approx(100 * right / predicted if predicted else 0)
    assert scores["recall"] == pytest.approx(100 * right / relevant if relevant else 0)
    assert scores["f1"] == pytest.approx(200 * right / (predicted + relevant) if predicted + relevant else 0)


def test_what_is_refused():
    task, pair = Relations(), [Chunk("X", 0, 1), Chunk("X", 1, 2)]
    unknown = sentence(["a", "b"], pair, [Relation("near", 0, 1)], file="a.jsonl", line=3)
    with pytest.raises(UserError, match=r"a\.jsonl:3: unknown relation 'near'; the model knows in, of"):
        task.measure([unknown], [Related("a b", [], [])], LABELS)
    with pytest.raises(UserError, match="no text has a relation"):
        task.label_names([sentence(["a", "b"], pair)])
    with pytest.raises(UserError, match="a relation has the label 'O'"):
        task.label_names([sentence(["a", "b"], pair, [Relation("O", 0, 1)])])
    with pytest.raises(UserError, match="this model finds relations between spans, and texts have none"):
        task.from_texts(["a b"])
    for spans in ([], [(0, 1, "X")], [(0, 1, "X"), (0, 1, "X")], [(0, 1, "X"), (1, 2, "Y")]):
        with pytest.raises(UserError, match="fewer than two spans of different words"):
            task.pose("a b", spans)
    with pytest.raises(UserError, match="the span 2–4 is not in the text of 3 characters"):
        task.pose("a b", [(0, 1, "X"), (2, 4, "Y")])


def test_words_with_tags_have_no_relations(tmp_path):
    (tmp_path / "a.conll").write_text("Anna B-X\nsees O\n")
    with pytest.raises(UserError, match=r"a\.conll: the file has words with tags, without spans"):
        Relations().read([tmp_path / "a.conll"], columns={})


def example_of(seed, clauses=1):
    """Return a text in which animals that see another one are related to it, and those that hear it the other way."""
    rng, words, spans, relations = np.random.default_rng(seed), [], [], []
    for _ in range(clauses):
        verb = rng.choice(["sees", "finds", "has"])
        for word in (rng.choice(["dog", "cat", "teacher"]), verb, rng.choice(["river", "house", "garden"]), "."):
            start = len(" ".join([*words, ""]))
            words.append(str(word))
            if word not in (verb, "."):
                spans.append({"start": start, "end": start + len(word), "label": "A"})
        number = len(spans)
        if verb != "has":
            ends = (number - 2, number - 1) if verb == "sees" else (number - 1, number - 2)
            relations.append({"head": ends[0], "tail": ends[1], "label": str(verb)})
    return {"text": " ".join(words), "spans": spans, "relations": relations}


def test_relations_are_learned_and_written_as_they_are_read(fine_tuned, tmp_path):
    train, test = tmp_path / "train.jsonl", tmp_path / "test.jsonl"
    train.write_text("\n".join(json.dumps(example_of(seed)) for seed in range(150)))
    test.write_text("\n".join(json.dumps(example_of(seed)) for seed in range(150, 180)))
    run = fine_tuned("relations", train, tmp_path / "run", "budget.steps=80", "task.length=40")
    predictor = load(run, device="cpu")
    examples = predictor.task.read([test], columns={})
    assert not any(example.relations for example in predictor.read(test))
    predictions = predictor.run(examples)
    scores = measure_all(predictor.task.measure(examples, predictions, predictor.labels), len(examples))
    assert min(scores.values()) > 95, scores
    spans = [(start, end, label) for label, start, end in examples[0].entities]
    with pytest.warns(InputWarning, match="the vocabulary lacks a mark"):
        found = predictor.relate(examples[0].text, spans)
    assert [(of.label, of.head, of.tail) for of in found.relations] == [
        (of.label, of.head, of.tail) for of in predictions[0].relations
    ]
    for name in ("out.jsonl", "out.doccano.jsonl", "out.labelstudio.json"):
        save_predictions(predictor.task, tmp_path / name, examples, predictions)
        content = (tmp_path / name).read_text().replace('"predictions"', '"annotations"')
        (tmp_path / name).write_text(content)
        again = read_annotations([tmp_path / name], columns={}, relations=True)
        assert [sorted(one.relations) for one in again] == [
            sorted(Relation(of.label, of.head, of.tail) for of in prediction.relations) for prediction in predictions
        ]
