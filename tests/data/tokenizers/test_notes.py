"""Tests of what users are told of texts that a vocabulary reads badly: bytes of characters, decomposed Unicode."""

import random
import unicodedata
import warnings

import numpy as np
import pytest

from unmask.data.tokenizers.bpe import to_bytes, train_bpe
from unmask.data.tokenizers.tokenizer import DECOMPOSED, PARTS
from unmask.data.tokenizers.train import train_vocabulary
from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.support.errors import InputWarning


def written(letters, number=40, words=60, seed=0):
    """Return texts of words of these letters, of which some words are frequent."""
    rng = random.Random(seed)
    known = ["".join(rng.choices(letters, k=rng.randint(2, 7))) for _ in range(words)]
    return [" ".join(rng.choices(known, [1 / (rank + 1) for rank in range(words)], k=30)) for _ in range(number)]


ENGLISH, ACCENTED = "abcdefghijklmnopqrstuvwxyz", "aäbcdeéèfgiïlmnñoörstuü"
HANGUL = "".join(map(chr, range(0xAC00, 0xAC30)))


def decomposed(texts):
    return [unicodedata.normalize("NFD", text) for text in texts]


def is_part(token):
    try:
        to_bytes(token).decode()
    except UnicodeDecodeError:
        return True
    return False


@pytest.mark.parametrize("script, told", [(0x10D0, True), (0x0E01, True), (0xAC00, True), (0x61, False)])
def test_parts_of_characters_are_counted(script, told):
    tokenizer = train_bpe(written(ENGLISH), size=400)
    texts = written("".join(map(chr, range(script, script + 26))), seed=1)
    encoded = tokenizer.encode_many(texts)
    tokens = [token for ids in encoded for token in tokenizer.tokens(ids)]
    parts = sum(map(is_part, tokens))
    assert tokenizer.notes(encoded, texts) == [f"{parts:,} of {len(tokens):,} {PARTS}"] * told


def test_emoji_are_no_language():
    tokenizer = train_bpe(written(ENGLISH), size=400)
    assert tokenizer.notes(tokenizer.encode_many(["so good 😀😀😀"]), ["so good 😀😀😀"]) == []


@pytest.mark.parametrize("letters", [ACCENTED, HANGUL])
@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_decomposed_texts_are_counted(kind, letters):
    texts = written(letters)
    tokenizer = train_vocabulary(kind, texts, size=600, lowercase=False)
    some = [*decomposed(texts[:7]), *texts[7:]]
    assert [str(note) for note in tokenizer.notes(tokenizer.encode_many(some), some) if DECOMPOSED in note] == [
        f"7 of 40 {DECOMPOSED}"
    ]
    assert tokenizer.notes(tokenizer.encode_many(texts), texts) == []


def test_nothing_is_said_where_composing_changes_nothing():
    texts = written(ACCENTED)
    stripped = train_wordpiece(texts, size=600, lowercase=True)
    assert stripped.notes([], decomposed(texts)) == []
    apart = train_bpe(decomposed(texts), size=600)
    assert apart.notes([], decomposed(texts)) == []
    plain = train_wordpiece(written(ENGLISH), size=300, lowercase=False)
    signs = ["a \u212b b \u2126", "क़"]  # have other composed forms, which are no shorter
    assert plain.notes([], signs) == []


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_learning_from_decomposed_text_is_told(kind):
    texts = decomposed(written(ACCENTED))
    total, composed = sum(map(len, texts)), sum(len(unicodedata.normalize("NFC", text)) for text in texts)
    with pytest.warns(InputWarning, match=f"^{1 - composed / total:.1%} of the characters are marks or letters"):
        tokenizer = train_vocabulary(kind, texts, size=600, lowercase=False)
    assert DECOMPOSED not in "".join(tokenizer.notes([], texts))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train_vocabulary(kind, written(ACCENTED), size=600, lowercase=False)


def test_counts_of_tokens_tell_as_much_as_the_tokens():
    tokenizer, texts = train_bpe(written(ENGLISH), size=400), written(HANGUL)
    encoded = tokenizer.encode_many(texts)
    counts = np.bincount(np.concatenate(encoded), minlength=tokenizer.size)
    assert tokenizer.count_notes(counts) == tokenizer.notes(encoded, texts) != []
