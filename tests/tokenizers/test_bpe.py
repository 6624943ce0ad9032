"""Byte-level BPE: ids are those of transformers, training is the same every time, words begin where they should."""

import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

import unmask
from unmask.batches.frame import Frame
from unmask.errors import UserError
from unmask.tokenizers.bpe import BPE, to_bytes, train_bpe
from unmask.tokenizers.load import load_tokenizer
from unmask.tokenizers.word_cache import WordCache
from unmask.tokenizers.words import WordStarts

TEXT = [
    "The dog sees the house near the sea, and the teacher likes the old bridge.",
    "Größe, naïve café; 彼得住在哪裡？ 😀 x=3.5% don't stop",
    "Привет, мир! Привет, дом! ภาษาไทย",
] * 20
MIXED = [
    "Hello there, wörld! It's 3.5% of Ångström naïve café.",
    "你好，世界。abc漢字",
    "😀 ❤️ a😀b \u200b\ufffd e\u0301",
    " two  spaces and a tab\tand\nlines \u3000 ",
    "written out <mask> and</s><s> <mask>ed",
    "x" * 120 + " end",
    "",
]


@pytest.fixture(scope="module")
def trained():
    return train_bpe(TEXT, size=500)


def test_the_ids_are_robertas(trained):
    assert (trained.cls, trained.pad, trained.sep, trained.unk) == (0, 1, 2, 3)
    assert trained.mask == trained.size - 1
    assert 256 + 5 < trained.size <= 500
    assert (trained.kind, trained.lowercase, trained.ends_twice) == (BPE, False, True)
    assert {to_bytes(trained.token(id)) for id in range(trained.size)} >= {bytes([byte]) for byte in range(256)}
    assert trained.tokens(trained.encode(" the dog"))[0] == "Ġthe"


@given(st.text(max_size=60))
def test_any_text_comes_back(trained, text):
    if not any(token.content in text for token in trained.added_tokens):
        assert trained.decode(trained.encode(text)) == text
        assert b"".join(to_bytes(piece) for piece in trained.tokens(trained.encode(text))) == text.encode()


def test_training_is_the_same_every_time(trained):
    assert train_bpe(reversed(TEXT), size=500).sha256 == trained.sha256
    assert train_bpe(TEXT, size=300).sha256 != trained.sha256


@pytest.mark.parametrize(
    ("texts", "size", "message"),
    [(TEXT, 260, "at least 261 tokens: all bytes and the special tokens"), ([" ", "\n"], 300, "no text")],
)
def test_what_cannot_be_trained(texts, size, message):
    with pytest.raises(UserError, match=message):
        train_bpe(texts, size=size)


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.json"])
def test_transformers_reads_what_is_saved(trained, tmp_path, name, same_ids):
    trained.save(tmp_path, length=77)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    same_ids(trained, theirs, [*MIXED, *TEXT])
    assert theirs.model_max_length == 77
    frame = Frame.of(trained)
    first, second = trained.encode("The dog"), trained.encode(" the sea.")
    assert frame.wrap(first, second).ids.tolist() == theirs("The dog", " the sea.")["input_ids"]
    assert frame.wrap(first).ids.tolist() == theirs("The dog")["input_ids"]
    assert frame.capacity(20, texts=2) == 20 - len(frame.wrap(first[:0], second[:0]).ids)
    assert frame.wrap(first, second).segments.tolist() == [0] * (len(first) + 3) + [1] * (len(second) + 1)
    if name == "vocab.json":
        (tmp_path / "tokenizer.json").unlink()
    again = load_tokenizer(tmp_path)
    for text in (*MIXED, *TEXT):
        assert again.encode(text).tolist() == trained.encode(text).tolist()
    assert (again.mask, again.special_ids, again.mask_token) == (trained.mask, trained.special_ids, "<mask>")


def test_offsets_are_characters_without_the_space_before(trained):
    text = "The dog, naïve 彼 <mask> sea"
    ids, offsets = trained.encode_offsets(text)
    assert all(start <= end for start, end in offsets)
    assert not any(text[start:end].startswith(" ") for start, end in offsets)
    found = {text[start:end] for start, end in offsets}
    assert {"The", "dog", ",", "<mask>", "sea"} <= found
    assert len(ids) == len(offsets)


def test_words_stand_apart_as_they_do_within_a_text(trained):
    (dog,) = trained.encode_separately(["dog"])
    assert dog.tolist() == trained.encode("The dog")[-len(dog) :].tolist()


def test_a_cache_of_words_gives_the_same_ids(trained):
    cache = WordCache(trained, "int32")
    for text in (*MIXED, *TEXT):
        assert np.frombuffer(cache.encode(text), np.int32).tolist() == trained.encode(text).tolist()


def words(tokenizer, text):
    """The words of a text, as bytes."""
    ids = tokenizer.encode(text)
    begins = tokenizer.begins_word(ids)
    assert begins[:1].all()
    pieces = [to_bytes(piece) for piece in tokenizer.tokens(ids)]
    found = []
    for piece, new in zip(pieces, begins, strict=True):
        if new:
            found.append(b"")
        found[-1] += piece
    return found


def test_where_words_begin(trained):
    """Pieces of one byte alone, and the trained ones: the same words."""
    alone = train_bpe(["a"], size=261)
    for tokenizer in (trained, alone):
        assert words(tokenizer, "The old dog, isnt it?") == [b"The", b" old", b" dog", b",", b" isnt", b" it", b"?"]
        assert words(tokenizer, "Größe naïve Привет") == ["Größe".encode(), " naïve".encode(), " Привет".encode()]
        assert words(tokenizer, "日本語 人") == [one.encode() for one in ("日", "本", "語", " 人")]
        assert words(tokenizer, "e\u0301a x1y2") == ["e\u0301a".encode(), b" x1y2"]


def test_what_goes_on_begins_no_word(trained):
    """Marks and what is not seen: joiners, soft hyphens."""
    alone = train_bpe(["a"], size=261)
    for tokenizer in (trained, alone):
        for text in ("می\u200cخواهم", "ക്ഷ\u200dമ", "soft\u00adhyphen", "cafe\u0301s"):
            assert words(tokenizer, text) == [text.encode()], text
    pieces = ["ท", "ี", "่", "ร", "ู้", "は", "\u3099", "な", "な\u3099"]
    starts = WordStarts(piece.encode() for piece in pieces)  # bytes of a character apart do not tell marks from letters
    for ids, expected in (([0, 1, 2, 3, 4], [1, 0, 0, 1, 0]), ([5, 6, 7, 8, 6], [1, 0, 1, 1, 0])):
        assert starts(np.array(ids))[1:].tolist() == [bool(begins) for begins in expected[1:]]


@given(st.text(alphabet="ab 1é中ท.,'\n", max_size=30))
def test_no_word_is_split(trained, text):
    """Wherever a word begins, no run of letters and digits and no character is cut."""
    at = 0
    raw = text.encode()
    for word in words(trained, text) if text else []:
        assert word
        if at:
            before, after = raw[:at].decode(), raw[at:].decode()  # raises where a character is cut
            spaced = after[:1].isspace() or before[-1:].isspace()
            unspaced = any(one in "中ท" for one in (before[-1:], after[:1]))
            assert spaced or unspaced or not (before[-1:].isalnum() and after[:1].isalnum())
        at += len(word)


def test_special_tokens_are_words_of_their_own():
    starts = WordStarts([None, b"a", b"b", b" c"])
    assert starts(np.array([1, 2, 0, 2, 3, 1])).tolist() == [True, False, True, True, True, False]
    assert starts(np.array([], np.int64)).tolist() == []


def test_damaged_files_are_named(trained, tmp_path):
    trained.save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    merges = (tmp_path / "merges.txt").read_text(encoding="utf8").splitlines()
    (tmp_path / "merges.txt").write_text("\n".join([*merges[:3], "three pieces here", *merges[3:]]), encoding="utf8")
    with pytest.raises(UserError, match=r"merges\.txt:4: not two tokens separated by a space"):
        load_tokenizer(tmp_path)
    (tmp_path / "merges.txt").write_text("\n".join([*merges, "zzz qqq"]), encoding="utf8")
    with pytest.raises(UserError, match=r"vocab\.json: does not match merges\.txt"):
        load_tokenizer(tmp_path)
    (tmp_path / "merges.txt").unlink()
    with pytest.raises(UserError, match=r"merges\.txt: cannot be read"):
        load_tokenizer(tmp_path)
    (tmp_path / "vocab.json").write_text("{}")
    (tmp_path / "merges.txt").write_text("")
    with pytest.raises(UserError, match="the vocabulary"):
        load_tokenizer(tmp_path)


@pytest.mark.shared
def test_the_published_vocabulary_gives_the_ids_of_transformers(shared, mixed_lines, tmp_path):
    directory = shared / "vocabularies/roberta-base-hf"
    ours, theirs = (
        load_tokenizer(directory),
        AutoTokenizer.from_pretrained(directory, tokenizer_class="RobertaTokenizerFast"),
    )
    found = ours.encode_many(mixed_lines)
    for line, ids in zip(mixed_lines, found, strict=True):
        assert ids.tolist() == theirs.encode(line, add_special_tokens=False), line
    assert (ours.cls, ours.pad, ours.sep, ours.unk, ours.mask, ours.size) == (0, 1, 2, 3, 50264, 50265)
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(directory / name, tmp_path)
    plain = load_tokenizer(tmp_path)
    assert all(map(np.array_equal, plain.encode_many(mixed_lines), found))
    assert plain.sha256 == ours.sha256, "a model goes on from either"


def test_it_is_in_the_interface():
    assert unmask.train_bpe is train_bpe
