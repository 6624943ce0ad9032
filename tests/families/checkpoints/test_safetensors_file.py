"""Untrusted weights: any defect of a file raises an error of one line that names it, quickly (C1, C2, C3, C16)."""

import json
import pickle
import random
import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.families.checkpoints import safetensors_file
from unmask.families.checkpoints.safetensors_file import read_shapes, read_tensors
from unmask.support.errors import UserError


def file_of(header, data=b""):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(header)) + header + data


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


MALFORMED = {
    "empty": b"",
    "no header": b"\0" * 8,
    "truncated length": b"\x10\0\0",
    "header length huge": struct.pack("<Q", 2**63) + b"{}",
    "header longer than the file": struct.pack("<Q", 100) + b"{}",
    "header garbage": file_of(b"\xff\xfe garbage"),
    "header no JSON": file_of(b'{"w": '),
    "header a list": file_of([1, 2]),
    "header a number": file_of(1),
    "header deep": file_of(b"[" * 100_000),
    "header in UTF-16": file_of('{"w": 1}'.encode("utf-16")),
    "entry no object": file_of({"w": 3}),
    "entry without shape": file_of({"w": {"dtype": "F32", "data_offsets": [0, 8]}}, b"\0" * 8),
    "entry with more": file_of({"w": entry() | {"more": 1}, "v": 2}, b"\0" * 8),
    "offsets beyond the end": file_of({"w": entry(offsets=(0, 8))}, b"\0" * 4),
    "offsets backwards": file_of({"w": entry(offsets=(8, 0))}, b"\0" * 8),
    "offsets negative": file_of({"w": entry(offsets=(-8, 0))}, b"\0" * 8),
    "offsets overlap": file_of({"v": entry(), "w": entry(offsets=(4, 12))}, b"\0" * 12),
    "a hole": file_of({"v": entry(), "w": entry(offsets=(12, 20))}, b"\0" * 20),
    "bytes behind the last": file_of({"w": entry()}, b"\0" * 12),
    "shape too big for its bytes": file_of({"w": entry(shape=(3,))}, b"\0" * 8),
    "shape negative": file_of({"w": entry(shape=(-2,))}, b"\0" * 8),
    "shape overflows": file_of({"w": entry(shape=(2**62, 8))}, b"\0" * 8),
    "shape of text": file_of({"w": entry(shape="ab")}, b"\0" * 8),
    "dtype unknown": file_of({"w": entry(dtype="F99")}, b"\0" * 8),
    "dtype no text": file_of({"w": entry(dtype=32)}, b"\0" * 8),
    "metadata no object": file_of({"__metadata__": 1, "w": entry()}, b"\0" * 8),
    "a pickle": pickle.dumps({"w": 1}),
}


def read(path, content):
    """Return all tensors of a file with this content."""
    path.write_bytes(content)
    return read_tensors(path, read_shapes(path))


def refused(path, content, *parts):
    with pytest.raises(UserError) as caught:
        read(path, content)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert all(part in message for part in parts), message


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def test_a_valid_file_is_read(path):
    data = struct.pack("<2f2e", 1, -2, 0.5, 4)
    header = {"__metadata__": {"format": "pt"}, "v": entry(), "w.0_-": entry("F16", offsets=(8, 12))}
    found = read(path, file_of(header, data))
    assert {name: value.tolist() for name, value in found.items()} == {"v": [1, -2], "w.0_-": [0.5, 4]}
    assert {value.dtype for value in found.values()} == {torch.float32}


@pytest.mark.parametrize("kind", MALFORMED)
def test_C1_malformed(path, kind):
    refused(
        path,
        MALFORMED[kind],
        "a header of" if kind in ("header length huge", "a pickle") else "not a valid safetensors file",
    )


def test_C1_no_file(path):
    with pytest.raises(UserError, match="cannot be read"):
        read_shapes(path)
    path.mkdir()
    with pytest.raises(UserError, match="cannot be read"):
        read_shapes(path)


def test_C2_a_duplicate_key(path):
    header = json.dumps({"v": entry(), "w": entry(offsets=(8, 16))}).encode()
    assert read(path, file_of(header, bytes(16))).keys() == {"v", "w"}
    refused(path, file_of(header.replace(b'"w"', b'"v"'), bytes(16)), "duplicate key")
    refused(path, file_of(header.replace(b'"shape"', b'"shape": [1], "shape"', 1), bytes(16)), "duplicate key")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_C2_a_weight_that_is_not_finite(path, bad):
    refused(path, file_of({"w": entry()}, struct.pack("<2f", 1, bad)), "tensor w", "not finite")


def test_finite_values_whose_sum_is_not_are_accepted(path):
    path.write_bytes(file_of({"w": entry()}, struct.pack("<2f", 3e38, 3e38)))
    assert read_tensors(path, ["w"])["w"].isfinite().all()


@pytest.mark.parametrize(
    "name", ["../evil", "a/../../b", "/etc/passwd", "a..b", "a\nb", "ä", "", "a b", "\u202e", ".a"]
)
def test_C2_an_invalid_name(path, name):
    refused(path, file_of({name: entry()}, bytes(8)), "is not a valid tensor name")


BITS = {"I32": 32, "I64": 64, "U8": 8, "BOOL": 8, "C64": 64, "U32": 32, "F8_E4M3": 8, "F8_E8M0": 8, "F4": 4}


@pytest.mark.parametrize(("dtype", "bits"), [*BITS.items(), ("F6_E2M3", 6)])
def test_C2_weights_of_other_types(path, dtype, bits):
    """The file is valid; torch has no tensor of type F6_E2M3."""
    content = file_of({"w": entry(dtype, (8,), (0, bits))}, bytes(bits))
    path.write_bytes(content)
    assert read_shapes(path) == {"w": (8,)}
    refused(path, content, "w has type" if dtype in BITS else "not understood")


def header_of(number):
    """Return a valid header of this number of empty tensors, as short as possible."""
    return (
        "{" + ",".join(f'"{i}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' for i in range(number)) + "}"
    ).encode()


def test_C3_a_million_tensors_are_refused_at_once(path, monkeypatch):
    path.write_bytes(file_of(header_of(1_000_000)))
    monkeypatch.setattr(safetensors_file.json, "loads", lambda *args, **options: pytest.fail("the header was read"))
    with pytest.raises(UserError, match=f"^{path}: a header of"):
        read_shapes(path)


def test_C3_the_largest_header_is_read_once(path, monkeypatch):
    path.write_bytes(file_of(header_of(17_000)))
    check, entries = safetensors_file.refuse_duplicates, []
    monkeypatch.setattr(safetensors_file, "refuse_duplicates", lambda pairs: entries.append(len(pairs)) or check(pairs))
    assert len(read_shapes(path)) == 17_000
    assert entries == [*[3] * 17_000, 17_000]
    refused(path, file_of(header_of(18_500)), "a header of")


WHOLE = file_of(
    {"__metadata__": {"format": "pt"}, "encoder.layer.0.output.dense.weight": entry(shape=(2, 2), offsets=(0, 16))}
    | {f"w{i}": entry(offsets=(16 + 8 * i, 24 + 8 * i)) for i in range(5)},
    struct.pack("<14f", *range(14)),
)
SIZE = 8 + struct.unpack("<Q", WHOLE[:8])[0]


def survives(path, content):
    """Return whether a file is read. A damaged one must yield finite numbers or raise a `UserError` of one line."""
    try:
        tensors = read(path, content)
    except UserError as error:
        assert "\n" not in str(error)
        return False
    assert all(value.isfinite().all() for value in tensors.values())
    return True


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzzed") / "model.safetensors"


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(flips=st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_C16_flipped_bytes_of_the_header_raise_nothing_else(fuzzed, flips):
    content = bytearray(WHOLE)
    for index, byte in flips:
        content[index] = byte
    survives(fuzzed, content)


PLANTED = (b"F32", b"I8", b"BF16", b"F4", b"[", b"]", b"-1", b"9" * 19, b"null", b'"', b"{}", b"1e3", b",", b"NaN")


def test_C16_words_planted_in_the_header_raise_nothing_else(fuzzed):
    rng = random.Random(0)
    assert survives(fuzzed, WHOLE)
    outcomes = []
    for _ in range(500):
        start = rng.randrange(8, SIZE)
        header = WHOLE[8:start] + rng.choice(PLANTED) + WHOLE[start + rng.randrange(5) : SIZE]
        outcomes.append(survives(fuzzed, file_of(header, WHOLE[SIZE:])))
    assert set(outcomes) == {True, False}
