"""The names of downstream models are those that the settings accept, and are available without torch."""

import subprocess
import sys

import msgspec
import pytest

from unmask.nn.encoders.downstream import DownstreamSettings
from unmask.nn.encoders.downstream_kind import DOWNSTREAM_KINDS

WITHOUT_TORCH = """
import sys
from unmask.nn.encoders.downstream_kind import DOWNSTREAM_KINDS
assert DOWNSTREAM_KINDS == ("linear", "average", "difference", "rnn")
assert "torch" not in sys.modules
"""


@pytest.mark.parametrize("kind", DOWNSTREAM_KINDS)
def test_settings_accept_all_kinds(kind):
    assert msgspec.convert({"kind": kind, "layers": [-1]}, DownstreamSettings).kind == kind


def test_settings_refuse_other_kinds():
    with pytest.raises(msgspec.ValidationError, match="Invalid enum value 'cnn'"):
        msgspec.convert({"kind": "cnn"}, DownstreamSettings)


def test_torch_is_not_imported():
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH], check=True)
