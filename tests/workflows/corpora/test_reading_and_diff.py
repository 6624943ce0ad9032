"""Texts to read, and the difference of two corpora."""

import json
import random

import pytest

import unmask
from unmask.cli.main import main
from unmask.data.corpus.build import write_corpus
from unmask.data.corpus.sample import SampledText
from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.support.errors import UserError
from unmask.workflows.corpora import diff as module


def test_texts_are_those_of_the_pages(webbed, pages):
    texts = unmask.sample_corpus(webbed.directory, count=5, quiet=True)
    known = [SampledText(page["text"].replace("\n", "\n\n"), page["url"]) for page in pages]
    places = [known.index(text) for text in texts]
    assert len(places) == 5 and places == sorted(places)
    assert texts != unmask.sample_corpus(webbed.directory, count=5, seed=1, quiet=True)
    assert unmask.sample_corpus(webbed.directory, count=1000, quiet=True) == known
    with pytest.raises(UserError, match="not a whole number of 1 or more"):
        unmask.sample_corpus(webbed.directory, count=0)


def test_without_texts_tokens_are_decoded(unsampled, capsys):
    texts = unmask.sample_corpus(unsampled.directory, count=3)
    assert "3 of 100 training documents, decoded tokens" in capsys.readouterr().err
    decoded = [text.text.replace("[UNK]", "") for text in texts]
    assert decoded == [text.lower() for text in decoded] and not any(text.url for text in texts)


def test_as_a_user_types_it(webbed, capsys):
    assert main(["corpus", "sample", str(webbed.directory), "--count", "2", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 2 and lines[0]["url"].startswith("https://")
    assert main(["corpus", "sample", str(webbed.directory), "--count", "2", "--quiet"]) == 0
    output, errors = capsys.readouterr()
    assert output.startswith(f"--- 1: {lines[0]['url']}\n{lines[0]['text'].splitlines()[0]}") and errors == ""
    assert main(["corpus", "diff", str(webbed.directory), str(webbed.directory)]) == 0
    assert "in both: 90 documents\n" in capsys.readouterr().out


@pytest.fixture
def other(webbed, documents, tmp_path):
    """Some of the documents of the other corpus, twice, and others."""
    path = tmp_path / "a.jsonl"
    texts = [*documents[60:81], *documents[60:70], *(f"{text} Near the ocean." for text in documents[100:110])]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return write_corpus([path], webbed.tokenizer, tmp_path / "corpus", heldout=None)


def test_what_two_corpora_have_in_common(webbed, other):
    difference = unmask.diff_corpora(webbed.directory, other.directory)
    assert difference.common == 21 and difference.sample == 1
    first, second = difference.first, difference.second
    assert (first.documents, first.different, second.documents, second.different) == (100, 90, 41, 31)
    assert (first.alone, second.alone) == (pytest.approx(69 / 90), pytest.approx(10 / 31))
    assert first.lengths[2] == pytest.approx(sorted(webbed.train.lengths())[49], abs=2)
    assert "editors." in [word for word, *_ in first.words]
    ((here, there),) = [rates for word, *rates in second.words if word == "ocean."]
    assert 4000 < here < 7000 and there == 0
    mirrored = unmask.diff_corpora(other.directory, webbed.directory)
    assert (mirrored.first, mirrored.second, mirrored.common) == (second, first, 21)


def test_of_large_corpora_a_sample_is_compared(webbed, other, monkeypatch):
    monkeypatch.setattr(module, "COMPARED", 70)
    difference = unmask.diff_corpora(webbed.directory, other.directory)
    assert difference.sample == pytest.approx(70 / 141)
    assert 60 < difference.first.different < 120 and 5 < difference.common < 45


def test_documents_of_different_vocabularies_are_not_compared(webbed, documents, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("\n\n".join(documents))
    corpus = write_corpus([tmp_path / "a.txt"], train_wordpiece(documents, size=150), tmp_path / "corpus")
    difference = unmask.diff_corpora(webbed.directory, corpus.directory)
    assert difference.common is None and difference.first.alone is None
    assert main(["corpus", "diff", str(webbed.directory), str(corpus.directory)]) == 0
    assert "documents are not compared: the vocabularies differ" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "told"), [("თბილისი ქალაქი", True), ("the dog and a cat", False)])
def test_text_that_the_vocabulary_lacks_is_told_at_the_end_of_a_build(words, told, tokenizer, tmp_path, capsys):
    rng, path = random.Random(0), tmp_path / "text.txt"
    path.write_text("\n\n".join(" ".join(rng.choices(words.split(), k=20)) for _ in range(30)), encoding="utf8")
    corpus = unmask.build_corpus([path], tokenizer, tmp_path / "corpus", workers=1)
    counts = corpus.train.token_counts()
    note = f"{counts[tokenizer.unk]:,} of {counts.sum():,} tokens are unknown to the vocabulary"
    assert (note in capsys.readouterr().err) == told
