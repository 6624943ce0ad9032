"""Fingerprints of weights: a fixed value, and what changes it."""

import torch

from unmask.support.fingerprint import fingerprint, fingerprint_path

WEIGHTS = {"b": torch.arange(6.0).view(2, 3), "a": torch.tensor([1, 2])}


def test_the_value_is_that_of_sha256_over_names_types_shapes_and_bytes():
    assert fingerprint({}) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert fingerprint(WEIGHTS) == "c40c93225a002f35fdc3c3d1bd330f4e67ad96055efcc1b95dbb9ee9eb7e84be"


def test_order_and_memory_layout_do_not_matter():
    strided = {"b": WEIGHTS["b"].T.contiguous().T, "a": WEIGHTS["a"]}
    assert not strided["b"].is_contiguous()
    assert fingerprint(dict(sorted(strided.items()))) == fingerprint(WEIGHTS)


def test_names_types_shapes_and_values_matter():
    changed = [
        WEIGHTS | {"b": WEIGHTS["b"] + 1},
        WEIGHTS | {"b": WEIGHTS["b"].view(3, 2)},
        WEIGHTS | {"b": WEIGHTS["b"].to(torch.bfloat16)},
        {"c": WEIGHTS["b"], "a": WEIGHTS["a"]},
        {"b": WEIGHTS["b"]},
    ]
    assert len({fingerprint(WEIGHTS), *map(fingerprint, changed)}) == 6


def test_weights_that_require_gradients_are_accepted():
    assert fingerprint({"w": torch.ones(2, requires_grad=True)}) == fingerprint({"w": torch.ones(2)})


def test_hidden_files_and_folders_are_not_part_of_a_directory(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/a.txt").write_text("a")
    before = fingerprint_path(tmp_path)
    (tmp_path / ".engines/of").mkdir(parents=True)
    for name in (".hidden", ".engines/choice.json", ".engines/of/model.onnx", "folder/.b"):
        (tmp_path / name).write_text("b")
    assert fingerprint_path(tmp_path) == before
    (tmp_path / "folder/b.txt").write_text("b")
    assert fingerprint_path(tmp_path) != before
