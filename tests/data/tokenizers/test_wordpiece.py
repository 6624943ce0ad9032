"""Tests of WordPiece: a trained vocabulary has BERT's layout, and training is deterministic."""

import pytest

from unmask.data.tokenizers.load import load_tokenizer
from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.support.errors import InputWarning, UserError

TEXTS = ["The cat sat on the mat, the Café cat. 你好 catty", "cats sat; matted cats 😀x 你们"] * 5


def test_layout_of_the_vocabulary():
    tokenizer = train_wordpiece(TEXTS, size=70)
    pieces = tokenizer.tokens(range(tokenizer.size))
    assert pieces[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    first = [piece for piece in pieces[5:] if len(piece) == 1]
    continuing = [piece for piece in pieces if piece.startswith("##") and len(piece) == 3]
    assert pieces[5 : 5 + len(first) + len(continuing)] == [*sorted(first), *sorted(continuing)]
    assert {"the", "cat", "你", "##x"} <= set(pieces)
    assert "##你" not in pieces
    assert tokenizer.size <= 70
    assert tokenizer.unk not in tokenizer.encode(" ".join(TEXTS))
    assert tokenizer.encode("[MASK] the").tolist() == [4, pieces.index("the")]
    assert tokenizer.decode(tokenizer.encode("The cafe cat")) == "the cafe cat"


def test_case_is_kept_where_wished(tmp_path):
    tokenizer = train_wordpiece(TEXTS, size=100, lowercase=False)
    assert not tokenizer.lowercase
    assert tokenizer.decode(tokenizer.encode("The Café")) == "The Café"
    tokenizer.save(tmp_path)
    assert load_tokenizer(tmp_path).sha256 == tokenizer.sha256


def test_texts_are_read_once():
    assert train_wordpiece(iter(TEXTS), size=70).sha256 == train_wordpiece(TEXTS, size=70).sha256


def test_no_text_is_refused():
    for texts in ([], ["", " \n\x00"]):
        with pytest.raises(UserError, match="no text"):
            train_wordpiece(texts, size=100)


def test_too_small_a_size_says_the_needed_one():
    with pytest.raises(UserError, match="at least 11 tokens"):
        train_wordpiece(["abc bca cab"], size=10)
    assert train_wordpiece(["abc bca cab"], size=11).size == 11


def test_words_that_are_too_long_are_left_out_and_told():
    with pytest.warns(InputWarning, match="9[0-9]% of the text is in words of more than 100 characters"):
        assert "z" not in train_wordpiece([*TEXTS, "z" * 5000], size=70).decode(range(40))
    train_wordpiece([*(TEXTS * 50), "z" * 101], size=70)  # a few are in any text
    with pytest.raises(UserError, match="every word of the text has more than 100 characters"):
        train_wordpiece(["z" * 5000], size=100)
