"""Annotations by offsets are learned and predicted in the given text; tags of words are learned and measured."""

import json

import numpy as np
import pytest
from sklearn.metrics import accuracy_score

from unmask.data.labelled.table import ExampleTable
from unmask.inference.calls import predict
from unmask.inference.evaluation.evaluate_model import evaluate
from unmask.inference.load import load
from unmask.metrics.intervals import measure_all
from unmask.support.errors import UserError
from unmask.tasks.token_classification import TokenClassification
from unmask.workflows.estimators import TokenClassifier

TASK = TokenClassification()
TEXTS = [
    ("Dog River  sees 😀 the town of Sea.", {"Dog River": "PER", "Sea": "LOC"}),
    ("the teacher follows River\r\nto Old Town,", {"River": "PER", "Old Town": "LOC"}),
    ("In Garden and Market it rains", {"Garden": "LOC", "Market": "LOC"}),
    ("nobody opens the letter under a tree", {}),
]
TAGS = ["Dog/NOUN sees/VERB the/DET town/NOUN", "the/DET dog/NOUN opens/VERB it/PRON", "it/PRON rains/VERB"]


def offsets(text, entities):
    return [[text.index(part), text.index(part) + len(part), kind] for part, kind in entities.items()]


def test_entities_by_offsets_are_learned_and_predicted_in_the_given_text(fine_tuned, tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps({"text": text, "label": offsets(text, of)}) + "\n" for text, of in TEXTS))
    run = fine_tuned("token-classification", path, tmp_path / "run", "budget.steps=80", "task.length=40")
    result = evaluate(run, path)
    assert result["metrics"] == {"precision": 100, "recall": 100, "f1": 100}
    for prediction, (text, entities) in zip(predict(run, path, quiet=True), TEXTS, strict=True):
        assert prediction.text == text
        assert [[one.start, one.end, one.label] for one in prediction.entities] == offsets(text, entities)
        assert all(text[one.start : one.end] == one.text for one in prediction.entities)


def test_tags_without_prefixes_of_a_model_of_entities_need_an_o(tokenizer):
    """Without any, the words of an entity were entities of their own, so a perfect prediction had an F1 of 0."""
    labels, logits = ("O", "PER"), np.array([[0.0, 9.0], [0.0, 9.0], [9.0, 0.0]])
    for tags, words in ((["PER", "PER", "O"], 3), (["PER", "PER"], 2)):
        table = ExampleTable("<test>", {"words": [["the", "dog", "rains"][:words]], "tags": [tags]})
        examples = TASK.read([table], columns={})
        framed = TASK.frame(tokenizer, examples, labels, gold=False)
        predictions = framed.read([logits[:words]])
        if "O" in tags:
            assert measure_all(TASK.measure(examples, predictions, labels), 1)["f1"] == 100
        else:
            with pytest.raises(UserError, match="<test>:1: 'PER' has no prefix, and the file has no O beside it"):
                TASK.measure(examples, predictions, labels)


@pytest.fixture(scope="module")
def tagger(fine_tuned, tmp_path_factory):
    """A tagger of parts of speech, and its data."""
    here = tmp_path_factory.mktemp("pos")
    rows = ["".join("\t".join(word.split("/")) + "\n" for word in row.split()) for row in TAGS]
    (here / "train.conll").write_text("\n".join(rows))
    run = fine_tuned("token-classification", here / "train.conll", here / "run", "budget.steps=70")
    return run, here / "train.conll"


def test_parts_of_speech_are_learned_and_measured(tagger, tmp_path):
    run, path = tagger
    model = load(run)
    assert model.labels == ("DET", "NOUN", "PRON", "VERB")
    result = evaluate(run, path)
    assert result["metrics"] == {"accuracy": 100, "precision": 100, "recall": 100, "f1": 100}
    assert result["by_type"]["NOUN"] == {"accuracy": 100, "precision": 100, "recall": 100, "f1": 100, "words": 3}
    assert result["calibration"]
    assert [one.label for one in model.tag("the dog opens it").entities] == ["DET", "NOUN", "VERB", "PRON"]
    predict(run, path, out=tmp_path / "tagged.conll", quiet=True)
    assert (tmp_path / "tagged.conll").read_text().strip() == path.read_text().strip()
    sentences = TASK.read([path], columns={})
    assert TASK.labelled(sentences, model.run(sentences)) == sentences


def test_wrong_tags_count(tagger):
    model = load(tagger[0])
    sentences = TASK.read([tagger[1]], columns={})
    predictions = model.run(sentences)
    rng = np.random.default_rng(0)
    changed = [type(one)(**{**vars(one), "tags": tuple(rng.permutation(one.tags).tolist())}) for one in sentences]
    metrics = measure_all(TASK.measure(changed, predictions, model.labels), len(changed))
    gold, predicted = ([tag for one in of for tag in one.tags] for of in (changed, TASK.labelled(changed, predictions)))
    assert metrics["accuracy"] == metrics["f1"] == pytest.approx(100 * accuracy_score(gold, predicted))
    assert metrics["accuracy"] < 100


def test_files_of_words_and_of_entities_are_not_mixed(tmp_path):
    (tmp_path / "a").write_text("Anna NOUN\n")
    (tmp_path / "b").write_text("Anna B-PER\n")
    examples = TASK.read([tmp_path / "a", tmp_path / "b"], columns={})
    with pytest.raises(UserError, match="'NOUN' is a tag of words, but other files have tags of entities"):
        TASK.label_names(examples)
    with pytest.raises(UserError, match="all words have the tag 'NOUN'; is it the right column"):
        TASK.label_names(examples[:1])


def test_settings_of_spans(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "😀 Annas", "label": [[3, 7, "X"]]}))
    with pytest.raises(UserError, match="begins or ends inside a word"):
        TokenClassification(inexact="refuse", units="utf-16").read([tmp_path / "a.jsonl"], columns={})
    notes = []
    (sentence,) = TokenClassification(units="utf-16").read([tmp_path / "a.jsonl"], columns={}, notes=notes)
    assert (sentence.tags, len(notes)) == (("O", "B-X"), 1)
    assert TokenClassifier.examples([sentence]) == ([["😀", "Annas"]], [["O", "B-X"]])


@pytest.mark.parametrize("name", ["out.doccano.jsonl", "out.labelstudio.json"])
def test_predictions_are_written_for_annotators(tagger, tmp_path, name):
    run, _ = tagger
    texts = ["the 😀 dog", "it rains", " "]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    predict(run, tmp_path / "texts.jsonl", out=tmp_path / name, quiet=True)
    content = (tmp_path / name).read_text()
    if name.endswith(".jsonl"):
        first = json.loads(content.splitlines()[0])
        assert first["label"][0][:2] == [0, 3]
        assert first["label"][2][:2] == [7, 10], "doccano counts UTF-16 units"
    else:
        tasks = json.loads(content)
        values = [result["value"] for result in tasks[0]["predictions"][0]["result"]]
        assert [tasks[0]["data"]["text"][value["start"] : value["end"]] for value in values] == ["the", "😀", "dog"]
        for one in tasks:
            one["annotations"] = one.pop("predictions")
        (tmp_path / name).write_text(json.dumps(tasks))
    again = TASK.read([tmp_path / name], columns={})
    model = load(run)
    for sentence, text in zip(again, texts, strict=False):
        assert sentence.text == text
        expected = [(one.label, one.start, one.end) for one in model.tag(text).entities]
        assert [(f"{kind}", start, stop) for kind, start, stop in sentence.entities] == expected
