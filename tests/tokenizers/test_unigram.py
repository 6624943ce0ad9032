"""Unigram: ids are those of transformers, training is the same every time, what is no model is named."""

import json
import random
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AlbertTokenizer, AutoTokenizer
from transformers.utils import sentencepiece_model_pb2_new

import unmask
from unmask.batches.batch import Sample
from unmask.batches.frame import Frame
from unmask.batches.masking import find_words
from unmask.batches.ngram_masking import NgramMaskingSettings, WholeWordMaskingSettings
from unmask.batches.span_masking import SpanMaskingSettings
from unmask.errors import UserError
from unmask.tokenizers.load import load_tokenizer
from unmask.tokenizers.spiece import read_spiece
from unmask.tokenizers.unigram import SPACE, UNIGRAM, train_unigram
from unmask.tokenizers.word_cache import WordCache

DOCS = Path(__file__).resolve().parents[2] / "docs"
TEXT = [line for path in sorted(DOCS.glob("*.md")) for line in path.read_text(encoding="utf8").splitlines()]
MIXED = [
    "Hello there, wörld! It's 3.5% of Ångström naïve café.",
    "你好，世界。abc漢字",
    "``quoted'' 😀 ❤️ a😀b \u200b\ufffd e\u0301",
    " two  spaces and a tab\tand\nlines \u3000 ",
    "written out [MASK] and[SEP][CLS] [MASK]ed",
    "x" * 120 + " end",
    "",
]


@pytest.fixture(scope="module")
def trained():
    return train_unigram(TEXT, size=600)


def test_the_ids_are_alberts(trained):
    assert (trained.pad, trained.unk, trained.cls, trained.sep, trained.mask) == (0, 1, 2, 3, 4)
    assert (trained.kind, trained.lowercase, trained.ends_twice, trained.added) == (UNIGRAM, True, False, 0)
    assert 500 < trained.size <= 600
    assert f"{SPACE}the" in trained.tokens(trained.encode("The model"))
    assert trained.decode(trained.encode("The old  model.")) == "the old model."


def test_training_is_the_same_every_time(trained):
    mixed = random.Random(0).sample(TEXT, len(TEXT))
    assert train_unigram(mixed, size=600).sha256 == trained.sha256
    assert train_unigram(TEXT, size=500).sha256 != trained.sha256


def test_the_most_probable_pieces_are_chosen(trained):
    """By hand, over all ways to cut a word."""
    scores = dict(map(tuple, json.loads(trained._library.to_str())["model"]["vocab"]))

    def best(word):
        cuts = [(0.0, ())] + [None] * len(word)
        for end in range(1, len(word) + 1):
            reached = [(cuts[start], word[start:end]) for start in range(end) if cuts[start]]
            found = [(cut[0] + scores[piece], (*cut[1], piece)) for cut, piece in reached if piece in scores]
            cuts[end] = max(found, default=None)
        return cuts[-1]

    for word in ("pretraining", "bridges", "tokens", "seas"):
        pieces = trained.tokens(trained.encode(word))
        score, _ = best(SPACE + word)
        assert sum(scores[piece] for piece in pieces) == pytest.approx(score)


@pytest.mark.parametrize(("texts", "size", "message"), [(TEXT, 20, "it needs at least"), ([" ", "\n"], 300, "no text")])
def test_what_cannot_be_trained(texts, size, message):
    with pytest.raises(UserError, match=message):
        train_unigram(texts, size=size)


@pytest.mark.parametrize("lowercase", [True, False])
def test_transformers_reads_what_is_saved(lowercase, tmp_path, same_ids):
    trained = train_unigram(TEXT, size=600, lowercase=lowercase)
    trained.save(tmp_path, length=77)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    same_ids(trained, theirs, [*MIXED, *TEXT])
    assert theirs.model_max_length == 77
    frame = Frame.of(trained)
    first, second = trained.encode("The dog"), trained.encode("the sea.")
    assert frame.wrap(first, second).ids.tolist() == theirs("The dog", "the sea.")["input_ids"]
    again = load_tokenizer(tmp_path)
    assert (again.sha256, again.lowercase) == (trained.sha256, lowercase)


@given(st.text(alphabet="ab 1é中ท.,'\n", max_size=30))
def test_words_begin_at_spaces_and_where_the_script_has_none(trained, text):
    ids = trained.encode(text)
    begins = trained.begins_word(ids)
    for place, piece in enumerate(trained.tokens(ids)):
        assert begins[place] or not piece.startswith(SPACE)
    assert begins[:1].all()


def test_no_part_of_a_word_is_hidden_that_has_an_unknown_character(trained):
    ids = np.concatenate([[trained.cls], trained.encode("the ŋoma of Hawaiʻi the"), [trained.sep]]).astype(np.int64)
    assert (ids == trained.unk).sum() == 2
    begins = trained.begins_word(ids)
    candidates = np.flatnonzero(~np.isin(ids, list(trained.special_ids)))
    starts, stops = find_words(ids, candidates, trained.begins_word)
    assert begins.sum() == 2 + 5, "special tokens and five words"
    found = ["".join(trained.tokens(ids[start:stop])) for start, stop in zip(starts, stops, strict=True)]
    assert found == [f"{SPACE}the", f"{SPACE}of", f"{SPACE}the"]
    sample = Sample(key=(0,), ids=ids, segments=np.zeros_like(ids))
    for kind in (WholeWordMaskingSettings, NgramMaskingSettings, SpanMaskingSettings):
        about = {"vocabulary": trained.size, "mask": trained.mask, "special": trained.special_ids}
        masking = kind(rate=0.9).build(**about, begins=trained.begins_word)
        hidden = masking(sample, np.random.default_rng(0)).positions["masked"]
        inside = np.concatenate([np.arange(*span) for span in zip(starts, stops, strict=True)])
        assert len(hidden) and np.isin(hidden, inside).all()
        few = ids[5:8]
        nothing = masking(Sample(key=(0,), ids=few, segments=np.zeros_like(few)), np.random.default_rng(0))
        assert np.array_equal(nothing.ids[few == trained.unk], few[few == trained.unk])


def spiece(pieces, charsmap):
    """The bytes of a model (fields of sentencepiece_model.proto); its first piece is the unknown one."""

    def field(number, value):
        size, written = len(value), b""
        while size > 127:
            written, size = written + bytes([size % 128 + 128]), size // 128
        return bytes([number * 8 + 2]) + written + bytes([size]) + value

    made = b""
    for place, (piece, score) in enumerate(pieces):
        kind = b"" if place else bytes([3 * 8, 2])
        made += field(1, field(1, piece.encode()) + bytes([2 * 8 + 5]) + struct.pack("<f", score) + kind)
    return made + field(3, field(2, charsmap))


def test_a_damaged_table_of_characters_is_named(tmp_path):
    rng, damaged = np.random.default_rng(0), 0
    for _ in range(60):
        table = struct.pack("<I", 4) + rng.bytes(int(rng.integers(4, 60)))
        pieces = [("<unk>", 0.0), ("[CLS]", 0.0), ("[SEP]", 0.0), ("<pad>", 0.0), ("[MASK]", 0.0), (f"{SPACE}a", -1.0)]
        (tmp_path / "spiece.model").write_bytes(spiece(pieces, table))
        try:
            load_tokenizer(tmp_path).encode("a½ﬁ")
        except UserError as error:
            assert "spiece.model: is not a valid SentencePiece model" in str(error)
            damaged += 1
    assert damaged


def test_a_cache_of_words_gives_the_same_ids(trained):
    cache = WordCache(trained, "int32")
    for text in (*MIXED, *TEXT):
        assert np.frombuffer(cache.encode(text), np.int32).tolist() == trained.encode(text).tolist()


@pytest.mark.shared
def test_the_published_vocabulary_gives_the_ids_of_transformers(shared, tmp_path, mixed_lines, same_ids):
    source = shared / "vocabularies/albert-v1v2-en/30k-clean.model"
    shutil.copy(source, tmp_path / "spiece.model")
    ours = load_tokenizer(tmp_path)
    model = read_spiece(source)
    read = sentencepiece_model_pb2_new.ModelProto.FromString(source.read_bytes())  # SentencePiece's own reader of files
    pieces = [(piece.piece, piece.score) for piece in read.pieces]
    assert (model.pieces, model.unknown) == (pieces, read.trainer_spec.unk_id)
    theirs = AlbertTokenizer(vocab=pieces, _spm_precompiled_charsmap=read.normalizer_spec.precompiled_charsmap)
    assert ours.encode("Hello, my dog is cute").tolist() == [10975, 15, 51, 1952, 25, 10901], "as published"
    for line, ids in zip(mixed_lines, ours.encode_many(mixed_lines), strict=True):
        assert ids.tolist() == theirs.encode(line, add_special_tokens=False), line
    assert (ours.pad, ours.unk, ours.cls, ours.sep, ours.mask, ours.size) == (0, 1, 2, 3, 4, 30_000)
    assert load_tokenizer(source.parent).sha256 == ours.sha256, "by the name that it is published under"
    ours.save(tmp_path / "again")
    assert load_tokenizer(tmp_path / "again").sha256 == ours.sha256
    again = AutoTokenizer.from_pretrained(tmp_path / "again")
    same_ids(ours, again, mixed_lines[::50])


@pytest.mark.shared
def test_damaged_models_are_named(shared, tmp_path):
    """Cut off anywhere, with any byte changed: refused, or read as another vocabulary, never anything else."""
    content = (shared / "vocabularies/albert-v1v2-en/30k-clean.model").read_bytes()
    path = tmp_path / "spiece.model"
    rng = random.Random(0)
    for planted in (b"", b"nonsense", content[:1000], content[: len(content) // 2], content[:-7]):
        path.write_bytes(planted)
        with pytest.raises(UserError, match=r"spiece\.model"):
            load_tokenizer(tmp_path)
    for _ in range(30):
        changed = bytearray(content)
        changed[rng.randrange(2000)] = rng.randrange(256)
        path.write_bytes(changed)
        try:
            read_spiece(path)
        except UserError as error:
            assert "spiece.model" in str(error)


def test_it_is_in_the_interface():
    assert unmask.train_unigram is train_unigram


def test_the_size_is_never_exceeded():
    with pytest.raises(UserError) as caught:
        train_unigram(TEXT, size=20)
    least = int(str(caught.value).split("at least ")[1].split()[0])
    for size in (least, least + 1, least + 2, least + 30):
        assert train_unigram(TEXT, size=size).size <= size


def test_odd_files_are_read_or_named(trained, tmp_path):
    trained.save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf8"))
    content["normalizer"] = None
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf8")
    plain = load_tokenizer(tmp_path)
    plain.save(tmp_path / "again")
    assert load_tokenizer(tmp_path / "again").sha256 == plain.sha256
    content["model"]["unk_id"] = None
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf8")
    with pytest.raises(UserError, match="unk_id"):
        load_tokenizer(tmp_path)


def test_other_ways_to_cut_words_are_refused(trained, tmp_path):
    trained.save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf8"))
    content["pre_tokenizer"]["pretokenizers"][0] = {"type": "Whitespace"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf8")
    with pytest.raises(UserError, match="is of an unsupported kind; use WordPiece"):
        load_tokenizer(tmp_path)
