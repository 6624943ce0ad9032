"""Settings that all layouts share: a length, and the defaults of a layout without labels or streams."""

import msgspec
import pytest

from unmask.data.batches.frame import Frame
from unmask.data.batches.layout import DocumentSentencesSettings
from unmask.data.batches.sources import CorpusSource, Stage


def test_a_plain_layout_gives_no_labels_and_no_streams():
    settings = DocumentSentencesSettings(length=64)
    assert (settings.provides, settings.num_streams, settings.without) == (frozenset(), 0, {})
    assert settings.heldout(1000, 100) is settings


def test_the_source_has_a_single_stage_with_the_layout(written):
    settings = DocumentSentencesSettings(length=128)
    source = settings.source(written([[3, 4]] * 5), Frame(2, 3), seed=7, block_tokens=14)
    assert isinstance(source, CorpusSource)
    assert (source.stages, source.seed, source.per_block) == ((Stage(share=1.0, length=128),), 7, 2)
    assert source.layouts == (settings,)


def test_unknown_keys_are_refused():
    with pytest.raises(msgspec.ValidationError, match="unknown field `lenght`"):
        msgspec.convert({"kind": "document_sentences", "lenght": 8}, DocumentSentencesSettings)
