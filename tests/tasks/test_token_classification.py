"""Labels, the training of a tagger, its temperature: every word is predicted exactly once."""

import json

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AlbertTokenizer

from unmask.data.labelled.tagged_sentence import TaggedSentence, join_words, split_text, write_tags
from unmask.data.tokenizers.unigram import train_unigram
from unmask.inference.load import load
from unmask.inference.predictor import Predictor
from unmask.metrics.intervals import measure_all
from unmask.metrics.token_classification import Chunk
from unmask.model.model import Model, load_model, save_model
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import InputWarning, UserError
from unmask.support.settings import parse_overrides, write
from unmask.tasks.mistakes import Mark, worst_first
from unmask.tasks.tagged import Entity, Tagged, tags_of
from unmask.tasks.token_classification import TokenClassification
from unmask.training.machine import Machine
from unmask.workflows.finetuning.finetune import finetune
from unmask.workflows.finetuning.job import defaults

from .conftest import hold_out

TASK = TokenClassification()
LABELS = ("O", "B-X", "I-X", "B-Y", "I-Y")
CPU = Machine(torch.device("cpu"), "float32")


def tagged(text, *, line=1, **more):
    """Return a sentence from word/tag pairs; no tag means O."""
    pairs = [[*word.split("/"), "O"][:2] for word in text.split()]
    tags = tuple(tag for _, tag in pairs)
    return TaggedSentence(*join_words([word for word, _ in pairs]), tags, "a.conll", line, 1, **more)


WORDS = st.lists(st.text(min_size=1, max_size=9), min_size=1, max_size=40)


@given(WORDS, st.integers(3, 40), st.randoms(use_true_random=False))
def test_no_word_and_no_entity_is_lost_whatever_the_words_and_the_length(tokenizer, words, length, rng):
    found = []
    for start in range(0, len(words) - 3, 4):
        found.append(Chunk(rng.choice("XY"), start, start + rng.randint(1, 4)))
    sentence = TaggedSentence(*join_words(words), tuple(write_tags(found, len(words))))
    framed = TokenClassification(length=length).frame(tokenizer, [sentence] * 2, LABELS, gold=True)
    assert max(map(len, framed.samples)) <= length
    gold = np.concatenate([sample.labels["token_classification"] for sample in framed.samples])
    assert gold.tolist() == [LABELS.index(tag) for tag in sentence.tags] * 2, "each word is trained on once"
    logits = [np.eye(len(LABELS))[sample.labels["token_classification"]] * 50 for sample in framed.samples]
    predictions = framed.read(logits)
    for prediction in predictions:
        assert [(one.label, one.start, one.end) for one in prediction.entities] == sentence.entities
        assert all(prediction.text[one.start : one.end] == one.text for one in prediction.entities)
        assert tags_of(sentence, prediction) == list(sentence.tags)
    scores = measure_all(TASK.measure([sentence] * 2, predictions, LABELS), 2)
    assert not found or scores == {"precision": 100, "recall": 100, "f1": 100}


def test_the_label_is_at_the_first_subword(tokenizer):
    words = ["dog", "sea-side", "cat"]
    sentence = TaggedSentence(*join_words(words), ("B-X", "I-X", "O"))
    (sample,) = TASK.frame(tokenizer, [sentence], LABELS, gold=True).samples
    subwords = [tokenizer.encode(word).tolist() for word in words]
    assert len(subwords[1]) > 1
    assert sample.ids.tolist() == [tokenizer.cls, *(id for ids in subwords for id in ids), tokenizer.sep]
    assert sample.positions["first"].tolist() == [1, 1 + len(subwords[0]), 1 + len(subwords[0]) + len(subwords[1])]
    assert sample.labels["token_classification"].tolist() == [1, 2, 0]


def test_a_word_without_tokens_is_unknown(tokenizer):
    sentence = TaggedSentence(*join_words(["dog", "\u200b", "\x00", " ", "cat"]), ("O", "B-X", "O", "O", "O"))
    assert not len(tokenizer.encode("\u200b"))
    (sample,) = TASK.frame(tokenizer, [sentence], LABELS, gold=True).samples
    assert sample.ids[2:5].tolist() == [tokenizer.unk] * 3
    assert sample.labels["token_classification"].tolist() == [0, 1, 0, 0, 0]


def test_words_of_a_unigram_vocabulary_are_read_as_in_transformers(documents, tmp_path):
    """Compares ids and each word's first token; parity/test_token_classification.py covers byte-level BPE."""
    tokenizer = train_unigram(documents, size=150)
    tokenizer.save(tmp_path)
    theirs = AlbertTokenizer.from_pretrained(tmp_path)
    several = 0
    for words in (
        ["The", "sea-side", "dog", "don't", "see", "U.N.", "café", "3,5", "(", "``", "''tis", "now"],
        ["北京大学", "👩\u200d👧", "Ünïcode", "dog", "dog", "x\u0301", "▁", "▁dog", "a▁b", "New York", "teacherdogs"],
        ["dog"],
    ):
        sentence = TaggedSentence(*join_words(words), tuple(LABELS[n % len(LABELS)] for n in range(len(words))))
        (sample,) = TokenClassification(length=512).frame(tokenizer, [sentence], LABELS, gold=True).samples
        inputs = theirs(words, is_split_into_words=True)
        assert sample.ids.tolist() == inputs["input_ids"]
        owners = inputs.word_ids()
        several += len(owners) - 2 > len(words)
        assert sample.positions["first"].tolist() == [owners.index(word) for word in range(len(words))]
        assert [LABELS[n] for n in sample.labels["token_classification"]] == list(sentence.tags)
    assert several >= 2, "some words have several tokens"


def test_a_word_longer_than_a_window_keeps_its_beginning(tokenizer):
    sentence = TaggedSentence(*join_words(["dog", ",".join("abcdefgh"), "cat"]), ("O", "B-X", "O"))
    samples = TokenClassification(length=6).frame(tokenizer, [sentence], LABELS, gold=True).samples
    assert [sample.labels["token_classification"].tolist() for sample in samples] == [[0], [1], [0]]
    assert samples[1].ids[1:-1].tolist() == tokenizer.encode("a,b,c,d")[:4].tolist()


def test_labels_are_in_a_fixed_order():
    examples = [tagged("a/B-PER b/I-PER"), tagged("c/B-A-B"), tagged("d")]
    assert TASK.label_names(examples) == TASK.label_names(examples[::-1]) == ("O", "B-A-B", "I-A-B", "B-PER", "I-PER")
    with pytest.raises(UserError, match=r"a\.conll: no entity is tagged in 1 sentence; is it the right column"):
        TASK.label_names([tagged("d")])


def test_an_unknown_type_is_named_with_its_line(tokenizer):
    examples = [tagged("a/B-X"), tagged("b c/B-Z", line=7)]
    message = r"a\.conll:8: unknown type 'Z'; the model knows X, Y; correct the tag"
    with pytest.raises(UserError, match=message):
        TASK.frame(tokenizer, examples, LABELS, gold=True)
    with pytest.raises(UserError, match=message):
        TASK.measure(examples, [], LABELS)


@pytest.mark.parametrize("label", ["LABEL_0", "B_X", "i.X", "B–X"])
def test_a_model_whose_labels_are_not_tags_is_refused(tokenizer, label):
    with pytest.raises(UserError, match=f"a label of this model: '{label}' is not a tag .*id2label in config.json"):
        TASK.frame(tokenizer, [tagged("a")], ("O", label), gold=False)


@pytest.mark.parametrize(
    ("labels", "predicted", "expected"),
    [
        (("O", "B-X", "I-X"), "B-X I-X O I-X", [("X", 0, 2), ("X", 3, 4)]),
        (("I-X", "O"), "I-X I-X O I-X", [("X", 0, 2), ("X", 3, 4)]),
        (("S-X", "E-X", "O", "I-X", "B-X"), "B-X E-X S-X I-X", [("X", 0, 2), ("X", 2, 3), ("X", 3, 4)]),
        (("O", "B-X", "M-X", "E-X", "S-X", "B-Y"), "B-X M-X E-X B-Y", [("X", 0, 3), ("Y", 3, 4)]),
        (("B-X", "I-Y", "O"), "B-X I-Y I-Y O", [("X", 0, 1), ("Y", 1, 3)]),
    ],
)
def test_predictions_are_read_in_the_scheme_of_the_model(tokenizer, labels, predicted, expected):
    sentence = tagged("in New York now")
    framed = TASK.frame(tokenizer, [sentence], labels, gold=False)
    probabilities = np.full((4, len(labels)), 0.02)
    for word, tag in enumerate(predicted.split()):
        probabilities[word, labels.index(tag)] = 0.5 + word / 10
    probabilities /= probabilities.sum(1, keepdims=True)
    (prediction,) = framed.read([np.log(probabilities)])
    assert [(one.label, one.start, one.end) for one in prediction.entities] == sentence.in_text(
        [Chunk(*chunk) for chunk in expected]
    )
    for one, (_, start, stop) in zip(prediction.entities, expected, strict=True):
        assert one.probability == pytest.approx(probabilities[start:stop].max(1).min()), (
            "that of the least probable tag"
        )
    gold = TaggedSentence(
        sentence.text, sentence.starts, sentence.stops, tuple(write_tags([Chunk(*c) for c in expected], 4))
    )
    assert measure_all(TASK.measure([gold], [prediction], labels), 1)["f1"] == 100, (
        "the schemes of file and model may differ"
    )


def test_nothing_to_tag(tokenizer):
    framed = TASK.frame(tokenizer, [split_text(""), split_text(" \n")], LABELS, gold=False)
    assert framed.samples == []
    assert [(one.text, one.entities) for one in framed.read([])] == [("", []), (" \n", [])]


def test_a_tenth_is_held_out():
    alone = [tagged(f"a{line}", line=line) for line in range(100)]
    train, held = hold_out(TASK, alone, seed=0)
    assert sorted(one.line for one in train + held) == list(range(100))
    assert len(held) == 10
    assert hold_out(TASK, alone, seed=0)[1] == held != hold_out(TASK, alone, seed=1)[1]
    marked = [tagged("a", line=line, document=line // 5) for line in range(100)]
    train, held = hold_out(TASK, marked, seed=0)
    assert len(held) == 10
    assert not {one.document for one in train} & {one.document for one in held}, "documents are not split"
    with pytest.raises(UserError, match="3 sentences are too few to hold out a tenth"):
        hold_out(TASK, alone[:3], seed=0)


def test_settings():
    with pytest.raises(ValueError, match="length must be at least 3"):
        TokenClassification(length=2)
    rule = defaults("token-classification", read_recipe("bert-base").encoder, 100_000, pretrained=True)
    assert rule["task"] == {"kind": "token-classification", "length": 128}
    assert rule["budget"] == {"epochs": 4.0}


ROWS = [
    "Dog/B-PER River/I-PER sees the town of Sea/B-LOC .",
    "the teacher follows River/B-PER to Old/B-LOC Town/I-LOC ,",
    "In Garden/B-LOC and Market/B-LOC it rains",
    "nobody opens the letter under a tree",
]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory, tokenizer_directory):
    """A tiny tagger that has memorized four sentences and a longer one that exceeds a window."""
    here = tmp_path_factory.mktemp("tagger")
    body = read_recipe(
        "bert-tiny", parse_overrides(["encoder.layers=2", "encoder.width=32", "encoder.heads=2", "layout.length=48"])
    )
    body = msgspec.structs.replace(body, encoder=msgspec.structs.replace(body.encoder, positions=64, feed_forward=64))
    (here / "tiny.toml").write_text(write(body))
    rows = [*ROWS, " ".join(ROWS)]
    text = "\n\n".join("\n".join("\t".join([*word.split("/"), "O"][:2]) for word in row.split()) for row in rows)
    (here / "train.conll").write_text(text)
    rates = ["optimizer.learning_rate=5e-3", "budget.steps=100", "batch.sequences=8"]
    finetune(
        "token-classification",
        f"random:{here / 'tiny.toml'}",
        [here / "train.conll"],
        here / "run",
        dev=[here / "train.conll"],
        settings=parse_overrides([*rates, "task.length=40", "dropout=0.0"]),
        tokenizer=tokenizer_directory,
        device="cpu",
        precision="float32",
        quiet=True,
    )
    return here


def test_a_tagger_learns(tuned):
    result = json.loads((tuned / "run" / "dev.json").read_text())
    assert result["metrics"] == {"precision": 100, "recall": 100, "f1": 100}
    assert result["by_type"]["LOC"] == {"precision": 100, "recall": 100, "f1": 100, "entities": 8}
    assert result["task"] == "token-classification"
    model = load_model(tuned / "run")
    assert model.labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    assert model.task == TokenClassification(length=40)


def test_texts_and_words_are_tagged(tuned):
    pipeline = load(tuned / "run", device="cpu")
    text = "Dog River sees the town of Sea."
    found = pipeline.tag(text)
    assert (found.text, [(one.label, one.text) for one in found.entities]) == (
        text,
        [("PER", "Dog River"), ("LOC", "Sea")],
    )
    assert [text[one.start : one.end] for one in found.entities] == ["Dog River", "Sea"]
    assert all(0.5 < one.probability <= 1 for one in found.entities)
    words = pipeline.tag(["Dog", "River", "sees", "the", "town", "of", "Sea", "."])
    assert (words.text, [one.text for one in words.entities]) == (
        "Dog River sees the town of Sea .",
        ["Dog River", "Sea"],
    )
    with pytest.warns(InputWarning, match="^1 of 2 texts is empty$"):
        assert [one.text for one in pipeline.predict([text, ""])] == [text, ""]
    assert pipeline.predict(text)[0] == found
    long = pipeline.tag(" ".join([text] * 9))
    assert long.entities[-1].start > 8 * len(text), "nothing is truncated"
    with pytest.raises(UserError, match="a word is empty"):
        pipeline.tag(["a", ""])
    with pytest.raises(UserError, match="second texts have no effect"):
        pipeline.predict(["a"], ["b"])


def test_a_model_without_the_head_is_refused(tokenizer):
    encoder = read_recipe("bert-tiny").encoder.build(tokenizer.size)
    with pytest.raises(UserError, match=r"token classification; fine-tune it: unmask.finetune..token-class"):
        Predictor(Model(encoder, tokenizer), CPU).tag("a")


def test_the_label_order_is_kept_and_other_types_get_a_new_head(tuned, tmp_path, tokenizer, capsys):
    model = load_model(tuned / "run")
    order = tuple(reversed(model.labels))
    head = {name: value.flip(0) for name, value in model.heads["token_classification"].items()}
    save_model(
        tmp_path / "start", Model(model.encoder, tokenizer, {"token_classification": head}, order, model.task), ""
    )
    train = [tuned / "train.conll"]
    options = {
        "settings": {"budget.steps": 1, "optimizer.learning_rate": 1e-9},
        "device": "cpu",
        "precision": "float32",
    }
    finetune("token-classification", tmp_path / "start", train, tmp_path / "same", dev=train, quiet=True, **options)
    assert load_model(tmp_path / "same").labels == order
    assert json.loads((tmp_path / "same/dev.json").read_text())["metrics"]["f1"] == 100
    (tmp_path / "other").write_text((tuned / "train.conll").read_text().replace("LOC", "GPE") + "\n\nw\tI-PER\n")
    finetune("token-classification", tmp_path / "start", [tmp_path / "other"], tmp_path / "run", **options)
    output = capsys.readouterr().err
    assert "the token classification head (its own is for I-PER, B-PER, I-LOC, B-LOC, O)" in output
    assert f"{tmp_path / 'other'}: 1 entity outside the tagging scheme of the file" in output


def test_mistakes_are_marked_the_worst_first():
    correct, missed, both = (
        TaggedSentence("Ann sees Bob", (0, 4, 9), (3, 8, 12), ("B-PER", "O", "B-PER"), "a.conll", line)
        for line in (1, 5, 9)
    )
    ann, bob, location = (
        Entity("PER", 0, 3, "Ann", 0.9),
        Entity("PER", 9, 12, "Bob", 0.8),
        Entity("LOC", 9, 12, "Bob", 0.6),
    )
    predictions = [Tagged("Ann sees Bob", found) for found in ([ann, bob], [ann], [ann, location])]
    worst, second = worst_first(
        TokenClassification().mistakes([correct, missed, both], predictions, ("O", "B-LOC", "B-PER"))
    )
    assert (worst.caption, worst.score, second.caption, second.score) == ("a.conll:9", 2, "a.conll:5", 1)
    (passage,) = worst.passages
    assert passage.gold == (Mark(0, 3, "PER"), Mark(9, 12, "PER"))
    assert passage.predicted == (Mark(0, 3, "PER"), Mark(9, 12, "LOC"))
