"""Tests of unigram vocabularies: same ids as transformers, deterministic training, words with unknown characters."""

import json
import random
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AlbertTokenizer, AutoTokenizer
from transformers.utils import sentencepiece_model_pb2_new

import unmask
from unmask.data.batches.batch import Sample
from unmask.data.batches.frame import Frame
from unmask.data.batches.masking import Joined, find_words
from unmask.data.batches.rng import SampleRng
from unmask.data.batches.span_masking import NgramMaskingSettings, SpanMaskingSettings, WholeWordMaskingSettings
from unmask.data.tokenizers.load import load_tokenizer
from unmask.data.tokenizers.unigram import UNIGRAM, read_spiece, train_unigram
from unmask.data.tokenizers.words import SPACE, WordCache
from unmask.support.errors import UserError

from .conftest import UNIGRAM_TEXT as TEXT

MIXED = [
    "Hello there, wörld! It's 3.5% of Ångström naïve café.",
    "你好，世界。abc漢字",
    "``quoted'' 😀 ❤️ a😀b \u200b\ufffd e\u0301",
    " two  spaces and a tab\tand\nlines \u3000 ",
    "written out [MASK] and[SEP][CLS] [MASK]ed",
    "x" * 120 + " end",
    "",
]


def test_the_ids_are_alberts(unigram):
    assert (
        unigram.pad,
        unigram.unk,
        unigram.cls,
        unigram.sep,
        unigram.mask,
    ) == (0, 1, 2, 3, 4)
    assert (unigram.kind, unigram.lowercase, unigram.ends_twice, unigram.added) == (
        UNIGRAM,
        True,
        False,
        0,
    )
    assert 500 < unigram.size <= 600
    assert f"{SPACE}the" in unigram.tokens(unigram.encode("The model"))
    assert unigram.decode(unigram.encode("The old  model.")) == "the old model."


def test_training_is_the_same_every_time(unigram):
    mixed = random.Random(0).sample(TEXT, len(TEXT))
    assert train_unigram(mixed, size=600).sha256 == unigram.sha256
    assert train_unigram(TEXT, size=500).sha256 != unigram.sha256


def test_the_most_probable_pieces_are_chosen(unigram):
    """Compare with a search over all segmentations of a word."""
    scores = dict(map(tuple, json.loads(unigram._library.to_str())["model"]["vocab"]))

    def best(word):
        cuts = [(0.0, ())] + [None] * len(word)
        for end in range(1, len(word) + 1):
            reached = [(cuts[start], word[start:end]) for start in range(end) if cuts[start]]
            found = [(cut[0] + scores[piece], (*cut[1], piece)) for cut, piece in reached if piece in scores]
            cuts[end] = max(found, default=None)
        return cuts[-1]

    for word in ("pretraining", "bridges", "tokens", "seas"):
        pieces = unigram.tokens(unigram.encode(word))
        score, _ = best(SPACE + word)
        assert sum(scores[piece] for piece in pieces) == pytest.approx(score)


@pytest.mark.parametrize(
    ("texts", "size", "message"),
    [(TEXT, 20, "it needs at least"), ([" ", "\n"], 300, "no text"), (["▅▅ a▅", "\0"], 300, "no text")],
)
def test_what_cannot_be_trained(texts, size, message):
    with pytest.raises(UserError, match=message):
        train_unigram(texts, size=size)


@pytest.mark.parametrize("lowercase", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_transformers_reads_what_is_saved(lowercase, tmp_path, same_ids):
    unigram = train_unigram(TEXT, size=600, lowercase=lowercase)
    unigram.save(tmp_path, length=77)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    same_ids(unigram, theirs, [*MIXED, *TEXT])
    assert theirs.model_max_length == 77
    frame = Frame.of(unigram)
    first, second = unigram.encode("The dog"), unigram.encode("the sea.")
    assert frame.wrap(first, second).ids.tolist() == theirs("The dog", "the sea.")["input_ids"]
    again = load_tokenizer(tmp_path)
    assert (again.sha256, again.lowercase) == (unigram.sha256, lowercase)


@given(st.text(alphabet="ab 1é中ท.,'\n", max_size=30))
def test_words_begin_at_spaces_and_where_the_script_has_none(unigram, text):
    ids = unigram.encode(text)
    begins = unigram.begins_word(ids)
    for place, piece in enumerate(unigram.tokens(ids)):
        assert begins[place] or not piece.startswith(SPACE)
    assert begins[:1].all()


def test_no_word_with_an_unknown_character_is_masked(unigram):
    ids = np.concatenate([[unigram.cls], unigram.encode("the ŋoma of Hawaiʻi the"), [unigram.sep]]).astype(np.int64)
    assert (ids == unigram.unk).sum() == 2
    begins = unigram.begins_word(ids)
    ordinary = ~np.isin(np.arange(unigram.size), list(unigram.special_ids))
    text = Joined.of([ids], np.zeros(1), unigram.mask, ordinary, unigram.begins_word)
    starts, stops = (at - 1 for at in find_words(text))
    assert begins.sum() == 2 + 5, "special tokens and five words"
    found = ["".join(unigram.tokens(ids[start:stop])) for start, stop in zip(starts, stops, strict=True)]
    assert found == [f"{SPACE}the", f"{SPACE}of", f"{SPACE}the"]
    sample = Sample(key=(0,), ids=ids, segments=np.zeros_like(ids))
    for kind in (WholeWordMaskingSettings, NgramMaskingSettings, SpanMaskingSettings):
        about = {
            "vocabulary": unigram.size,
            "mask": unigram.mask,
            "special": unigram.special_ids,
        }
        masking = kind(rate=0.9).build(**about, begins=unigram.begins_word)
        masked = masking([sample], SampleRng(0, "masking", [()]))[0].positions["masked"]
        inside = np.concatenate([np.arange(*span) for span in zip(starts, stops, strict=True)])
        assert len(masked) and np.isin(masked, inside).all()
        few = ids[5:8]
        (nothing,) = masking([Sample(key=(), ids=few)], SampleRng(0, "masking", [()]))
        assert np.array_equal(nothing.ids[few == unigram.unk], few[few == unigram.unk])


def test_a_cache_of_words_gives_the_same_ids(unigram):
    cache = WordCache(unigram, "int32")
    for text in (*MIXED, *TEXT):
        assert np.frombuffer(cache.encode(text), np.int32).tolist() == unigram.encode(text).tolist()


@pytest.mark.shared
def test_the_published_vocabulary_gives_the_ids_of_transformers(shared, tmp_path, mixed_lines, same_ids):
    source = shared / "vocabularies/albert-v1v2-en/30k-clean.model"
    shutil.copy(source, tmp_path / "spiece.model")
    ours = load_tokenizer(tmp_path)
    model = read_spiece(source)
    read = sentencepiece_model_pb2_new.ModelProto.FromString(source.read_bytes())  # SentencePiece's own reader
    pieces = [(piece.piece, piece.score) for piece in read.pieces]
    assert (model.pieces, model.unknown) == (pieces, read.trainer_spec.unk_id)
    theirs = AlbertTokenizer(vocab=pieces, _spm_precompiled_charsmap=read.normalizer_spec.precompiled_charsmap)
    assert ours.encode("Hello, my dog is cute").tolist() == [10975, 15, 51, 1952, 25, 10901], "as published"
    expected = theirs(mixed_lines, add_special_tokens=False)["input_ids"]
    for line, ids, there in zip(mixed_lines, ours.encode_many(mixed_lines), expected, strict=True):
        assert ids.tolist() == there, line
    assert (ours.pad, ours.unk, ours.cls, ours.sep, ours.mask, ours.size) == (0, 1, 2, 3, 4, 30_000)
    assert load_tokenizer(source.parent).sha256 == ours.sha256, "under its published name"
    ours.save(tmp_path / "again")
    assert load_tokenizer(tmp_path / "again").sha256 == ours.sha256
    again = AutoTokenizer.from_pretrained(tmp_path / "again")
    same_ids(ours, again, mixed_lines[::50])


def test_it_is_in_the_interface():
    assert unmask.train_unigram is train_unigram


def test_long_words_are_learned_from():
    """Clauses of scripts without spaces, longer than SentencePiece reads by default."""
    rng = random.Random(0)
    terms = ["".join(rng.choices("天地玄黃宇宙洪荒日月盈昃辰宿列張", k=3)) for _ in range(40)]
    clauses = ["".join(rng.choices(terms, k=600)) for _ in range(20)]
    unigram = train_unigram(clauses, size=120)
    assert len(unigram.encode(clauses[0])) < 900, "1,800 characters"
    assert not (unigram.encode(clauses[0]) == unigram.unk).any()


def test_the_size_is_never_exceeded():
    few = TEXT[:100]
    with pytest.raises(UserError) as caught:
        train_unigram(few, size=20)
    least = int(str(caught.value).split("at least ")[1].split()[0])
    for size in (least, least + 1, least + 2, least + 30):
        assert train_unigram(few, size=size).size <= size
