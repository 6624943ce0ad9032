"""Tests of the reader of SentencePiece model files, whole and damaged."""

import random
import struct

import numpy as np
import pytest

from unmask.data.tokenizers.load import load_tokenizer
from unmask.data.tokenizers.unigram import read_spiece
from unmask.data.tokenizers.words import SPACE
from unmask.support.errors import UserError


def spiece(pieces, charsmap):
    """Return the bytes of a model (fields of sentencepiece_model.proto) whose first piece is the unknown one."""

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


def test_C11_a_table_that_lengthens_texts_is_refused(tmp_path):
    pieces = [("<unk>", 0.0), ("[CLS]", 0.0), ("[SEP]", 0.0), ("<pad>", 0.0), ("[MASK]", 0.0), (f"{SPACE}a", -1.0)]
    (tmp_path / "spiece.model").write_bytes(spiece(pieces, struct.pack("<II", 4, 0) + b"x" * 100 + b"\0"))
    with pytest.raises(UserError, match=r"spiece\.model: (its normalizer has a character table|is not a valid)"):
        load_tokenizer(tmp_path)


@pytest.mark.shared
def test_damaged_models_are_named(shared, tmp_path):
    """Truncated anywhere or with any byte changed, a model is refused or read as another vocabulary."""
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


def test_pieces_scores_the_unknown_piece_and_the_table_are_read(tmp_path):
    path = tmp_path / "spiece.model"
    path.write_bytes(spiece([("<unk>", 0.0), ("a" * 200, -1.5), (f"{SPACE}é", -2.25)], b"table"))
    model = read_spiece(path)
    assert model.pieces == [("<unk>", 0.0), ("a" * 200, -1.5), (f"{SPACE}é", -2.25)]
    assert (model.unknown, model.charsmap) == (0, b"table")


def test_what_is_not_a_unigram_model_is_named(tmp_path):
    path = tmp_path / "spiece.model"
    whole = spiece([("<unk>", 0.0), ("a", -1.0)], b"")
    second = spiece([("<unk>", 0.0)], b"")
    bpe = bytes([2 * 8 + 2, 2, 3 * 8, 2])  # trainer_spec { model_type: BPE }
    for content, message in (
        (b"", "the vocabulary is empty"),
        (whole[:-1], "is not a valid SentencePiece model; copy it again"),
        (b"\xff" * 20, "is not a valid SentencePiece model; copy it again"),
        (whole + bpe, "is not a unigram model, the only supported kind of SentencePiece model"),
        (whole + second, "has 2 unknown pieces instead of one"),
        (None, r"cannot be read \(No such file or directory\)"),
    ):
        path.unlink() if content is None else path.write_bytes(content)
        with pytest.raises(UserError, match=rf"^{path}: {message}$"):
            read_spiece(path)
