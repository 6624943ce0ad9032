"""Tests of interrupted builds: they resume from the last full shard, or are refused, and never give other bytes."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from unmask.data.corpus import partial
from unmask.data.corpus.build import write_corpus
from unmask.data.corpus.encode import DocumentEncoder
from unmask.data.text.documents import TextOptions
from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.support.errors import UserError

from ... import forking

SHARD = 2000


class Stopped(Exception):
    """Raised to interrupt a build."""


@pytest.fixture
def interrupted(source, tokenizer, tmp_path):
    """The folder of a build of the source into `other` that was interrupted after its second shard."""

    def stop(line):
        if line.startswith("train-00001"):
            raise Stopped

    with pytest.raises(Stopped):
        write_corpus([source], tokenizer, tmp_path / "other", shard_tokens=SHARD, report=stop)
    return tmp_path / "other.partial"


@pytest.fixture
def resume(source, tokenizer, tmp_path, monkeypatch):
    """A function that runs the same command again, returning corpus, documents encoded, and lines."""
    encoded = []
    encode = DocumentEncoder.__call__
    monkeypatch.setattr(DocumentEncoder, "__call__", lambda self, texts: encoded.extend(texts) or encode(self, texts))

    def build(paths=(source,), words=tokenizer, **settings):
        encoded.clear()
        lines = []
        settings = {"shard_tokens": SHARD, "report": lines.append, **settings}
        return write_corpus(paths, words, tmp_path / "other", **settings), len(encoded), lines

    return build


def test_D13_the_same_command_resumes(interrupted, built, resume, files_of):
    corpus, encoded, lines = resume()
    assert "resuming an interrupted build: reusing 2 full shards" in lines
    reused = built.manifest.train.shards[:2]
    assert encoded == 300 - sum(shard.documents for shard in reused)
    assert not any(line.startswith(("train-00000", "train-00001")) for line in lines)
    assert any(line.startswith("train-00002") for line in lines)
    assert files_of(corpus.directory) == files_of(built.directory)
    assert not interrupted.exists()


def test_D13_it_resumes_repeatedly(source, built, tokenizer, tmp_path, files_of):
    """The build is stopped after each full shard, also of the held-out part."""
    held = tmp_path / "held.jsonl"
    held.write_bytes(source.read_bytes())
    settings = {"shard_tokens": SHARD, "heldout": [held], "options": TextOptions(documents="line")}
    whole = write_corpus([source], tokenizer, tmp_path / "whole", **settings)

    def stop(line):
        if re.match(r"(train|heldout)-\d", line):
            raise Stopped

    full = sum(len(part.shards) - 1 for part in (whole.manifest.train, whole.manifest.heldout))
    assert full >= 6
    for _ in range(full):
        with pytest.raises(Stopped):
            write_corpus([source], tokenizer, tmp_path / "other", report=stop, **settings)
    write_corpus([source], tokenizer, tmp_path / "other", **settings)
    assert files_of(tmp_path / "other") == files_of(whole.directory)


def test_D13_text_after_the_full_shards_may_change(interrupted, source, tokenizer, tmp_path, resume, files_of):
    """For example, a line that --strict refused was fixed, or a line was added."""
    with source.open("a") as stream:
        stream.write('{"text": "The dog ran away. The mat sat."}\n')
    corpus, encoded, _ = resume()
    assert encoded < 250
    fresh = write_corpus([source], tokenizer, tmp_path / "fresh", shard_tokens=SHARD)
    assert files_of(corpus.directory) == files_of(fresh.directory)


def swap(lines):
    lines[3], lines[4] = lines[4], lines[3]


@pytest.mark.parametrize(
    "change",
    [
        swap,
        lambda lines: lines.pop(0),
        lambda lines: lines.__delitem__(slice(20, None)),
        lambda lines: lines.insert(0, '{"text": "the cat"}'),
        lambda lines: lines.__setitem__(7, lines[7].replace("the", "a")),
        lambda lines: lines.__setitem__(7, lines[7].replace('{"text": "', '{"text": "\\n\\n').replace(". ", ".\\n\\n")),
    ],
    ids=["swapped", "removed", "cut", "inserted", "word", "paragraphs"],
)
def test_D13_shards_of_another_text_are_refused(interrupted, source, built, resume, files_of, change):
    before, original = files_of(interrupted), source.read_bytes()
    lines = original.decode().splitlines()
    change(lines)
    source.write_text("\n".join(lines))
    with pytest.raises(
        UserError, match=r"other\.partial: contains shards of an interrupted build, but the text"
    ) as error:
        resume()
    assert "of its part 'train' was different; run the command that started it to resume it, or" in str(error.value)
    source.write_bytes(original)
    assert before.keys() <= files_of(interrupted).keys()
    corpus, encoded, _ = resume()
    assert encoded < 250, "the full shards were kept"
    assert files_of(corpus.directory) == files_of(built.directory)


@pytest.mark.parametrize("name", ["tokenizer", "tokens of a shard", "unmask", "sentencex"])
def test_D13_shards_of_other_settings_are_refused(interrupted, built, resume, files_of, monkeypatch, name):
    before = files_of(interrupted)
    settings = {}
    with monkeypatch.context() as patch:
        if name == "tokenizer":
            settings["words"] = train_wordpiece(["the cat sat"] * 3, size=60)
        elif name == "tokens of a shard":
            settings["shard_tokens"] = 3000
        elif name == "unmask":
            patch.setattr("unmask.support.fingerprint.__version__", "99")
        else:
            patch.setattr("unmask.support.fingerprint._version", lambda library: "99" + library)
        with pytest.raises(
            UserError, match=rf"with other settings: .*{name} was .+, now .+; run the command that started it"
        ):
            resume(**settings)
        assert files_of(interrupted) == before
    assert files_of(resume()[0].directory) == files_of(built.directory)


def test_D13_without_a_full_shard_nothing_is_left_and_nothing_is_refused(source, tokenizer, tmp_path, resume, files_of):
    def stop(line):
        raise Stopped

    with pytest.raises(Stopped):
        write_corpus([source], tokenizer, tmp_path / "other", shard_tokens=10**6, report=stop)
    assert not (tmp_path / "other.partial").exists()
    (tmp_path / "other.partial").mkdir()
    progress = partial.BuildProgress({"tokenizer": "another one"}, {"train": [], "heldout": []})
    (tmp_path / "other.partial" / "progress.json").write_bytes(partial.msgspec.json.encode(progress))
    assert resume()[1] == 300


def zero(path):
    path.write_bytes(path.read_bytes()[:-8] + bytes(8))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("train-00000.tokens.npy", 0), ("train-00001.checksums.npy", 1), ("train-00001.documents.npy", 1)],
)
@pytest.mark.parametrize("damage", [Path.unlink, zero])
def test_D13_a_damaged_shard_is_built_again(interrupted, built, resume, files_of, name, expected, damage):
    """As after a power failure, which loses what was not yet on disk."""
    damage(interrupted / "corpus" / name)
    corpus, encoded, lines = resume()
    assert f"rebuilding from the first damaged shard: {interrupted / 'corpus' / name}: is " in "\n".join(lines)
    assert encoded == 300 - sum(shard.documents for shard in built.manifest.train.shards[:expected])
    assert files_of(corpus.directory) == files_of(built.directory)


def test_D13_files_outside_full_shards_are_removed(interrupted, built, resume, files_of):
    corpus = interrupted / "corpus"
    (corpus / "tokenizer").mkdir()
    for name in ("tokenizer/extra.json", "manifest.json", "train-00002.tokens.npy", "train-00099.tokens.npy"):
        (corpus / name).write_bytes(b"half")
    (interrupted / "progress.part").write_bytes(b"{")
    assert files_of(resume()[0].directory) == files_of(built.directory)


def test_D13_standard_input_resumes_when_it_is_given_again(source, tokenizer, tmp_path, files_of, monkeypatch):
    text = "\n".join(json.loads(line)["text"] for line in source.read_text().splitlines())
    options = TextOptions(documents="line")

    def give(text, out, report=lambda line: None):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return write_corpus(["-"], tokenizer, tmp_path / out, shard_tokens=SHARD, options=options, report=report)

    def stop(line):
        if line.startswith("train-00001"):
            raise Stopped

    whole = give(text, "whole")
    with pytest.raises(Stopped):
        give(text, "other", stop)
    with pytest.raises(UserError, match="the text of its part 'train' was different"):
        give(text[1:], "other")
    assert files_of(give(text, "other").directory) == files_of(whole.directory)


def test_two_builds_of_one_corpus_are_refused(source, built, tokenizer, tmp_path, files_of):
    def second(line):
        if line.startswith("train-00001"):
            with pytest.raises(UserError, match=r"other\.partial: another program is building this corpus"):
                write_corpus([source], tokenizer, tmp_path / "other", shard_tokens=SHARD)

    corpus = write_corpus([source], tokenizer, tmp_path / "other", shard_tokens=SHARD, report=second)
    assert files_of(corpus.directory) == files_of(built.directory)


def test_a_folder_that_is_not_an_interrupted_build_is_left_alone(source, tokenizer, tmp_path):
    folder = tmp_path / "corpus.partial"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    with pytest.raises(
        UserError, match=r"corpus\.partial: exists but is not an interrupted build; remove or rename it"
    ):
        write_corpus([source], tokenizer, tmp_path / "corpus")
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]
    (folder / "progress.json").write_text("{")
    with pytest.raises(UserError, match=r"progress\.json: the file is damaged .*remove its folder"):
        write_corpus([source], tokenizer, tmp_path / "corpus")
    with pytest.raises(UserError, match="cannot be written"):
        write_corpus([source], tokenizer, "/proc/corpus")


KILLER = """
import os, shutil, signal, sys
from itertools import count
from pathlib import Path

import numpy

from unmask.data.corpus import partial
from unmask.data.corpus.build import write_corpus
from unmask.data.tokenizers.load import load_tokenizer
from unmask.data.tokenizers.tokenizer import Tokenizer

source, tokenizer, folder = Path(sys.argv[1]), load_tokenizer(sys.argv[2]), Path(sys.argv[3])


def build(out):
    lines = []
    write_corpus([source], tokenizer, out, shard_tokens=700, report=lines.append)
    return lines


def build_killed(out, limit):
    moments = count(1)

    def killing(call):
        def killed(*args, **settings):
            if next(moments) == limit:
                os.kill(os.getpid(), signal.SIGKILL)
            result = call(*args, **settings)
            if next(moments) == limit:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return killed

    places = [(partial, "sync"), (numpy, "save"), (shutil, "rmtree"), (Tokenizer, "save"), (partial, "acquire")]
    places += [(Path, name) for name in ("mkdir", "replace", "write_bytes", "unlink")]
    for owner, name in places:
        setattr(owner, name, killing(getattr(owner, name)))
    build(out)


for limit in count(1):
    out = folder / f"{limit:03d}"
    if (child := os.fork()) == 0:
        build_killed(out, limit)
        os._exit(0)
    if not os.WIFSIGNALED(os.waitpid(child, 0)[1]):
        break
    reused = "whole"
    if not out.exists():
        reused = next((line.split()[5] for line in build(out) if "reusing" in line), "0")
    print(reused)
"""


def test_D13_kill_before_and_after_each_call(tokenizer, make_documents, tmp_path, files_of):
    """A corpus that exists is complete; otherwise the build resumes from the last full shard to the same bytes."""
    source = tmp_path / "a.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in make_documents(50)))
    tokenizer.save(tmp_path / "tokenizer")
    whole = write_corpus([source], tokenizer, tmp_path / "whole", shard_tokens=700)
    assert len(whole.manifest.train.shards) > 1
    done = forking.run(["-c", KILLER, source, tmp_path / "tokenizer", tmp_path / "killed"])
    assert done.returncode == 0, done.stderr
    reused = done.stdout.split()
    expected = files_of(whole.directory)
    for number in range(1, len(reused) + 1):
        assert files_of(tmp_path / "killed" / f"{number:03d}") == expected
    numbers = [int(word) for word in reused if word != "whole"]
    assert numbers == sorted(numbers), "no full shard is lost"
    assert set(numbers) == set(range(len(whole.manifest.train.shards)))
    assert reused == [*map(str, numbers), *["whole"] * (len(reused) - len(numbers))]
    assert reused.count("whole") >= 3
    assert len(reused) > 60


BUILD = """
import signal, sys, time
from unmask.data.corpus import build, encode
from unmask.data.tokenizers.load import load_tokenizer

encode._CHUNK = 500
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it


def report(line):
    print(line, flush=True)
    if line.startswith("train-00001"):
        time.sleep(60)


if __name__ == "__main__":
    tokenizer = load_tokenizer(sys.argv[2])
    build.write_corpus([sys.argv[1]], tokenizer, sys.argv[3], shard_tokens=2000, workers=2, report=report)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_D13_a_killed_program_leaves_no_workers_and_resumes(built, source, tmp_path, resume, files_of, number):
    command = [sys.executable, "-c", BUILD, str(source), str(built.directory / "tokenizer"), str(tmp_path / "other")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        while not process.stdout.readline().startswith("train-00001"):
            pass
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as Ctrl-C does
        else:
            process.send_signal(number)
        stderr = process.communicate()[1]  # returns when the last of its processes has ended
    assert process.returncode == -number
    assert ("KeyboardInterrupt" in stderr) == (number == signal.SIGINT)
    assert stderr.count("Traceback") == (number == signal.SIGINT), "workers print nothing"
    assert not (tmp_path / "other").exists()
    corpus, _, lines = resume()
    assert "resuming an interrupted build: reusing 2 full shards" in lines
    assert files_of(corpus.directory) == files_of(built.directory)
    assert not (tmp_path / "other.partial").exists()
