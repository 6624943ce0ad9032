"""The report on a machine has what a report of a problem needs."""

import pytest
import torch

from unmask.support import __version__, capabilities
from unmask.workflows import doctor

HEADINGS = [
    *("system", "processor", "products of 16 and 256 rows, one thread", "accelerators", "memory and disk"),
    *("libraries", "extras", "choices"),
]


def test_the_report_has_speeds_and_versions():
    report = doctor.doctor()
    assert list(report) == HEADINGS
    assert (report["system"]["unmask"], report["libraries"]["torch"]) == (__version__, torch.__version__)
    assert report[HEADINGS[2]].keys() > capabilities.WAYS.keys()


def test_what_restricts_the_libraries_is_named(monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert doctor.doctor()["system"]["ONEDNN_MAX_CPU_ISA"] == "AVX2"


def test_extras_that_are_missing_say_how_to_install_them(monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "h5py" else "1.0")
    extras = doctor.doctor()["extras"]
    assert extras["elmo"] == 'lacks h5py: pip install "unmask[elmo]"'
    assert extras["tensorboard"] == "tensorboard 1.0"
    assert not {"test", "docs", "bench"} & extras.keys()


@pytest.mark.parametrize(
    ("speeds", "choice"), [((60, 60, 50, 4, 0, 0, 0), "emulated, refused"), ((9, 9, 9, 99, 99, 0, 0), "faster")]
)
@pytest.mark.parametrize("tiles", [False, True])
def test_the_choice_of_the_precision_is_explained(monkeypatch, speeds, choice, tiles):
    known = dict(zip(capabilities.WAYS, speeds, strict=True))
    for module in (capabilities, doctor):
        monkeypatch.setattr(module, "products", lambda rows=0: known)
    monkeypatch.setattr(doctor, "panels_multiply", lambda dtype: choice == "faster" and dtype == torch.bfloat16)
    monkeypatch.setattr(doctor, "has_tiles", lambda: tiles)
    report = doctor.doctor()
    in_bf16 = report[HEADINGS[2]]["choice in bf16"]
    in_panels = "; panels for inference and attention" + ", by AMX also of few rows in training" * tiles
    assert in_bf16.startswith(choice) and in_bf16.endswith(in_panels) == (choice == "faster")
    assert "panels" not in report[HEADINGS[2]]["choice in float32"]
    assert report["choices"]["training by default"] == f"cpu, {'bf16' if choice == 'faster' else 'float32'}"
