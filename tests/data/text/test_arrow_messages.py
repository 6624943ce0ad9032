"""Compressed buffers of Arrow expand to what pyarrow allocates; bombs are refused before they do."""

import random
import struct

import pyarrow
import pytest
from pyarrow import ipc

from unmask.data.text import record_files
from unmask.data.text.arrow_sizes import decompressed_size
from unmask.data.text.record_files import read_arrow
from unmask.support.errors import UserError

from ... import forking
from .test_arrow_sizes import BOMB, TYPES, value_of

COMPRESSIONS = ("lz4", "zstd", None)
WRITERS = {"file": ipc.new_file, "stream": ipc.new_stream}


def write(path, batches, form, **options):
    """Write batches as a file or a stream of Arrow."""
    settings = ipc.IpcWriteOptions(**options)
    with (
        pyarrow.OSFile(str(path), "wb") as sink,
        WRITERS[form](sink, batches[0].schema, options=settings) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)


def buffers_of(array):
    """Return the buffers of an array, those of dictionaries at any depth included."""
    buffers = [buffer for buffer in array.buffers() if buffer is not None]
    waiting = [array]
    while waiting:
        part = waiting.pop()
        if pyarrow.types.is_dictionary(part.type):
            buffers += buffers_of(part.dictionary)
        elif pyarrow.types.is_list(part.type) or pyarrow.types.is_large_list(part.type):
            waiting.append(part.values)
    return buffers


def read(path, form):
    """Return the batches of a file, and the bytes that pyarrow allocates for them; the file's own are not copied."""
    content, before = pyarrow.BufferReader(path.read_bytes()), pyarrow.total_allocated_bytes()
    if form == "file":
        source = ipc.open_file(content)
        batches = [source.get_batch(number) for number in range(source.num_record_batches)]
    else:
        batches = list(ipc.open_stream(content))
    return batches, pyarrow.total_allocated_bytes() - before


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_sizes_are_those_that_pyarrow_allocates(compression, form, tmp_path):
    path = tmp_path / "a.arrow"
    for seed in range(15):
        rng = random.Random(seed)
        names = rng.sample(sorted(TYPES), rng.randrange(1, 5))
        rows = rng.randrange(200)
        columns = {
            name: pyarrow.array([value_of(TYPES[name], rng) for _ in range(rows)], TYPES[name]) for name in names
        }
        table = pyarrow.record_batch(columns)
        batches = [table] if form == "file" else [table] * rng.randrange(1, 4)  # equal dictionaries are written once
        versions = {"use_legacy_format": rng.random() < 0.3}
        if compression is None and rng.random() < 0.3:
            versions["metadata_version"] = ipc.MetadataVersion.V4
        write(path, batches, form, compression=compression, **versions)
        written, allocated = read(path, form)
        dictionaries = {}  # of all batches
        expected = number = 0
        for batch in written:
            for column in batch.columns:
                for buffer in buffers_of(column):
                    if dictionaries.setdefault(buffer.address, buffer) is buffer:
                        expected, number = expected + buffer.size, number + 1
        size = decompressed_size(path, in_blocks=form == "file")
        assert size == (expected if compression else 0), (seed, names, rows)
        assert size <= allocated < size + 64 * (number + 1) or not compression  # pyarrow rounds up to 64 bytes


@pytest.mark.parametrize("form", WRITERS)
def test_dictionaries_that_grow_or_are_replaced_are_counted(form, tmp_path):
    path, kind = tmp_path / "a.arrow", pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    words = [f"word {number}" for number in range(100)]
    batches = [
        pyarrow.record_batch({"a": pyarrow.array(words[:end], pyarrow.string()).dictionary_encode().cast(kind)})
        for end in (40, 80, 100)
    ]
    write(path, batches, form, compression="zstd", emit_dictionary_deltas=True)
    texts = len("".join(words)) + 4 * (100 + 3)  # the bytes and ends of the texts, each once
    assert decompressed_size(path, in_blocks=form == "file") == texts + 4 * (40 + 80 + 100)


def test_a_buffer_that_is_stored_as_it_is_expands_to_nothing(tmp_path):
    path = tmp_path / "a.arrow"
    write(path, [pyarrow.record_batch({"a": pyarrow.array([1, 2, 3, 4])})], "stream", compression="zstd")
    content = path.read_bytes()
    size = struct.pack("<q", 4 * 8)
    assert content.count(size) == 1
    assert decompressed_size(path, in_blocks=False) == 4 * 8
    path.write_bytes(content.replace(size, struct.pack("<q", -1)))
    assert decompressed_size(path, in_blocks=False) == 0


MEGABYTES = 200


def bomb(name):
    """Return batches that expand to 200 MB in all, in columns that are read, that are not, and in dictionaries."""
    zeros = b"\0" * (MEGABYTES * 1_000_000)
    if name == "numbers":
        return [
            pyarrow.record_batch(
                {"a": pyarrow.Array.from_buffers(pyarrow.int64(), len(zeros) // 8, [None, pyarrow.py_buffer(zeros)])}
            )
        ]
    if name == "images":  # not read, but decompressed
        image = pyarrow.py_buffer(zeros)
        ends = pyarrow.py_buffer(struct.pack("<2i", 0, len(zeros)))
        return [
            pyarrow.record_batch(
                {"text": ["a"], "image": pyarrow.Array.from_buffers(pyarrow.binary(), 1, [None, ends, image])}
            )
        ]
    text = pyarrow.Array.from_buffers(
        pyarrow.string(), 1, [None, pyarrow.py_buffer(struct.pack("<2i", 0, len(zeros))), pyarrow.py_buffer(zeros)]
    )
    return [
        pyarrow.record_batch({"text": pyarrow.DictionaryArray.from_arrays(pyarrow.array([0], pyarrow.int32()), text)})
    ]


@pytest.mark.parametrize("name", ["numbers", "images", "dictionary"])
def test_D10_compressed_batches_that_expand_too_much_are_refused_before_they_do(name, tmp_path):
    paths = []
    batches = bomb(name)
    for compression in ("lz4", "zstd"):
        for form in WRITERS:
            paths.append(tmp_path / f"{form}-{compression}.{'feather' if form == 'file' else 'arrow'}")
            write(paths[-1], batches, form, compression=compression)
    del batches
    done = forking.run(["-c", BOMB, *paths])
    assert done.returncode == 0, done.stderr[-1000:]
    *messages, megabytes = done.stdout.splitlines()
    assert len(messages) == 4
    assert all("expands to more than 100 times its size" in message for message in messages), messages
    assert int(megabytes) < 50


def test_many_batches_that_expand_too_much_together_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.arrow"
    write(path, [pyarrow.record_batch({"a": ["x" * 10_000]})] * 5, "file", compression="zstd")
    assert len(list(read_arrow(path))) == 5
    monkeypatch.setattr(record_files, "FREE", 45_000)
    monkeypatch.setattr(record_files, "MAX_RATIO", 1)
    with pytest.raises(UserError, match=r"a\.arrow: the archive expands to more than"):
        list(read_arrow(path))


@pytest.mark.parametrize("form", WRITERS)
def test_damaged_messages_are_errors_and_never_crash(form, tmp_path):
    """Bytes of 400 files are replaced, or files cut off: each is read or refused."""
    path, results = tmp_path / "a.arrow", []
    columns = {"text": [f"row {number}" for number in range(20)], "tags": [["a", "b"]] * 20}
    write(path, [pyarrow.record_batch(columns)] * 3, form, compression="zstd")
    content = path.read_bytes()
    for seed in range(100):
        rng, damaged = random.Random(seed), bytearray(content)
        for _ in range(rng.randrange(1, 4)):
            place = rng.randrange(len(content) // 4) * 4
            damaged[place : place + 4] = rng.choice([b"\xff\xff\xff\x7f", bytes(4), b"\xff" * 4, rng.randbytes(4)])
        path.write_bytes(damaged[: rng.choice([len(damaged), rng.randrange(len(damaged))])])
        try:
            results.append(decompressed_size(path, in_blocks=form == "file"))
        except ValueError:
            results.append(None)
    assert 50 < sum(result is None for result in results) < 350
