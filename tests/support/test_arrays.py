"""Arrays are written as NumPy writes them; a full disk is an error that names the file."""

import errno

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from unmask.support.arrays import create_map, save_array

DTYPES = ["<u1", "<u2", "<u4", "<i8", "<f4"]


@given(st.data())
def test_a_file_has_the_bytes_of_np_save(tmp_path_factory, data):
    shape = data.draw(arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4))
    values = data.draw(arrays.arrays(data.draw(st.sampled_from(DTYPES)), shape))
    path = tmp_path_factory.mktemp("arrays") / "a.npy"
    for array in (values, values.T, values[::2]):
        save_array(path, array)
        written = path.read_bytes()
        np.save(path, np.ascontiguousarray(array))
        assert written == path.read_bytes()


@pytest.mark.parametrize("count", [1, 2, 5, 7])
def test_a_map_begins_with_one_value(tmp_path, monkeypatch, count):
    monkeypatch.setattr("unmask.support.arrays._BLOCK", 3)
    created = create_map(tmp_path / "map", np.int64(-1), count)
    assert created.dtype == np.int64 and created.tolist() == [-1] * count
    created[0] = 5
    created.flush()
    assert np.fromfile(tmp_path / "map", np.int64).tolist() == [5] + [-1] * (count - 1)


def test_E5_a_full_disk_is_named_with_the_file_and_the_cause(volume):
    path = volume(64) / "file"
    for write in (
        lambda: save_array(path, np.zeros(100_000, np.uint8)),
        lambda: create_map(path, np.uint8(0), 100_000),
    ):
        with pytest.raises(OSError, match="No space left on device") as error:
            write()
        assert (error.value.errno, error.value.filename) == (errno.ENOSPC, str(path))
