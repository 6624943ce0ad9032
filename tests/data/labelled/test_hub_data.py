"""Data sets by their names: what is downloaded, revisions, the cache without a connection, and errors."""

import builtins
import hashlib
import io
import random
from pathlib import Path

import huggingface_hub.constants as constants
import pandas as pd
import pytest

from unmask.data.labelled.hub_data import locate
from unmask.data.labelled.labelled_file import read_rows
from unmask.data.labelled.table import as_sources
from unmask.support.errors import UserError

NAME = "someone/reviews"
REPOSITORY = f"datasets/{NAME}"


def parquet(frame):
    content = io.BytesIO()
    frame.to_parquet(content)
    return content.getvalue()


@pytest.fixture
def published(hub):
    """A data set on the server, with a file that is not read."""
    features = "features: [{name: label, dtype: {class_label: {names: [neg, pos]}}}]"
    frames = {
        split: pd.DataFrame({"text": [f"{split} {index}" for index in range(4)], "label": [0, 1, 1, 0]})
        for split in ("train", "test")
    }
    halves = [frames["train"][:2], frames["train"][2:]]
    files = {f"data/train-0000{index}-of-00002.parquet": parquet(half) for index, half in enumerate(halves)}
    files["data/test-00000-of-00001.parquet"] = parquet(frames["test"])
    hub.repositories[REPOSITORY] = files | {
        "README.md": f"---\ndataset_info: {{{features}}}\n---\n".encode(),
        "photo.png": b"x",
        ".gitattributes": b"",
    }
    return frames


def downloaded(hub):
    return {path.partition("/resolve/")[2].partition("/")[2] for path in hub.asked if "/resolve/" in path}


def texts(source):
    return [row.values["text"] for row in read_rows(as_sources(source), columns={})]


def test_only_the_files_of_a_split_are_downloaded(hub, published):
    rows = read_rows(as_sources(f"{NAME}#train"), columns={})
    assert [row.values["text"] for row in rows] == published["train"]["text"].to_list()
    assert [row.values["label"] for row in rows] == ["neg", "pos", "pos", "neg"]
    assert downloaded(hub) == {"README.md", *(f"data/train-0000{index}-of-00002.parquet" for index in range(2))}
    assert f"snapshots/{hub.commit(REPOSITORY)}#default/train:1" in f"{rows[0].file}:{rows[0].line}"


@pytest.mark.parametrize("prefix", ["", "hf://datasets/"])
def test_a_revision_is_pinned_and_read_from_the_cache_without_a_connection(hub, published, monkeypatch, prefix):
    pinned = hub.commit(REPOSITORY)
    texts(f"{prefix}{NAME}#train")
    hub.repositories[REPOSITORY]["data/test-00000-of-00001.parquet"] = parquet(published["test"][:1])
    assert texts(f"{prefix}{NAME}#test") == ["test 0"]
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    count = len(hub.asked)
    assert texts(f"{prefix}{NAME}@{pinned}#train") == published["train"]["text"].to_list()
    assert texts(f"{prefix}{NAME}@main#test") == ["test 0"]
    message = "in the cache, without a connection to the Hub: someone/reviews has no split 'train'; .*#test"
    with pytest.raises(UserError, match=message):
        texts(f"{prefix}{NAME}#train")
    assert len(hub.asked) == count


def test_the_cache_is_read_if_the_hub_does_not_answer(hub, published):
    before = texts(f"{NAME}#test")
    hub.close()
    assert texts(f"{NAME}#test") == before


def test_a_file_that_is_missing_in_the_cache_is_noticed(hub, published, monkeypatch):
    source = locate(f"{NAME}#train")
    folder = source.partition("#")[0]
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    next(path for path in Path(folder).glob("data/*")).unlink()
    with pytest.raises(UserError, match=r"1 of 2 files data/train-\*-of-00002\.parquet; download the others where"):
        texts(f"{NAME}#train")


def test_a_generated_cache_is_read(tmp_path, monkeypatch):
    """The documented layout: refs name commits, snapshots link to blobs."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    rng = random.Random(0)
    for number in range(15):
        name, commit = f"owner-{number}/set.{number}", hashlib.sha1(str(number).encode()).hexdigest()
        root = tmp_path / "cache" / f"datasets--{name.replace('/', '--')}"
        (root / "refs").mkdir(parents=True)
        (root / "blobs").mkdir()
        (root / "refs" / "main").write_text(commit)
        split, config = rng.choice(["train", "test"]), rng.choice(["", "en", "de"])
        path = f"{config}/{split}.jsonl" if config else f"{split}.jsonl"
        values = [f"text {rng.random()}" for _ in range(rng.randrange(1, 4))]
        content = "".join(f'{{"text": "{text}", "label": 1}}\n' for text in values)
        files = {path: content}
        if config:
            files["README.md"] = f"---\nconfigs: [{{config_name: {config}, data_dir: {config}}}]\n---\n"
        for file, text in files.items():
            blob = root / "blobs" / hashlib.sha1(text.encode()).hexdigest()
            blob.write_text(text)
            link = root / "snapshots" / commit / file
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(blob)
        source = f"hf://datasets/{name}{rng.choice(['', '@main', f'@{commit}'])}"
        assert texts(source + rng.choice(["", f"#{split}", f"#{config or 'default'}/{split}"])) == values


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "someone/nothing",
            r"no file 'someone/nothing', and no data set of this name at http://127.* that you may",
        ),
        (
            "someone/gated#x",
            r"access to someone/gated is restricted; accept its .* at http.*/datasets/someone/gated",
        ),
        (f"{NAME}@v9", f"{NAME} has no revision 'v9'"),
        (NAME, f"there are several splits in {NAME}; name one: {NAME}#test, {NAME}#train"),
        (f"{NAME}#dev", f"{NAME} has no split 'dev'; name one: {NAME}#test, {NAME}#train"),
        (f"{NAME}#photo.png", r"its files are \.png; name files of one of the formats"),
        ("someone/scripted#train", r"loaded by the script scripted.py, and code .* someone/scripted@refs/convert/parq"),
        (
            "hf://datasets/imdb",
            "'hf://datasets/imdb' is not the name of a data set; write hf://datasets/NAMESPACE/NAME",
        ),
    ],
)
def test_what_the_hub_does_not_give_out_is_named(source, message, hub, published):
    hub.gated.add("datasets/someone/gated")
    hub.repositories["datasets/someone/scripted"] = {"scripted.py": b"raise AssertionError", "data/x.csv": b"a"}
    with pytest.raises(UserError, match=message):
        texts(source)
    assert "scripted.py" not in downloaded(hub)


def test_what_is_not_in_the_cache_is_named(hub, published, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    message = "no such data set in the cache, while HF_HUB_OFFLINE is set; .* hf download --repo-type dataset someone/"
    with pytest.raises(UserError, match=message):
        texts(NAME)


def test_a_path_is_never_looked_up(hub, tmp_path):
    (tmp_path / "runs").mkdir()
    for source in ("data/train.csv", "data/x.jsonl.gz", "runs/none", "./a/b", "/a/b", "a/b/c", "x.db#a/b", "a", "-"):
        assert as_sources(source) == [source]
    path = tmp_path / NAME
    assert as_sources(path) == [path]
    path.mkdir(parents=True)
    assert as_sources([NAME, f"{NAME}#train"]) == [NAME, f"{NAME}#train"]
    assert hub.asked == []


def test_a_missing_library_names_the_extra(hub, monkeypatch):
    usual = builtins.__import__

    def without(name, *more, **others):
        if name.startswith("huggingface_hub"):
            raise ImportError(name)
        return usual(name, *more, **others)

    monkeypatch.setattr(builtins, "__import__", without)
    message = r"no file 'a/b': data sets on the Hugging Face Hub need huggingface_hub; pip install 'unmask\[hub\]', or"
    with pytest.raises(UserError, match=message):
        locate("a/b#train")
