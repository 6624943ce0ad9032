"""The names of downstream models are those that the settings accept; test_imports.py reads them without torch."""

import msgspec
import pytest

from unmask.nn.encoders.downstream import DownstreamSettings
from unmask.support.choices import DOWNSTREAM_KINDS


@pytest.mark.parametrize("kind", DOWNSTREAM_KINDS)
def test_settings_accept_all_kinds(kind):
    assert msgspec.convert({"kind": kind, "layers": [-1]}, DownstreamSettings).kind == kind


def test_settings_refuse_other_kinds():
    with pytest.raises(msgspec.ValidationError, match="Invalid enum value 'cnn'"):
        msgspec.convert({"kind": "cnn"}, DownstreamSettings)
