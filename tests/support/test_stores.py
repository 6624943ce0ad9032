"""Files at URLs are copied in full or not at all, whatever the store does; nobody reads what may be secret."""

import hashlib
import multiprocessing
import os
import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unmask.data.text.files import on_disk
from unmask.support import cache, stores
from unmask.support.choices import as_files, as_url, refuse_url
from unmask.support.errors import UnmaskError, UserError
from unmask.support.urls import Url, without_secrets

SECRETS = ("myself", "password", "SIGNED")


def secret(store, name):
    """Return the URL of a file with a user, a password and a signature."""
    return Url(f"{store.url.replace('://', '://myself:password@')}/{name}?X-Sig=SIGNED")


def read(url):
    """Return what is at a URL."""
    with on_disk(url) as path:
        return Path(path).read_bytes()


def test_messages_and_pickles_name_a_url_without_secrets():
    url = Url("https://me:pw@host:80/a/b.txt?sig=SECRET#x")
    assert url == str(url) == f"{url}" == "https://host:80/a/b.txt"
    assert url.address.endswith("SECRET#x")
    restored = pickle.loads(pickle.dumps(url))
    assert restored == url and restored.address == url.address
    assert url.child("c").address == "https://me:pw@host:80/a/b.txt/c?sig=SECRET#x"
    words = "--text=https://me:p@w@host/a?SECRET s3://bucket/a@b hf://datasets/a/b@main/c"
    assert without_secrets(words) == "--text=https://host/a s3://bucket/a@b hf://datasets/a/b@main/c"


def test_arguments_become_urls_or_paths():
    url, path, local = as_files(["S3://bucket/a.txt", "a.txt", "file:///texts/a%20b"])
    assert isinstance(url, Url) and url.address == "S3://bucket/a.txt"
    assert [path, local] == ["a.txt", "/texts/a b"]
    assert as_files("https://host/a?" + 300 * "x")[0] == "https://host/a"
    for wrong in ("zip://a::s3://b", "http://[/a", Path("s3://bucket/a")):
        with pytest.raises(UserError, match="URL"):
            as_url(wrong)
    for out in ("s3://bucket/out", Path("s3://bucket/out")):
        with pytest.raises(UserError, match="this machine only"):
            refuse_url(out)
    refuse_url("C:/out")


@pytest.mark.parametrize("ranges", [True, False])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(faults=st.lists(st.sampled_from(["", "", "500", "503", "429", "cut"]), max_size=12), size=st.integers(0, 3500))
def test_D18_a_copy_is_whole_or_there_is_none(store, monkeypatch, ranges, faults, size):
    monkeypatch.setattr(stores, "BLOCK", 1000)
    store.ranges, store.faults = ranges, list(faults)
    content = store.files["a.txt"] = b"%d" % len(store.asked) + bytes(size)  # not in the cache
    try:
        assert read(secret(store, "a.txt")) == content
    except UnmaskError as error:
        assert f"{store.url}/a.txt" in str(error) and not any(word in str(error) for word in SECRETS)
        assert sum(fault != "" for fault in faults) > len(stores.PAUSES)
    assert not list(cache.cache_folder().glob("*.part"))


def test_reading_goes_on_where_it_was_cut_off(store, monkeypatch):
    monkeypatch.setattr(stores, "BLOCK", 1000)
    content = store.files["a.bin"] = bytes(range(250)) * 20
    store.faults = [word for fault in ("500", "cut", "503", "cut", "500") for word in ("", fault)]
    assert read(Url(f"{store.url}/a.bin")) == content  # more faults than attempts, but none without progress before
    firsts = [first for method, _, first in store.asked if method == "GET"]
    assert firsts == [0, 1000, 1000, 2000, 2000, 3000, 3000, 4000, 4000]


@pytest.mark.parametrize(
    ("fault", "message"),
    [("500", "status 500"), ("cut", "payload is not completed"), ("slow", "imeout"), ("403", "may not be read")],
)
def test_D18_faults_that_last_end_in_an_error_that_names_the_url(store, monkeypatch, fault, message):
    monkeypatch.setattr(stores, "TIMEOUT", 0.1)
    store.files["a.txt"], store.faults = b"some text", 9 * [fault]
    with pytest.raises(UnmaskError, match=message) as caught:
        read(secret(store, "a.txt"))
    assert f"{store.url}/a.txt" in str(caught.value)
    assert not any(word in str(caught.value) for word in SECRETS)
    assert caught.value.__suppress_context__
    assert store.bodies == (1 if fault == "403" else len(stores.PAUSES) + 1)


@pytest.mark.parametrize(("fault", "message"), [("500", "status 500"), ("slow", "imeout"), ("403", "may not be read")])
def test_a_server_that_fails_at_once_is_told_from_one_that_lacks_the_file(store, monkeypatch, fault, message):
    monkeypatch.setattr(stores, "TIMEOUT", 0.1)
    store.files["a.txt"], store.lasting = b"some text", fault
    with pytest.raises(UnmaskError, match=f"/a.txt: .*{message}"):
        read(Url(f"{store.url}/a.txt"))


def test_a_server_that_cannot_be_reached_is_told_from_one_that_lacks_the_file(store):
    store.close()
    with pytest.raises(UnmaskError, match=r"/a.txt: cannot be read, .*Cannot connect"):
        read(Url(f"{store.url}/a.txt"))


def test_what_cannot_be_read_is_refused(store):
    with pytest.raises(UserError, match="does not exist"):
        read(Url(f"{store.url}/none.txt"))
    store.files["a.txt"], store.sizes = b"text", False
    with pytest.raises(UserError, match="does not state its size"):
        read(Url(f"{store.url}/a.txt"))
    with pytest.raises(UserError, match="not a protocol"):
        read(Url("nonsense://a"))


def test_D18_a_file_that_changes_while_it_is_read_is_refused_and_read_anew_afterwards(store, monkeypatch):
    url, download = Url(f"{store.url}/a.txt"), stores._download
    store.files["a.txt"] = b"old text"
    assert read(url) == b"old text"
    store.files["a.txt"] = b"new text"
    assert read(url) == b"new text"

    def change(url, known, size, file):
        store.files["a.txt"] = b"3rd text"
        download(url, known, size, file)

    store.files["a.txt"] = b"2nd text"
    monkeypatch.setattr(stores, "_download", change)
    with pytest.raises(UnmaskError, match="has changed"):
        read(url)
    assert read(url) == b"3rd text"


def test_only_the_start_is_read_where_only_that_is_needed(store, monkeypatch):
    monkeypatch.setattr(stores, "START", 10)
    store.files["a.txt"] = bytes(100)
    with on_disk(Url(f"{store.url}/a.txt"), start=True) as path:
        assert Path(path).read_bytes() == bytes(10)


def test_known_content_is_read_once_from_any_url_and_nothing_else_is_taken_for_it(store):
    content = b"tokens"
    digest = hashlib.sha256(content).hexdigest()
    store.files |= {"a.npy": content, "b.npy": content, "c.npy": b"forged"}
    for name in ("a.npy", "b.npy"):
        with stores.verified_on_disk(secret(store, name), len(content), digest) as path:
            assert path.read_bytes() == content
    assert store.bodies == 1
    other = hashlib.sha256(b"others").hexdigest()
    with pytest.raises(UnmaskError, match=r"/c.npy: cannot be read.*its sha256 differs"):
        stores.open_verified(secret(store, "c.npy"), 6, other)
    with pytest.raises(UserError, match="has 6 bytes, not 7"):
        stores.open_verified(secret(store, "c.npy"), 7, other)
    for size, sha256 in ((-1, other), (6, "../../" + other), (6, other[1:])):
        with pytest.raises(UserError, match="do not trust"):
            stores.open_verified(secret(store, "c.npy"), size, sha256)


def _copy(name, size, seen):
    def write(file):
        with seen.get_lock():
            seen.value += 1
        file.write(name.encode() * size)

    handle, path = cache.open_cached(name, size, write, name)
    assert path.read_bytes() == name.encode() * size
    os.close(handle)


def test_processes_share_one_copy(store):
    context = multiprocessing.get_context("fork")
    seen = context.Value("i", 0)
    processes = [context.Process(target=_copy, args=("a", 100_000, seen)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert seen.value == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(1, 400), min_size=1, max_size=12))
def test_the_cache_is_bounded_and_keeps_what_was_used_last(store, monkeypatch, sizes):
    monkeypatch.setenv(cache.SIZE, str(1000 / 1e9))
    for number, size in enumerate(sizes):
        handle, path = cache.open_cached(f"{number}", size, lambda file, size=size: file.write(bytes(size)), "")
        os.utime(path, (number, number))
        os.close(handle)
        kept = sorted(int(each.name) for each in cache.cache_folder().iterdir())
        assert sum(sizes[each] for each in kept) <= 1000
        assert number in kept
    for path in cache.cache_folder().iterdir():
        path.unlink()


def test_what_is_in_use_stays_and_more_than_the_cache_holds_is_refused(store, monkeypatch):
    monkeypatch.setenv(cache.SIZE, str(1000 / 1e9))
    store.files |= {"a.bin": bytes(600), "b.bin": bytes(600), "c.bin": bytes(1001)}
    with on_disk(Url(f"{store.url}/a.bin")) as path:
        with pytest.raises(UserError, match=r"b.bin: does not fit .* in use; set UNMASK_CACHE_GB to more"):
            read(Url(f"{store.url}/b.bin"))
        assert Path(path).stat().st_size == 600
    assert len(read(Url(f"{store.url}/b.bin"))) == 600
    with pytest.raises(UserError, match=r"c.bin: has .* GB, and the cache"):
        read(Url(f"{store.url}/c.bin"))
    for wrong in ("0", "-1", "much", "nan"):
        monkeypatch.setenv(cache.SIZE, wrong)
        with pytest.raises(UserError, match="not a positive number of gigabytes"):
            cache.cache_limit()


def test_a_copy_that_a_killed_process_has_begun_is_made_anew(store):
    url = Url(f"{store.url}/a.txt")
    store.files["a.txt"] = b"text"
    assert read(url) == b"text"
    (file,) = cache.cache_folder().iterdir()
    file.rename(f"{file}.part")
    assert read(url) == b"text"
    assert [path.name for path in cache.cache_folder().iterdir()] == [file.name]


@pytest.mark.parametrize("size", [3_000, 300_000])
def test_E5_a_full_disk_is_no_fault_of_the_store(store, volume, monkeypatch, size):
    """Such as one that another program fills meanwhile: it is named, and the store is not asked again."""
    folder = volume(32)
    monkeypatch.setenv(cache.FOLDER, str(folder / "cache"))
    store.files["a.bin"] = bytes(size)
    if size < 10_000:  # the buffer is flushed at the end
        (folder / "other").write_bytes(bytes(1 << 15))
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1 << 30))
    url = Url(f"{store.url}/a.bin")
    with pytest.raises(
        UserError, match=r"a\.bin: cannot be copied to .*\.part \(No space left.*\); free some space, or"
    ):
        read(url)
    assert sum(method == "GET" for method, *_ in store.asked) == 1
    assert [path.name for path in cache.cache_folder().iterdir()] == []
