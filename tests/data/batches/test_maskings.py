"""The registry of maskings: every kind is read from a recipe's table under its own name."""

import msgspec
import numpy as np
import pytest

from unmask.data.batches.frame import Frame
from unmask.data.batches.masking import MASKED
from unmask.data.batches.registries import MASKINGS, AnyMasking
from unmask.data.batches.span_masking import SpanMaskingSettings

from .conftest import mask_samples

CLS, SEP, MASK = SPECIAL = (1, 2, 3)


def test_all_maskings_are_registered():
    assert list(MASKINGS) == ["token", "whole_word", "ngram", "span", "permutation", "none"]


@pytest.mark.parametrize("kind", list(MASKINGS))
def test_a_table_is_read_as_its_kind(kind):
    read = msgspec.convert({"kind": kind}, AnyMasking)
    assert type(read) is MASKINGS[kind]
    assert msgspec.to_builtins(read)["kind"] == kind


@pytest.mark.parametrize("kind", list(MASKINGS))
def test_a_kind_that_gives_masked_tokens_masks_them(kind):
    settings = MASKINGS[kind]()
    masking = settings.build(vocabulary=50, mask=MASK, special=frozenset(SPECIAL), begins=lambda ids: ids > 0)
    sample = Frame(CLS, SEP).wrap(np.arange(5, 45))
    (masked,) = mask_samples(masking, [sample])
    assert (MASKED in masked.labels) == (MASKED in settings.provides) == (kind not in ("none", "permutation"))
    if MASKED in settings.provides:
        assert len(masked.positions[MASKED]) == round(0.15 * 42)
        assert masked.labels[MASKED].tolist() == sample.ids[masked.positions[MASKED]].tolist()


def test_settings_of_a_kind_are_read():
    assert msgspec.convert({"kind": "span", "p": 0.3}, AnyMasking) == SpanMaskingSettings(p=0.3)


def test_an_unknown_kind_is_refused():
    with pytest.raises(msgspec.ValidationError, match="Invalid value 'sentence'"):
        msgspec.convert({"kind": "sentence"}, AnyMasking)
