"""The measurements of engines: a row for each, and one that is recommended."""

import torch

from unmask.inference import bench
from unmask.inference.bench import measure_engines, mixed_lengths
from unmask.inference.program import ProgramSignature
from unmask.support.errors import UserError


def test_torch_is_always_measured(make, monkeypatch):
    monkeypatch.setattr(bench, "find_spec", lambda name: None)
    found = measure_engines(make(), sequences=8, requests=3)
    assert [(row.backend, row.precision) for row in found.rows][:1] == [("torch", "float32")]
    assert {row.backend for row in found.rows} == {"torch"}
    assert found.rows[0].difference == 0 and 0 < found.rows[0].p50_ms <= found.rows[0].p99_ms
    assert found.rows[0].sentences_per_second > 0 and found.recommended < len(found.rows)
    assert "onnx float32: onnxruntime is not installed" in found.left_out


def test_a_model_whose_outputs_are_all_0_is_measured(make, monkeypatch):
    monkeypatch.setattr(bench, "find_spec", lambda name: None)
    model = make()
    with torch.no_grad():
        for value in model.heads["classification"].values():
            value.zero_()
    measured = measure_engines(model, sequences=8, requests=3)
    assert all(row.difference == 0 for row in measured.rows)


def test_torch_is_measured_where_nothing_can_be_exported(make, monkeypatch):
    def refuse(*arguments):
        raise UserError("cannot be exported")

    monkeypatch.setattr(bench, "find_spec", lambda name: name)
    monkeypatch.setattr(bench, "build_program", refuse)
    measured = measure_engines(make(), sequences=8, requests=3)
    assert {row.backend for row in measured.rows} == {"torch"}
    assert len(measured.left_out) == 4 and all(note.endswith("cannot be exported") for note in measured.left_out)


def test_lengths_are_mixed_and_read_in_full(make):
    lengths = {len(sample) for sample in mixed_lengths(make(), ProgramSignature("masked_lm", "masked"), 50)}
    assert len(lengths) > 10 and max(lengths) <= make().encoder.longest
