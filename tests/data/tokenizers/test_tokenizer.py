"""Tests of the tokenizer: same ids as transformers, which loads saved directories; checksums; offsets."""

import json
import pickle

import numpy as np
import pytest

from unmask.data.tokenizers.load import load_tokenizer
from unmask.data.tokenizers.tokenizer import in_blocks

from .conftest import VOCABULARY

TEXTS = [
    "Hello there, wörld! It's 3.5% of Ångström naïve café.",
    "你好，世界。abc漢字",
    "😀 ❤️ a😀b \u200b\ufffd e\u0301",
    "\x00\x07 tab\tnew\nline \u3000 \u00a0",
    "[CLS] written out [SEP] and [MASK]ed [mask]",
    "x" * 120 + " end",
    "İstanbul ǅ ﬁ ½ ",
    "",
]


def test_ids_and_special_tokens(directory):
    tokenizer = load_tokenizer(directory)
    assert (tokenizer.size, tokenizer.lowercase, tokenizer.mask_token) == (15, True, "[MASK]")
    assert (tokenizer.pad, tokenizer.unk, tokenizer.cls, tokenizer.sep, tokenizer.mask) == (0, 1, 2, 3, 4)
    assert tokenizer.special_ids == {0, 1, 2, 3, 4}
    ids = tokenizer.encode("The cats sat on [MASK].")
    assert ids.dtype == np.int32
    assert ids.tolist() == [5, 6, 8, 7, 1, 4, 9]
    assert [many.tolist() for many in tokenizer.encode_many(["The cats", "", "你好"])] == [[5, 6, 8], [], [10, 11]]
    assert tokenizer.tokens(ids[:3]) == ["the", "cat", "##s"]
    assert tokenizer.decode(ids) == "the cats sat [UNK] [MASK]."
    for id in (-1, 15):
        with pytest.raises(IndexError):
            tokenizer.token(id)


@pytest.mark.parametrize("block", [1, 40, 1000])
def test_texts_are_encoded_in_blocks_as_they_are_alone(directory, monkeypatch, block):
    """The library does not return for Ctrl-C before it has encoded all that it was given."""
    monkeypatch.setattr("unmask.data.tokenizers.tokenizer.BLOCK", block)
    tokenizer, given = load_tokenizer(directory), []

    def encode(texts, **options):
        given.append(texts)
        return tokenizer._library.encode_batch(texts, **options)

    found = list(in_blocks(encode, tuple(TEXTS)))
    assert [text for texts in given for text in texts] == TEXTS
    assert all(sum(map(len, texts[:-1])) < block for texts in given)
    assert len(given) > 1 or sum(map(len, TEXTS)) < block
    alone = [tokenizer.encode_offsets(text) for text in TEXTS]
    for (ids, offsets), encoding in zip(alone, found, strict=True):
        assert encoding.ids == ids.tolist() and encoding.offsets == offsets
    for (ids, offsets), (many, places) in zip(alone, tokenizer.encode_offsets_many(TEXTS), strict=True):
        assert many.tolist() == ids.tolist() and list(map(tuple, places.tolist())) == offsets
    assert [ids.tolist() for ids in tokenizer.encode_many(TEXTS)] == [ids.tolist() for ids, _ in alone]
    assert [ids.tolist() for ids, _ in tokenizer.encode_words(TEXTS)] == [ids.tolist() for ids, _ in alone]
    assert tokenizer.encode_many([]) == [] and not list(in_blocks(encode, []))


def test_offsets_are_characters(directory):
    text = "😀 Cats É[MASK] 你"
    ids, offsets = load_tokenizer(directory).encode_offsets(text)
    assert ids.tolist() == [1, 6, 8, 12, 4, 10]
    assert [text[start:end] for start, end in offsets] == ["😀", "Cat", "s", "É", "[MASK]", "你"]


def test_equal_tokenizers_have_equal_checksums(directory, tmp_path):
    tokenizer = load_tokenizer(directory)
    tokenizer.save(tmp_path / "a")
    saved = load_tokenizer(tmp_path / "a")
    (tmp_path / "a" / "tokenizer.json").unlink()
    bare = load_tokenizer(tmp_path / "a")
    pickled = pickle.loads(pickle.dumps(tokenizer))
    assert tokenizer.sha256 == saved.sha256 == bare.sha256 == pickled.sha256
    library = json.loads(tokenizer._library.to_str())
    library["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    library["padding"] = {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0}
    library["padding"] |= {"pad_type_id": 0, "pad_token": "[PAD]"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(library))
    padded = load_tokenizer(tmp_path)
    assert padded.sha256 == tokenizer.sha256
    assert [len(ids) for ids in padded.encode_many(["the cat sat . the", "cat"])] == [5, 1]
    (directory / "tokenizer.json").unlink()
    (directory / "vocab.txt").write_text("\n".join([*VOCABULARY, "more"]), encoding="utf-8")
    assert load_tokenizer(directory).sha256 != tokenizer.sha256


def assert_equal_to_transformers(tokenizer, directory):
    from transformers import AutoTokenizer

    tokenizer.save(directory)
    theirs = AutoTokenizer.from_pretrained(directory)
    assert theirs.mask_token_id == tokenizer.mask
    many = tokenizer.encode_many(TEXTS)
    for text, ids in zip(TEXTS, many, strict=True):
        expected = theirs(text, add_special_tokens=False)["input_ids"]
        assert ids.tolist() == tokenizer.encode(text).tolist() == tokenizer.encode_offsets(text)[0].tolist() == expected
        single, pair = theirs(text), theirs(text, TEXTS[0])
        other = tokenizer.encode(TEXTS[0]).tolist()
        first = [tokenizer.cls, *ids.tolist(), tokenizer.sep]
        assert single["input_ids"] == first
        assert single["token_type_ids"] == [0] * len(first)
        assert pair["input_ids"] == [*first, *other, tokenizer.sep]
        assert pair["token_type_ids"] == [0] * len(first) + [1] * (len(other) + 1)
        encoding = tokenizer._library.encode(text, TEXTS[0])  # what tokenizer.json says by itself
        assert (encoding.ids, encoding.type_ids) == (pair["input_ids"], pair["token_type_ids"])
    theirs.save_pretrained(directory / "again")
    assert load_tokenizer(directory / "again").sha256 == tokenizer.sha256


@pytest.mark.parametrize("config", [{}, {"do_lower_case": False}, {"do_lower_case": True, "strip_accents": False}])
def test_parity_of_a_saved_directory(directory, tmp_path, config):
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    assert_equal_to_transformers(load_tokenizer(directory), tmp_path / "saved")


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("tokenizer_config.json", {"do_lower_case": False}),
        ("tokenizer_config.json", {"strip_accents": False}),
        ("special_tokens_map.json", {"mask_token": "the"}),
    ],
)
def test_parity_notices_a_planted_fault(directory, tmp_path, monkeypatch, name, planted):
    tokenizer = load_tokenizer(directory)
    save = tokenizer.save

    def save_wrongly(directory):
        save(directory)
        path = directory / name
        path.write_text(json.dumps(json.loads(path.read_text()) | planted))

    monkeypatch.setattr(tokenizer, "save", save_wrongly)
    with pytest.raises(AssertionError):
        assert_equal_to_transformers(tokenizer, tmp_path / "saved")


@pytest.mark.shared
@pytest.mark.parametrize(
    "name",
    [
        *("bert-base-uncased", "bert-base-chinese"),
        *(pytest.param(f"bert-base-{name}", marks=pytest.mark.exhaustive) for name in ("cased", "multilingual-cased")),
    ],
)
def test_parity_on_published_vocabularies(shared, tmp_path, name, mixed_lines):
    from transformers import BertTokenizer

    tokenizer = load_tokenizer(shared / "vocabularies" / name)
    assert tokenizer.lowercase == (name == "bert-base-uncased")
    assert_equal_to_transformers(tokenizer, tmp_path)
    theirs = BertTokenizer(str(shared / "vocabularies" / name / "vocab.txt"), do_lower_case=tokenizer.lowercase)
    expected = theirs(mixed_lines, add_special_tokens=False)["input_ids"]
    for line, ids, there in zip(mixed_lines, tokenizer.encode_many(mixed_lines), expected, strict=True):
        assert ids.tolist() == there, line


def test_many_texts_have_the_offsets_of_each_alone(tokenizer):
    texts = ["The dog sees\tthe Café.", "", "\u200b\u0301", "각국 歐洲 😀 sea"]
    for text, (ids, offsets) in zip(texts, tokenizer.encode_offsets_many(texts), strict=True):
        expected, places = tokenizer.encode_offsets(text)
        assert ids.tolist() == expected.tolist()
        assert offsets.shape == (len(ids), 2)
        assert list(map(tuple, offsets.tolist())) == places
