"""Tests of what occurs again in a corpus, against counting of strings, and of reading documents in blocks."""

from collections import Counter

import numpy as np
import pytest

from unmask.data.corpus import corpus as module
from unmask.data.corpus.build import write_corpus
from unmask.data.corpus.repeats import PASSAGE, count_repeats, equal_documents
from unmask.support.errors import UserError


@pytest.fixture
def repeating(tmp_path, make_documents, tokenizer):
    """200 documents, some of them twice, a long passage in many, and a sentence in most."""
    passage = " ".join(make_documents(30, seed=7))
    texts = make_documents(200, seed=3)
    texts = [f"{text} The dog ran away." if number % 2 else text for number, text in enumerate(texts)]
    texts = [f"{passage} {text}" if number % 20 == 0 else text for number, text in enumerate(texts)]
    path = tmp_path / "a.txt"
    path.write_text("\n".join([*texts, *texts[50:70]]))
    from unmask.data.text.documents import TextOptions

    options = TextOptions(documents="line")
    return write_corpus([path], tokenizer, tmp_path / "corpus", heldout=None, options=options, shard_tokens=1500)


def test_documents_passages_and_sentences_are_counted(repeating):
    documents, tokenizer = repeating.train, repeating.tokenizer
    sentences = [[tuple(ids.tolist()) for ids in documents.sentences(index)] for index in range(len(documents))]
    texts = [sum(each, ()) for each in sentences]
    windows = Counter(text[at : at + PASSAGE] for text in texts for at in range(len(text) - PASSAGE + 1))
    repeats = count_repeats(documents, tokenizer)
    assert (repeats.documents, repeats.tokens) == (len(documents), documents.num_tokens)
    assert repeats.unknown == sum(text.count(tokenizer.unk) for text in texts)
    assert repeats.passages == pytest.approx(1 - len(windows) / windows.total()) and repeats.passages > 0.1
    assert repeats.frequent_passages[0].count == max(windows.values())
    counts = Counter(sentence for each in sentences for sentence in each)
    frequent = {sentence: count for sentence, count in counts.items() if count >= 10}
    tokens = sum(count * len(sentence) for sentence, count in frequent.items())
    assert repeats.frequent_share == pytest.approx(tokens / documents.num_tokens)
    most = max(frequent, key=lambda sentence: frequent[sentence] * len(sentence))
    found = repeats.frequent_sentences[0]
    assert (found.count, found.tokens, found.text) == (frequent[most], len(most), tokenizer.decode(most))
    assert equal_documents(documents).repeated == pytest.approx(1 - len(set(map(tuple, sentences))) / len(documents))


@pytest.mark.parametrize("size", [1, 700, 1 << 20])
def test_blocks_have_all_documents(repeating, monkeypatch, size):
    monkeypatch.setattr(module, "BLOCK_TOKENS", size)
    documents, index = repeating.train, 0
    for block in documents.blocks():
        assert block.first == index
        for start, end in zip(block.documents[:-1], block.documents[1:], strict=True):
            bounds = block.sentences[
                np.searchsorted(block.sentences, start) : np.searchsorted(block.sentences, end) + 1
            ]
            parts = np.split(block.ids[start:end], bounds[1:-1] - start)
            assert [part.tolist() for part in parts] == [part.tolist() for part in documents.sentences(index)]
            index += 1
    assert index == len(documents)


def test_of_large_corpora_some_blocks_are_read(repeating, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_TOKENS", 300)
    read = sum(len(block.ids) for block in repeating.train.blocks(enough=2000))
    assert 1000 < read < 3500 < repeating.train.num_tokens


@pytest.mark.parametrize("kind", ["tokens", "sentences", "documents", "checksums"])
def test_D1_damage_is_named(repeating, kind):
    path = repeating.directory / f"train-00001.{kind}.npy"
    with path.open("r+b") as file:
        file.seek(-5, 2)
        byte = file.read(1)
        file.seek(-5, 2)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(UserError, match="train-00001"):
        list(repeating.train.blocks())
