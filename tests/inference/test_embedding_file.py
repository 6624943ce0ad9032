"""Files of vectors are read back by NumPy and safetensors; a target that cannot be written is refused at once."""

import numpy as np
import pytest
from safetensors import safe_open

from unmask.inference.features import check_target, write_vectors
from unmask.support.errors import UserError


def test_vectors_are_read_back(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    for name in ("a.npy", "a.safetensors"):
        check_target(tmp_path / name)
        write_vectors(tmp_path / name, vectors, "abc")
        with pytest.raises(UserError, match="the file exists; choose another out"):
            check_target(tmp_path / name)
    assert np.array_equal(np.load(tmp_path / "a.npy"), vectors)
    with safe_open(tmp_path / "a.safetensors", framework="np") as file:
        assert np.array_equal(file.get_tensor("vectors"), vectors)
        assert file.metadata() == {"model": "abc"}


@pytest.mark.parametrize(
    ("name", "message"), [("a.txt", r"use \.npy or \.safetensors"), ("no/a.npy", "there is no such directory")]
)
def test_other_targets_are_refused(tmp_path, name, message):
    with pytest.raises(UserError, match=message):
        check_target(tmp_path / name)
