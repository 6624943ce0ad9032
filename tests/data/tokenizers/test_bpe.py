"""Tests of byte-level BPE: same ids as transformers, deterministic training, offsets, the published vocabulary."""

import json
import random
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Library
from transformers import AutoTokenizer

import unmask
from unmask.data.batches.frame import Frame
from unmask.data.tokenizers.bpe import BERT_BPE, BPE, to_bytes, train_bpe
from unmask.data.tokenizers.load import load_tokenizer
from unmask.data.tokenizers.tokenizer import ROLES
from unmask.data.tokenizers.words import WordCache
from unmask.support.errors import UserError

from .conftest import BPE_TEXT as TEXT

MIXED = [
    "Hello there, wörld! It's 3.5% of Ångström naïve café.",
    "你好，世界。abc漢字",
    "😀 ❤️ a😀b \u200b\ufffd e\u0301",
    " two  spaces and a tab\tand\nlines \u3000 ",
    "written out <mask> and</s><s> <mask>ed",
    "x" * 120 + " end",
    "",
]


def test_the_ids_are_robertas(bpe):
    assert (bpe.cls, bpe.pad, bpe.sep, bpe.unk) == (0, 1, 2, 3)
    assert bpe.mask == bpe.size - 1
    assert 256 + 5 < bpe.size <= 500
    assert (bpe.kind, bpe.lowercase, bpe.ends_twice) == (BPE, False, True)
    assert {to_bytes(bpe.token(id)) for id in range(bpe.size)} >= {bytes([byte]) for byte in range(256)}
    assert bpe.tokens(bpe.encode(" the dog"))[0] == "Ġthe"


@given(st.text(max_size=60))
def test_any_text_comes_back(bpe, text):
    if not any(token.content in text for token in bpe.added_tokens):
        assert bpe.decode(bpe.encode(text)) == text
        assert b"".join(to_bytes(piece) for piece in bpe.tokens(bpe.encode(text))) == text.encode()


def test_parts_of_characters_are_told(bpe):
    def is_whole(token):
        try:
            to_bytes(token).decode()
        except UnicodeDecodeError:
            return False
        return True

    whole = [is_whole(token) for token in bpe.tokens(range(bpe.size))]
    assert bpe.parts_of_characters.tolist() == [not each for each in whole]
    assert bpe.parts_of_characters[bpe.encode("ქართული")].all()
    assert not bpe.parts_of_characters[bpe.encode("The dog.")].any()


def test_training_is_the_same_every_time(bpe):
    assert train_bpe(reversed(TEXT), size=500).sha256 == bpe.sha256
    assert train_bpe(TEXT, size=300).sha256 != bpe.sha256


@pytest.mark.parametrize(
    ("texts", "size", "message"),
    [(TEXT, 260, "at least 261 tokens: all bytes and the special tokens"), ([" ", "\n"], 300, "no text")],
)
def test_what_cannot_be_trained(texts, size, message):
    with pytest.raises(UserError, match=message):
        train_bpe(texts, size=size)


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.json"])
def test_transformers_reads_what_is_saved(bpe, tmp_path, name, same_ids):
    bpe.save(tmp_path, length=77)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    same_ids(bpe, theirs, [*MIXED, *TEXT])
    assert theirs.model_max_length == 77
    frame = Frame.of(bpe)
    first, second = bpe.encode("The dog"), bpe.encode(" the sea.")
    assert frame.wrap(first, second).ids.tolist() == theirs("The dog", " the sea.")["input_ids"]
    assert frame.wrap(first).ids.tolist() == theirs("The dog")["input_ids"]
    assert frame.capacity(20, texts=2) == 20 - len(frame.wrap(first[:0], second[:0]).ids)
    assert frame.wrap(first, second).segments.tolist() == [0] * (len(first) + 3) + [1] * (len(second) + 1)
    if name == "vocab.json":
        (tmp_path / "tokenizer.json").unlink()
    again = load_tokenizer(tmp_path)
    for text in (*MIXED, *TEXT):
        assert again.encode(text).tolist() == bpe.encode(text).tolist()
    assert (again.mask, again.special_ids, again.mask_token) == (bpe.mask, bpe.special_ids, "<mask>")


def test_offsets_are_characters_without_the_space_before(bpe):
    text = "The dog, naïve 彼 <mask> sea"
    ids, offsets = bpe.encode_offsets(text)
    assert all(start <= end for start, end in offsets)
    assert not any(text[start:end].startswith(" ") for start, end in offsets)
    found = {text[start:end] for start, end in offsets}
    assert {"The", "dog", ",", "<mask>", "sea"} <= found
    assert len(ids) == len(offsets)


def test_offsets_are_those_of_transformers(bpe, tmp_path):
    bpe.save(tmp_path)
    theirs, rng = AutoTokenizer.from_pretrained(tmp_path), random.Random(0)
    for _ in range(200):
        text = "".join(rng.choices([" ", "dog", "The", "é", "e\u0301", "\xa0", "🏳️\u200d🌈", "<mask>", "\n", "ิ"], k=8))
        encoded = theirs(text, add_special_tokens=False, return_offsets_mapping=True)
        ids, offsets = bpe.encode_offsets(text)
        assert (ids.tolist(), offsets) == (encoded["input_ids"], encoded["offset_mapping"])


def test_words_stand_apart_as_they_do_within_a_text(bpe):
    (dog,) = bpe.encode_separately(["dog"])
    assert dog.tolist() == bpe.encode("The dog")[-len(dog) :].tolist()


def test_a_cache_of_words_gives_the_same_ids(bpe):
    cache = WordCache(bpe, "int32")
    for text in (*MIXED, *TEXT):
        assert np.frombuffer(cache.encode(text), np.int32).tolist() == bpe.encode(text).tolist()


@pytest.mark.shared
def test_the_published_vocabulary_gives_the_ids_of_transformers(shared, mixed_lines, tmp_path):
    directory = shared / "vocabularies/roberta-base-hf"
    ours, theirs = (
        load_tokenizer(directory),
        AutoTokenizer.from_pretrained(directory, tokenizer_class="RobertaTokenizerFast"),
    )
    found = ours.encode_many(mixed_lines)
    expected = theirs(mixed_lines, add_special_tokens=False)["input_ids"]
    for line, ids, there in zip(mixed_lines, found, expected, strict=True):
        assert ids.tolist() == there, line
    assert (ours.cls, ours.pad, ours.sep, ours.unk, ours.mask, ours.size) == (0, 1, 2, 3, 50264, 50265)
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(directory / name, tmp_path)
    plain = load_tokenizer(tmp_path)
    assert all(map(np.array_equal, plain.encode_many(mixed_lines), found))
    assert plain.sha256 == ours.sha256, "a model continues from either"


def test_it_is_in_the_interface():
    assert unmask.train_bpe is train_bpe


@pytest.fixture
def modern(tmp_path):
    """A directory whose tokenizer.json has the structure of ModernBERT's."""
    library = Library(models.BPE())
    library.normalizer = normalizers.NFC()
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    library.train_from_iterator(
        TEXT, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    )
    library.add_tokens([AddedToken("|||EMAIL|||", normalized=False), AddedToken("    ", normalized=True)])
    names = ["[UNK]", "[CLS]", "[SEP]", "[PAD]"]
    mask = AddedToken("[MASK]", lstrip=True, normalized=False)
    library.add_special_tokens([*(AddedToken(name, normalized=False) for name in names), mask])
    library.add_tokens([f"[unused{number}]" for number in range(3)])
    ids = [(name, library.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    library.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=ids
    )
    library.save(str(tmp_path / "tokenizer.json"))
    special = {role: f"[{role[:-6].upper()}]" for role in ROLES}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 8192, **special}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


def test_a_vocabulary_like_modernberts_is_read_and_saved(modern, tmp_path, same_ids):
    ours, theirs = load_tokenizer(modern), AutoTokenizer.from_pretrained(modern)
    texts = [*MIXED, *TEXT, "Cafe\u0301 costs  3    euros |||EMAIL|||", "The [MASK] sees [SEP]"]
    same_ids(ours, theirs, texts)
    assert ours.encode("Cafe\u0301").tolist() == ours.encode("Café").tolist()
    assert (ours.kind, ours.mask_token, ours.ends_twice) == (BERT_BPE, "[MASK]", False)
    first, second = ours.encode("The dog"), ours.encode("the sea.")
    whole = Frame.of(ours).wrap(first, second).ids.tolist()
    assert whole == theirs("The dog", "the sea.")["input_ids"]
    assert whole == [ours.cls, *first, ours.sep, *second, ours.sep]
    ours.save(tmp_path / "again", segments=False)
    assert not (tmp_path / "again/vocab.json").exists()
    again, reread = load_tokenizer(tmp_path / "again"), AutoTokenizer.from_pretrained(tmp_path / "again")
    assert again.sha256 == ours.sha256
    same_ids(ours, reread, texts)
    assert reread("The dog", "the sea.")["input_ids"] == whole
    assert "token_type_ids" not in reread("The dog")


def test_a_frame_with_two_separators_is_robertas(bpe, tmp_path):
    bpe.save(tmp_path)
    assert load_tokenizer(tmp_path).kind is BPE
    bpe.save(tmp_path, summary="extract")
    assert load_tokenizer(tmp_path).kind is BPE
