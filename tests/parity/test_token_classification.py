"""Parity of token classification with transformers: logits, loss and gradients.

Directories are written by us and by transformers. Its tokenizer reads words with `is_split_into_words`; labels are at
the first token of each word, with -100 elsewhere. Sentences have different lengths, so that inputs are padded in
transformers but not here.
"""

import json

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import (
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertForTokenClassification,
    RobertaTokenizerFast,
)

import unmask
from unmask.data.batches.batch import collate
from unmask.data.labelled.tagged_sentence import TaggedSentence, join_words
from unmask.data.tokenizers.bpe import train_bpe
from unmask.data.tokenizers.load import load_tokenizer
from unmask.metrics.token_classification import chunks
from unmask.model.model import Model, save_model
from unmask.objectives.learner import Learner
from unmask.tasks.token_classification import TokenClassification, TokenClassificationHead

from .conftest import (
    SETTINGS,
    assert_same_gradients,
    gradients_by_our_names,
    load_theirs,
    our_gradients,
    their_config,
)

LABELS = ("O", "B-X", "I-X", "B-Y", "I-Y")
BIOES = ("E-Y", "S-X", "I-X", "O", "B-X", "S-Y", "I-Y", "E-X", "B-Y")
SENTENCES = [
    TaggedSentence(*join_words(text.split()))
    for text in ("The sea-side dog sees the cat .", "The poem", "Under-the-tree", "The garden opens the letter . " * 5)
]


def gold_of(sentence, labels):
    """Return a label number for each word; all labels occur."""
    return 3 * np.arange(len(sentence.starts)) % len(labels)


def ours(tokenizer, directory, labels=LABELS):
    """Write a random model as we do."""
    encoder = SETTINGS.build(tokenizer.size)
    head = TokenClassificationHead(SETTINGS.head, len(labels))
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    task = TokenClassification(length=SETTINGS.positions)
    model = Model(encoder, tokenizer, {"token_classification": head.state_dict()}, labels, task)
    save_model(directory, model, "card")


def theirs(tokenizer, directory, labels=LABELS):
    """Write a random model as transformers does."""
    model = BertForTokenClassification(their_config(tokenizer, labels))
    torch.nn.init.normal_(model.classifier.weight, std=0.5)
    torch.nn.init.normal_(model.classifier.bias)
    model.save_pretrained(directory)
    tokenizer.save(directory, length=64)


def of_theirs(directory, labels):
    """Return the logits of each sentence's words, the mean loss, and the gradients by our names."""
    model = load_theirs(AutoModelForTokenClassification, directory)
    assert tuple(model.config.id2label[number] for number in range(len(labels))) == labels
    reader = AutoTokenizer.from_pretrained(directory)
    inputs = reader([one.words for one in SENTENCES], is_split_into_words=True, padding=True, return_tensors="pt")
    gold = torch.full(inputs["input_ids"].shape, -100)
    for row, sentence in enumerate(SENTENCES):
        first = {word: index for index, word in reversed([*enumerate(inputs.word_ids(row))]) if word is not None}
        gold[row, [first[word] for word in range(len(first))]] = torch.from_numpy(gold_of(sentence, labels))
    out = model(**inputs, labels=gold)
    out.loss.backward()
    gradients = gradients_by_our_names(model, directory / "gradients")
    return [out.logits[row][gold[row] >= 0].detach() for row in range(len(SENTENCES))], out.loss.detach(), gradients


def of_ours(directory, labels):
    """Return the same of our model."""
    model = unmask.load(directory, device="cpu").model
    assert model.labels == labels
    head = model.task.build(model.encoder.head, model.labels)
    assert not model.take("token_classification", head)
    learner = Learner(model.encoder, {"token_classification": head}).eval()
    samples = []
    for sentence, sample in zip(
        SENTENCES, model.task.frame(model.tokenizer, SENTENCES, labels, gold=False).samples, strict=True
    ):
        sample = sample.add(labels={"token_classification": gold_of(sentence, labels)})
        samples.append(learner.prepare(sample))
    batch = collate(samples)
    logits = head.predict(model.encoder, model.encoder(batch.tokens), batch).detach()
    parts = dict(
        zip(batch.keys, logits.split([len(samples[n].positions["first"]) for _, n in batch.keys]), strict=True)
    )
    loss = learner(batch)["token_classification"].sum / batch.counts["token_classification"]
    loss.backward()
    return [parts[sample.key] for sample in samples], loss.detach(), our_gradients(learner)


def assert_parity(directory, labels=LABELS):
    expected, their_loss, their_gradients = of_theirs(directory, labels)
    found, loss, gradients = of_ours(directory, labels)
    assert [len(rows) for rows in found] == [len(sentence.starts) for sentence in SENTENCES]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(loss, their_loss)
    assert torch.pdist(torch.cat(expected)).min() > 1e-3, "logits differ between the words"
    assert_same_gradients(gradients, their_gradients)
    assert_same_entities(directory, expected, labels)


def assert_same_entities(directory, expected, labels):
    """Check that our predictions are the chunks of the labels that transformers' model predicts."""
    predictions = unmask.load(directory, device="cpu").run(SENTENCES)
    assert any(prediction.entities for prediction in predictions)
    for sentence, prediction, rows in zip(SENTENCES, predictions, expected, strict=True):
        found = chunks([labels[number] for number in rows.argmax(1)])
        probabilities = rows.softmax(1).amax(1)
        assert [(one.label, one.start, one.end) for one in prediction.entities] == sentence.in_text(found)
        for one, chunk in zip(prediction.entities, found, strict=True):
            assert one.probability == pytest.approx(float(probabilities[chunk.start : chunk.stop].min()), abs=1e-5)


@pytest.mark.parametrize("labels", [LABELS, BIOES])
@pytest.mark.parametrize("make", [ours, theirs])
def test_parity(make, labels, tokenizer, tmp_path):
    make(tokenizer, tmp_path, labels)
    assert_parity(tmp_path, labels)


def test_reading_and_writing_a_tagger_preserves_it(tokenizer, tmp_path):
    theirs(tokenizer, tmp_path / "theirs")
    save_model(tmp_path / "ours", unmask.load(tmp_path / "theirs").model, "card")
    first, again = (of_theirs(tmp_path / name, LABELS)[0] for name in ("theirs", "ours"))
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    assert unmask.load(tmp_path / "theirs").model.task == TokenClassification(length=64)


WORDS = [
    ["The", "sea-side", "dog", "don't", "see", "U.N.", "café", "3,5", "(", "«", "\u2019tis", "now"],
    ["北京大学", "👩\u200d👧", "Ünïcode", "dog", "dog", "x\u0301", "\u200b", "aaaaaaaaaaaaaaaaaaaa"],
    ["dog"],
]


def assert_words_are_read_as_by_roberta(tokenizer, directory):
    """Check that ids, and the label of each word at its first token, are those of RoBERTa's tokenizer for words."""
    theirs = RobertaTokenizerFast.from_pretrained(directory, add_prefix_space=True)
    sentences = [
        TaggedSentence(*join_words(words), tuple(LABELS[n] for n in 3 * np.arange(len(words)) % len(LABELS)))
        for words in WORDS
    ]
    samples = TokenClassification(length=512).frame(tokenizer, sentences, LABELS, gold=True).samples
    several = 0
    for sentence, sample in zip(sentences, samples, strict=True):
        inputs = theirs(sentence.words, is_split_into_words=True)
        assert sample.ids.tolist() == inputs["input_ids"]
        owners = inputs.word_ids()
        several += len(owners) - 2 - len(set(owners) - {None})
        expected = [
            LABELS.index(sentence.tags[word]) if word is not None and owners.index(word) == index else -100
            for index, word in enumerate(owners)
        ]
        found = np.full(len(sample), -100)
        found[sample.positions["first"]] = sample.labels["token_classification"]
        assert found.tolist() == expected
    assert several > len(WORDS), "some words have several tokens"


def test_words_of_a_byte_level_bpe_are_read_as_by_roberta(documents, tmp_path):
    tokenizer = train_bpe(documents, size=350)
    tokenizer.save(tmp_path)
    assert_words_are_read_as_by_roberta(tokenizer, tmp_path)


@pytest.mark.shared
def test_words_of_robertas_vocabulary_are_read_as_by_roberta(shared):
    directory = shared / "vocabularies/roberta-base-hf"
    assert_words_are_read_as_by_roberta(load_tokenizer(directory), directory)


def test_reading_words_without_a_leading_space_is_noticed(documents, tmp_path, monkeypatch):
    tokenizer = train_bpe(documents, size=350)
    tokenizer.save(tmp_path)
    monkeypatch.setattr(type(tokenizer), "encode_separately", type(tokenizer).encode_many)  # without the space
    with pytest.raises(AssertionError):
        assert_words_are_read_as_by_roberta(tokenizer, tmp_path)


@pytest.mark.parametrize("planted", ["last piece", "labels", "head", "a word left out"])
def test_parity_notices_a_planted_fault(planted, tokenizer, tmp_path, monkeypatch):
    ours(tokenizer, tmp_path)
    if planted == "last piece":
        frame = TokenClassification.frame

        def faulty(*arguments, **options):
            framed = frame(*arguments, **options)
            for sample in framed.samples:
                first = sample.positions["first"]
                first[:] = np.append(first[1:], len(sample) - 1) - 1
            return framed

        monkeypatch.setattr(TokenClassification, "frame", faulty)
    elif planted == "labels":
        path = tmp_path / "config.json"
        config = json.loads(path.read_text())
        config |= {"id2label": dict(zip("02134", LABELS, strict=True)), "label2id": {}}
        path.write_text(json.dumps(config))
    elif planted == "head":
        monkeypatch.setattr(Model, "take", lambda self, name, head: True)  # the head keeps its random weights
    else:
        monkeypatch.setattr(
            "unmask.tasks.pooled_head.cross_entropy",
            lambda logits, gold, *options, **named: cross_entropy(logits[:-1], gold[:-1], *options, **named),
        )
    with pytest.raises(AssertionError):
        assert_parity(tmp_path)
