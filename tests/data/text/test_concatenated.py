"""Streams of bzip2 and xz, one after the other: all of them are read, or an error is raised."""

import bz2
import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.text.files import open_binary
from unmask.support.errors import UserError

PACKS = {".bz2": bz2.compress, ".xz": lzma.compress}
OPENS = {".bz2": bz2.open, ".xz": lzma.open}


def read(path):
    with open_binary(path) as file:
        return file.read()


@given(
    st.sampled_from(sorted(PACKS)), st.lists(st.binary(max_size=300), min_size=1, max_size=4), st.integers(0, 70_000)
)
def test_streams_are_those_of_the_standard_library(tmp_path_factory, suffix, parts, zeros):
    path = tmp_path_factory.mktemp("files") / f"a{suffix}"
    path.write_bytes(b"".join(map(PACKS[suffix], parts)))
    with OPENS[suffix](path) as file:
        assert read(path) == file.read() == b"".join(parts)
    path.write_bytes(bytes(zeros).join(map(PACKS[suffix], parts)) + bytes(zeros))
    assert read(path) == b"".join(parts)


@pytest.mark.parametrize("suffix", PACKS)
def test_D1_a_damaged_byte_anywhere_is_told(suffix, tmp_path, request):
    """The standard library reads the first stream, and takes what follows for garbage."""
    path, streams = tmp_path / f"a{suffix}", [PACKS[suffix](b"Story %d. " % number * 9) for number in range(3)]
    content = b"".join(streams)
    for place in range(0, len(content), 1 if request.config.getoption("--exhaustive") else 5):
        damaged = bytearray(content)
        damaged[place] ^= 0x55
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="the archive is damaged"):
            read(path)
        if place not in (len(streams[0]), len(streams[0] + streams[1])):
            path.write_bytes(content[:place])
            with pytest.raises(UserError, match="the archive is damaged"):
                read(path)
    path.write_bytes(streams[0] + b"garbage")
    with pytest.raises(UserError, match="the archive is damaged"):
        read(path)
