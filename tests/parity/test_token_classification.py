"""A tagger is transformers' BertForTokenClassification: logits, loss and gradients, whoever wrote the directory.

Their side reads words with `is_split_into_words`, with the label at the first piece of each word and -100 elsewhere.
Sentences are of lengths that differ, so that theirs are padded and ours are not.
"""

import json

import numpy as np
import pytest
import safetensors.torch
import torch
from transformers import (
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertConfig,
    BertForTokenClassification,
    RobertaTokenizerFast,
)

import unmask
from unmask.batches.batch import collate
from unmask.checkpoints import huggingface
from unmask.families.bert import BertSettings
from unmask.labelled.sentence import Sentence, join_words
from unmask.metrics.token_classification import chunks
from unmask.model import Model, save_model
from unmask.objectives.learner import Learner
from unmask.tasks import token_classification
from unmask.tasks.token_classification import TokenClassification, TokenClassificationHead
from unmask.tokenizers.bpe import train_bpe
from unmask.tokenizers.load import load_tokenizer

SETTINGS = BertSettings(layers=2, width=32, heads=4, feed_forward=64, positions=64, init_std=0.3)
LABELS = ("O", "B-X", "I-X", "B-Y", "I-Y")
BIOES = ("E-Y", "S-X", "I-X", "O", "B-X", "S-Y", "I-Y", "E-X", "B-Y")
SENTENCES = [
    Sentence(*join_words(text.split()))
    for text in ("The sea-side dog sees the cat .", "The poem", "Under-the-tree", "The garden opens the letter . " * 5)
]


def gold_of(sentence, labels):
    """A number for each word, all of them in use."""
    return 3 * np.arange(len(sentence.starts)) % len(labels)


def ours(tokenizer, directory, labels=LABELS):
    """A model of ours, drawn at random and saved."""
    encoder = SETTINGS.build(tokenizer.size)
    head = TokenClassificationHead(SETTINGS.head, len(labels))
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    task = TokenClassification(length=SETTINGS.positions)
    model = Model(encoder, tokenizer, {"token_classification": head.state_dict()}, labels, task)
    save_model(directory, model, "card")


def theirs(tokenizer, directory, labels=LABELS):
    """A model of theirs, the same way."""
    config = BertConfig(
        vocab_size=tokenizer.size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.3,
        id2label=dict(enumerate(labels)),
        label2id={label: number for number, label in enumerate(labels)},
    )
    model = BertForTokenClassification(config)
    torch.nn.init.normal_(model.classifier.weight, std=0.5)
    torch.nn.init.normal_(model.classifier.bias)
    model.save_pretrained(directory)
    tokenizer.save(directory, length=64)


def of_theirs(directory, labels):
    """Logits of each sentence's words, the mean loss, and the gradients under our names."""
    model, report = AutoModelForTokenClassification.from_pretrained(directory, output_loading_info=True)
    assert not any(report.values()), report
    assert tuple(model.config.id2label[number] for number in range(len(labels))) == labels
    words = AutoTokenizer.from_pretrained(directory)
    inputs = words([one.words for one in SENTENCES], is_split_into_words=True, padding=True, return_tensors="pt")
    gold = torch.full(inputs["input_ids"].shape, -100)
    for row, sentence in enumerate(SENTENCES):
        places = {word: place for place, word in reversed([*enumerate(inputs.word_ids(row))]) if word is not None}
        gold[row, [places[word] for word in range(len(places))]] = torch.from_numpy(gold_of(sentence, labels))
    out = model.eval()(**inputs, labels=gold)
    out.loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    (directory / "gradients").mkdir()
    safetensors.torch.save_file(gradients, directory / "gradients" / "model.safetensors")
    model.config.save_pretrained(directory / "gradients")
    read = huggingface.read(directory / "gradients")
    named = {f"encoder.{name}": value for name, value in read.encoder.items()}
    named |= {f"objectives.token_classification.{name}": v for name, v in read.heads["token_classification"].items()}
    return [out.logits[row][gold[row] >= 0].detach() for row in range(len(SENTENCES))], out.loss.detach(), named


def of_ours(directory, labels):
    """The same of ours."""
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
    gradients = {name: p.grad for name, p in learner.named_parameters() if p.grad is not None}
    return [parts[sample.key] for sample in samples], loss.detach(), gradients


def assert_parity(directory, labels=LABELS):
    expected, their_loss, their_gradients = of_theirs(directory, labels)
    found, loss, gradients = of_ours(directory, labels)
    assert [len(rows) for rows in found] == [len(sentence.starts) for sentence in SENTENCES]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(loss, their_loss)
    assert torch.pdist(torch.cat(expected)).min() > 1e-3, "the words are told apart"
    assert gradients.keys() == their_gradients.keys()
    for name, value in their_gradients.items():
        assert (gradients[name] - value).norm() <= 1e-4 * value.norm(), name
    assert_same_entities(directory, expected, labels)


def assert_same_entities(directory, expected, labels):
    """What `predict` says is what the chunk rules read from the labels that their model gives."""
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


def test_a_tagger_read_and_written_again_stays_the_same(tokenizer, tmp_path):
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


def assert_words_are_read_as_there(tokenizer, directory):
    """Ids, and the label of each word at its first piece, are those of RoBERTa's tokenizer for words."""
    theirs = RobertaTokenizerFast.from_pretrained(directory, add_prefix_space=True)
    sentences = [
        Sentence(*join_words(words), tuple(LABELS[n] for n in 3 * np.arange(len(words)) % len(LABELS)))
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
            LABELS.index(sentence.tags[word]) if word is not None and owners.index(word) == place else -100
            for place, word in enumerate(owners)
        ]
        found = np.full(len(sample), -100)
        found[sample.positions["first"]] = sample.labels["token_classification"]
        assert found.tolist() == expected
    assert several > len(WORDS), "words have several pieces"


def test_words_of_a_byte_level_bpe_are_read_as_there(documents, tmp_path):
    tokenizer = train_bpe(documents, size=350)
    tokenizer.save(tmp_path)
    assert_words_are_read_as_there(tokenizer, tmp_path)


@pytest.mark.shared
def test_words_of_robertas_vocabulary_are_read_as_there(shared):
    directory = shared / "vocabularies/roberta-base-hf"
    assert_words_are_read_as_there(load_tokenizer(directory), directory)


def test_another_reading_of_words_is_noticed(documents, tmp_path, monkeypatch):
    tokenizer = train_bpe(documents, size=350)
    tokenizer.save(tmp_path)
    monkeypatch.setattr(type(tokenizer), "encode_separately", type(tokenizer).encode_many)  # without the space
    with pytest.raises(AssertionError):
        assert_words_are_read_as_there(tokenizer, tmp_path)


@pytest.mark.parametrize("planted", ["last piece", "labels", "head", "a word left out"])
def test_parity_notices_a_planted_fault(planted, tokenizer, tmp_path, monkeypatch):
    ours(tokenizer, tmp_path)
    if planted == "last piece":
        frame = TokenClassification.frame

        def faulty(*arguments, **options):
            framed = frame(*arguments, **options)
            for sample in framed.samples:
                places = sample.positions["first"]
                places[:] = np.append(places[1:], len(sample) - 1) - 1
            return framed

        monkeypatch.setattr(TokenClassification, "frame", faulty)
    elif planted == "labels":
        path = tmp_path / "config.json"
        config = json.loads(path.read_text())
        config["id2label"] = dict(zip("02134", LABELS, strict=True))
        path.write_text(json.dumps(config))
    elif planted == "head":
        monkeypatch.setattr(Model, "take", lambda self, name, head: True)  # it stays untrained
    else:
        classify = token_classification.classify
        monkeypatch.setattr(token_classification, "classify", lambda logits, gold: classify(logits[:-1], gold[:-1]))
    with pytest.raises(AssertionError):
        assert_parity(tmp_path)
