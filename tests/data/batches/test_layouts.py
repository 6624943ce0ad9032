"""The registry of layouts: every kind is read from a recipe's table under its own name."""

import msgspec
import pytest

from unmask.data.batches.registries import LAYOUTS, AnyLayout
from unmask.data.batches.sentence_pairs import SentencePairsSettings

NEEDED = {
    "contiguous": {"streams": 2},
    "sentence_streams": {"streams": 2},
    "paired_streams": {"streams": 2, "reuse": 16},
}
"""Settings without a default, by kind."""


def test_all_layouts_are_registered():
    others = ["document_sentences", "full_sentences", "sentence_pairs"]
    assert list(LAYOUTS) == ["single", *others, "contiguous", "sentence_streams", "paired_streams"]


@pytest.mark.parametrize("kind", list(LAYOUTS))
def test_a_table_is_read_as_its_kind(kind):
    read = msgspec.convert({"kind": kind, "length": 32, **NEEDED.get(kind, {})}, AnyLayout)
    assert type(read) is LAYOUTS[kind]
    assert read.length == 32
    assert msgspec.to_builtins(read)["kind"] == kind


def test_settings_of_a_kind_are_read():
    read = msgspec.convert({"kind": "sentence_pairs", "length": 32, "second": "swapped"}, AnyLayout)
    assert read == SentencePairsSettings(length=32, second="swapped")


def test_an_unknown_kind_is_refused():
    with pytest.raises(msgspec.ValidationError, match="Invalid value 'paragraphs'"):
        msgspec.convert({"kind": "paragraphs", "length": 32}, AnyLayout)
