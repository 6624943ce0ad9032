"""Engines of optional libraries: a clear error where one is missing, or its file damaged."""

import pytest

from unmask.errors import UserError
from unmask.inference.engines import ENGINES, need


def test_a_missing_library_is_named_with_its_extra():
    with pytest.raises(UserError, match="this needs no_such_library") as caught:
        need("no_such_library", "onnx")
    assert "unmask[onnx]" in str(caught.value)


@pytest.mark.parametrize("name", ENGINES)
def test_a_file_that_is_no_program_is_refused(name, tmp_path):
    pytest.importorskip({"onnx": "onnxruntime"}.get(name, name), reason="the extra is not installed")
    file, kind = ENGINES[name]
    (tmp_path / file).write_bytes(b"nothing")
    with pytest.raises(UserError, match="not a program that can be computed"):
        kind(tmp_path / file, 1, "float32")
