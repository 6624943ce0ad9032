"""Tests of reading records of web archives, intact and damaged, beside FastWARC."""

import gzip
import io
import random
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.data.text import archive_records
from unmask.data.text.archive_records import Damage, Record, read_records

BODY = b"The story is simple. " * 20


def warc(block, url="http://a.org/", kind="conversion", length=None):
    head = f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {url}\r\nContent-Type: text/plain\r\n"
    return f"{head}Content-Length: {len(block) if length is None else length}\r\n\r\n".encode() + block + b"\r\n\r\n"


def numbered(count, size=300):
    """Return records with different blocks that hardly compress."""
    return [b"%d " % number + random.Random(number).randbytes(size).hex().encode() for number in range(count)]


def read(content, form="warc"):
    return list(read_records(io.BytesIO(content), form))


def split(records):
    return [each.block for each in records if isinstance(each, Record)], [
        each.reason for each in records if isinstance(each, Damage)
    ]


blocks = st.lists(st.binary(max_size=200).map(lambda block: block.replace(b"WARC/", b"")), max_size=6)


@settings(max_examples=60, deadline=None)
@given(blocks, st.sampled_from(["plain", "members", "one member"]))
def test_records_are_those_of_fastwarc(blocks, form):
    warc_module = pytest.importorskip("fastwarc.warc")
    parts = [warc(block, f"http://a.org/{number}") for number, block in enumerate(blocks)]
    if form == "members":
        content = b"".join(map(gzip.compress, parts))
    else:
        content = b"".join(parts) if form == "plain" else gzip.compress(b"".join(parts))
    records = read(content)
    assert [each.number for each in records] == list(range(1, len(blocks) + 1))
    theirs = [
        (each.headers["WARC-Target-URI"], each.reader.read())
        for each in warc_module.ArchiveIterator(io.BytesIO(content), parse_http=False)
    ]
    assert (
        [(each.url, each.block) for each in records]
        == theirs
        == [(f"http://a.org/{number}", block) for number, block in enumerate(blocks)]
    )


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_damaged_byte_loses_one_record_and_is_told(data):
    sent = numbered(5)
    members = [gzip.compress(warc(block)) for block in sent]
    number = data.draw(st.integers(0, 4))
    place = data.draw(st.integers(10, len(members[number]) - 1))
    flipped = bytearray(members[number])
    flipped[place] ^= data.draw(st.integers(1, 255))
    blocks, reasons = split(read(b"".join([*members[:number], bytes(flipped), *members[number + 1 :]])))
    assert blocks == sent or (blocks == sent[:number] + sent[number + 1 :] and len(reasons) == 1), reasons


def test_damage_at_the_end_of_a_member_swallows_none_of_those_after_it():
    """A block of the damaged member may claim more bytes than the file has."""
    sent = numbered(5)
    members = [gzip.compress(warc(block)) for block in sent]
    for place in range(len(members[3]) - 40, len(members[3])):
        damaged = bytearray(members[3])
        damaged[place] ^= 255
        blocks, reasons = split(read(b"".join([*members[:3], bytes(damaged), members[4]])))
        assert blocks == sent or (blocks == [*sent[:3], sent[4]] and len(reasons) == 1), place


@pytest.mark.parametrize("size", [100, 30_000, 64_000, 100_000])
def test_a_large_damaged_member_swallows_none_of_those_after_it(size):
    """It is cut off in a block that claims 64 KB, of which more may be read before the damage is found."""
    sent = numbered(6)
    members = [gzip.compress(warc(block)) for block in (*sent, *numbered(1, 100_000))]
    head = members[0][:10]
    stored = b"".join(
        bytes([0]) + len(part).to_bytes(2, "little") + (65535 - len(part)).to_bytes(2, "little") + part
        for part in (warc(b"x" * size)[start : start + 60_000] for start in range(0, size, 60_000))
    )
    cut_off = head + stored + b"\0\xff\xff\0\0" + b"y" * 100
    blocks, reasons = split(read(members[0] + cut_off + b"".join(members[1:])))
    assert [block for block in blocks if block.strip(b"x")] == [*sent, *numbered(1, 100_000)]
    assert len(reasons) == 1


@pytest.mark.parametrize("zeros", [1, 500, 65_400, 65_536])
def test_zeros_between_members_are_no_damage(zeros):
    sent = numbered(3)
    blocks, reasons = split(read(bytes(zeros).join(gzip.compress(warc(block)) for block in sent) + bytes(zeros)))
    assert (blocks, reasons) == (sent, [])


@pytest.mark.parametrize("is_packed", [True, False])
def test_a_file_that_is_cut_off_is_told_wherever_it_ends(is_packed):
    sent = numbered(3, 40)
    content = b"".join(gzip.compress(warc(block)) if is_packed else warc(block) for block in sent)
    ends, end = {0}, 0
    for block in sent:
        end += len(gzip.compress(warc(block)) if is_packed else warc(block))
        ends |= {end} if is_packed else {end, end - 1, end - 2, end - 3, end - 4}
    for place in range(len(content)):
        blocks, reasons = split(read(content[:place]))
        assert blocks == sent[: len(blocks)]
        assert len(reasons) == (place not in ends), place


@pytest.mark.parametrize("is_packed", [True, False])
@pytest.mark.parametrize("lie", [-30, -1, 5, 400, 10**6, 10**9])
def test_a_length_that_lies_loses_one_record(is_packed, lie):
    sent = numbered(4)
    parts = [warc(block, length=len(block) + lie * (number == 1)) for number, block in enumerate(sent)]
    blocks, reasons = split(read(b"".join(map(gzip.compress, parts) if is_packed else parts)))
    assert blocks == [sent[0], *sent[2:]]
    assert len(reasons) == 1


@pytest.mark.parametrize("pump", ["a", "ab:", "http:", "http:20200101000000", ":1.1.1.1"])
@pytest.mark.parametrize("before", ["", "http://a.org/ 1.1.1.1 20200101000000 "])
def test_D12_lines_that_look_like_headers_take_time_that_is_proportional_to_their_length(before, pump):
    record = b"http://a.org/ 1.1.1.1 20200101000000 text/plain 5\nwords\n"
    for begun in (b"what is no record\n", b""):
        line = begun + f"{before}{pump * 60_000}\n".encode()
        blocks, reasons = split(read(line + record, "arc"))
        assert (blocks, len(reasons)) == ([b"words"], 1)


def test_what_is_no_record_is_told_and_passed_over():
    sent = numbered(2)
    for noise in (b"noise\r\nand more noise\r\n", b"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: x\r\n\r\n"):
        for content in (
            warc(sent[0]) + noise + warc(sent[1]),
            gzip.compress(warc(sent[0])) + noise + gzip.compress(warc(sent[1])),
            gzip.compress(warc(sent[0])) + gzip.compress(noise) + gzip.compress(warc(sent[1])),
        ):
            blocks, reasons = split(read(content))
            assert (blocks, len(reasons)) == (sent, 1)
    assert split(read(b"".join([*map(gzip.compress, map(warc, sent)), bytes(1000)]))) == (sent, [])
    assert read(b"") == []


def test_D10_bombs_and_long_records_are_passed_over_in_bounded_memory(monkeypatch):
    monkeypatch.setattr(archive_records, "MAX_DOCUMENT", 1_000_000)
    monkeypatch.setattr(archive_records, "FREE", 100_000)
    sent = numbered(2)
    packer = zlib.compressobj(9, wbits=31)
    bomb = packer.compress(warc(bytes(500), length=900_000)) + packer.compress(bytes(30_000_000)) + packer.flush()
    blocks, reasons = split(read(gzip.compress(warc(sent[0])) + bomb + gzip.compress(warc(sent[1]))))
    assert (blocks, reasons) == (sent, ["it expands to more than 100 times its size"])
    long = warc(random.Random(0).randbytes(2_000_000))
    blocks, reasons = split(read(warc(sent[0]) + long + warc(sent[1])))
    assert (blocks, reasons) == (sent, [archive_records.TOO_LONG])


def test_records_of_arc_files():
    def arc(url, block, length=None):
        size = len(block) if length is None else length
        return f"{url} 1.2.3.4 20080430204825 text/html {size}\n".encode() + block + b"\n"

    parts = [arc("filedesc://a.arc", b"1 1 InternetArchive\n"), arc("http://a.org/", BODY), arc("http://b.org/", BODY)]
    for content in (b"".join(parts), b"".join(map(gzip.compress, parts))):
        records = read(content, "arc")
        assert [each.url for each in records] == ["filedesc://a.arc", "http://a.org/", "http://b.org/"]
        assert [each.block for each in records[1:]] == [BODY, BODY]
    parts[1] = arc("http://a.org/", BODY, 500)
    blocks, reasons = split(read(b"".join(parts), "arc"))
    assert (blocks[1:], len(reasons)) == ([BODY], 1)
