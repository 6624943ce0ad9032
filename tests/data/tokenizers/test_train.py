"""Tests of training a vocabulary of any kind."""

import os
import subprocess
import sys

import pytest

from unmask.data.tokenizers.bpe import train_bpe
from unmask.data.tokenizers.train import CASED, PADDING, train_vocabulary
from unmask.data.tokenizers.unigram import train_unigram
from unmask.data.tokenizers.word_level import train_words
from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.support.errors import UserError

TEXTS = ["The cat sat on the mat, the Café cat.", "cats sat; matted cats"] * 5
TRAIN = """
import random
import unmask
draw = random.Random(0)
words = ["".join(draw.choices("abcdefgh", k=draw.randint(1, 6))) for _ in range(2000)]
for train in (unmask.train_wordpiece, unmask.train_bpe, unmask.train_unigram):
    print(train((" ".join(words[i:i + 50]) for i in range(0, 2000, 50)), size=600).sha256)
"""


def test_training_is_the_same_in_every_process():
    hashes = set()
    for seed, threads in (("1", "1"), ("2", "4"), ("3", "2")):
        environment = os.environ | {"PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads}
        hashes.add(
            subprocess.run([sys.executable, "-c", TRAIN], env=environment, capture_output=True, check=True).stdout
        )
    assert len(hashes) == 1 and len({*hashes.pop().split()}) == 3, "each kind has a hash of its own"


@pytest.mark.parametrize("train", [train_wordpiece, train_bpe, train_unigram])
def test_one_string_is_no_list_of_texts(train):
    with pytest.raises(UserError, match=r"'articles\.txt' is one text; give an iterable"):
        train("articles.txt", size=300)


@pytest.mark.parametrize(("kind", "train"), [("wordpiece", train_wordpiece), ("unigram", train_unigram)])
@pytest.mark.parametrize("lowercase", [True, False])
def test_each_kind_is_trained_by_its_function(kind, train, lowercase):
    tokenizer = train_vocabulary(kind, iter(TEXTS), size=120, lowercase=lowercase)
    assert tokenizer.sha256 == train(TEXTS, size=120, lowercase=lowercase).sha256
    assert (tokenizer.kind.name, tokenizer.lowercase, tokenizer.pad) == (kind, lowercase, PADDING[kind])


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize(("kind", "train"), [("bpe", train_bpe), ("words", train_words)])
def test_others_are_always_cased(kind, train, lowercase):
    tokenizer = train_vocabulary(kind, TEXTS, size=300, lowercase=lowercase)
    assert tokenizer.sha256 == train(TEXTS, size=300).sha256
    assert (tokenizer.kind.name, tokenizer.lowercase, tokenizer.pad) == (kind, False, PADDING[kind])
    assert CASED == ("bpe", "words")


@pytest.mark.parametrize("kind", list(PADDING))
def test_no_text_and_too_small_a_size_are_refused(kind):
    size = 5 if kind == "words" else 7
    with pytest.raises(UserError, match="there is no text to train a tokenizer on"):
        train_vocabulary(kind, [], size=300, lowercase=True)
    with pytest.raises(UserError, match=rf"^a vocabulary of {size} is too small.*; it needs at least"):
        train_vocabulary(kind, TEXTS, size=size, lowercase=True)


def test_text_whose_words_are_all_too_long_for_wordpiece_gets_the_remedy():
    texts = ["ACGT" * 100, "TTGA" * 50]
    with pytest.raises(UserError, match=r"every word of the text has more than 100 characters.*; train .* unigram"):
        train_vocabulary("wordpiece", texts, size=300, lowercase=True)
    assert train_vocabulary("unigram", texts, size=300, lowercase=True).encode(texts[0]).size > 1
