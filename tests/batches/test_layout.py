"""Settings that all layouts share: a length or stages, and the defaults of a layout without labels or streams."""

import msgspec
import pytest

from unmask.batches.document_sentences import DocumentSentencesSettings
from unmask.batches.frame import Frame
from unmask.batches.layout import LayoutSettings
from unmask.batches.sources import CorpusSource
from unmask.batches.stages import Stage, stage_at

STAGES = (Stage(share=0.9, length=128), Stage(share=0.1, length=512))


def test_a_length_is_one_stage():
    assert LayoutSettings(length=64).all_stages == (Stage(share=1.0, length=64),)
    assert [stage_at(LayoutSettings(length=64).all_stages, step, 5) for step in range(5)] == [0] * 5


def test_stages_are_kept_in_order():
    assert LayoutSettings(stages=STAGES).all_stages == STAGES


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "exactly one of length and stages"),
        ({"length": 64, "stages": STAGES}, "exactly one of length and stages"),
        ({"stages": STAGES[:1]}, "must be positive and sum to 1"),
        ({"stages": ()}, "must be positive and sum to 1"),
        ({"stages": (Stage(share=1.0, length=8), Stage(share=0.0, length=8))}, "must be positive and sum to 1"),
    ],
)
def test_contradictory_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        LayoutSettings(**settings)


def test_a_plain_layout_gives_no_labels_and_no_streams():
    settings = DocumentSentencesSettings(length=64)
    assert (settings.gives, settings.num_streams, settings.without) == (frozenset(), 0, "")
    assert settings.heldout(1000, 100) is settings
    with pytest.raises(NotImplementedError):
        LayoutSettings(length=64).build(Frame(2, 3), 64)


def test_the_source_has_a_layout_for_each_stage(written):
    settings = DocumentSentencesSettings(stages=STAGES)
    source = settings.source(written([[3, 4]] * 5), Frame(2, 3), seed=7, block_tokens=14)
    assert isinstance(source, CorpusSource)
    assert (source.stages, source.seed, source.per_block) == (STAGES, 7, 2)
    assert [layout.capacity for layout in source.layouts] == [126, 510]


def test_unknown_keys_are_refused():
    with pytest.raises(msgspec.ValidationError, match="unknown field `lenght`"):
        msgspec.convert({"kind": "document_sentences", "lenght": 8}, DocumentSentencesSettings)
