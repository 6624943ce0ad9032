"""Files that are written one tensor at a time are those that safetensors writes and reads."""

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from unmask.support.tensor_file import DTYPES, save_tensors, write_tensors

SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
TENSORS = st.dictionaries(st.text(min_size=1, max_size=5), st.tuples(st.sampled_from(list(DTYPES)), SHAPES), max_size=6)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("files") / "x.safetensors"


@given(described=TENSORS, seed=st.integers(0, 99))
def test_what_is_written_is_read(path, described, seed):
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: torch.randint(0, 2 if dtype == torch.bool else 100, shape, generator=generator).to(dtype)
        for name, (dtype, shape) in described.items()
    }
    save_tensors(path, tensors)
    found = safetensors.torch.load_file(path)
    assert found.keys() == tensors.keys()
    for name, value in tensors.items():
        assert found[name].dtype == value.dtype
        assert found[name].equal(value)


def test_the_bytes_are_those_of_safetensors(path):
    tensors = {
        "b": torch.arange(6.0).view(2, 3),
        "a": torch.ones(3).bfloat16(),
        "c": torch.tensor(7),
        "d": torch.ones(2),
    }
    save_tensors(path, tensors)
    assert path.read_bytes() == safetensors.torch.save(tensors)
    save_tensors(path, tensors, {"format": "pt"})
    assert path.read_bytes() == safetensors.torch.save(tensors, {"format": "pt"})


def test_tensors_may_share_memory_and_have_a_gradient(path):
    whole = torch.arange(6.0, requires_grad=True)
    tensors = {"whole": whole, "half": whole[3:], "turned": whole.view(2, 3).t()}
    save_tensors(path, tensors)
    assert all(found.equal(tensors[name]) for name, found in safetensors.torch.load_file(path).items())


def test_a_tensor_that_is_not_as_described_is_not_written(path):
    with pytest.raises(AssertionError, match="a"):
        write_tensors(path, {"a": (torch.float32, (2,))}, [torch.ones(3)])
    with pytest.raises(ValueError, match="shorter"):
        write_tensors(path, {"a": (torch.float32, (2,))}, [])
