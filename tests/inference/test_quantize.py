"""Quantization of OpenVINO programs, with scales from real inputs (that of ONNX: test_export.py)."""

import logging
from importlib import import_module
from logging.handlers import BufferingHandler

import pytest

from unmask.inference.export import Export, export_model
from unmask.inference.program import quiet_logging
from unmask.tasks.rows import as_rows, frame_rows

from .conftest import TEXTS


def test_openvinos_int8_is_close(make, tmp_path):
    pytest.importorskip("openvino", reason="the extra openvino is not installed")
    pytest.importorskip("nncf", reason="the extra openvino is not installed")
    model = make()
    samples = frame_rows(model.tokenizer, as_rows(TEXTS), 12).samples
    manifest = export_model(model, Export("openvino", "int8"), tmp_path / "out", samples)
    assert 0 < manifest.difference < 0.4 * manifest.scale
    wrapper = import_module("nncf.telemetry.wrapper")
    assert isinstance(wrapper.telemetry, wrapper.NNCFTelemetryStub), "nothing is reported"


def test_logging_is_as_before_afterwards(monkeypatch):
    handler = BufferingHandler(10)
    monkeypatch.setattr(logging.root, "handlers", [handler])
    with quiet_logging():
        logging.warning("nothing")
    logging.warning("something")
    assert [record.msg for record in handler.buffer] == ["something"]
