"""Disks that are full, and directories that are mount points: on small file systems in memory."""

import os

import pytest

from unmask.cli.main import main
from unmask.data.corpus.build import write_corpus
from unmask.data.corpus.partial import PartialCorpus
from unmask.support.durable import replace_file

AGAIN = "free some space, then give the same command again"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_E6_a_corpus_is_built_into_a_mount_point(volume, source, built, tokenizer, files_of):
    out = volume(4096)
    (out / "lost+found").mkdir()
    corpus = write_corpus([source], tokenizer, out, shard_tokens=2000)
    corpus.verify()
    (out / "lost+found").rmdir()
    assert files_of(out) == files_of(built.directory)


def test_E6_an_interrupted_build_in_a_mount_point_is_resumed(volume, source, built, tokenizer, files_of, monkeypatch):
    out = volume(4096)
    lines = []
    with monkeypatch.context() as patch:
        patch.setattr(PartialCorpus, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            write_corpus([source], tokenizer, out, shard_tokens=2000)
    write_corpus([source], tokenizer, out, shard_tokens=2000, report=lines.append)
    assert any(line.startswith("resuming an interrupted build") for line in lines)
    assert files_of(out) == files_of(built.directory)


@pytest.mark.parametrize("size", [16, 40])
def test_E5_a_full_disk_is_named_with_the_file_and_the_cause(volume, source, tokenizer, tmp_path, capsys, size):
    out = volume(size)
    tokenizer.save(tmp_path / "tokenizer")
    given = ["corpus", "build", str(source), "--tokenizer", str(tmp_path / "tokenizer"), "--out", str(out / "corpus")]
    assert main([*given, "--workers", "1", "--quiet"]) == 1
    (message,) = capsys.readouterr().err.splitlines()
    assert message.startswith(f"unmask: {out}/corpus.partial/") and message.endswith(
        f": No space left on device; {AGAIN}"
    )
    assert not (out / "corpus").exists()


def test_E5_a_tokenizer_is_written_in_whole_files(volume, source, capsys):
    out = volume(12)
    assert main(["tokenizer", "train", str(source), "--vocab-size", "300", "--out", str(out / "words"), "--quiet"]) == 1
    (message,) = capsys.readouterr().err.splitlines()
    assert message.endswith(f": No space left on device; {AGAIN}")
    assert not (out / "words").exists(), "so that the command can be repeated"


def test_E7_a_planted_link_is_not_followed(tmp_path):
    target = tmp_path / "target"
    target.write_text("mine")
    (tmp_path / ".out.jsonl.part").symlink_to(target)
    replace_file(tmp_path / "out.jsonl", b"predictions")
    assert (target.read_text(), (tmp_path / "out.jsonl").read_bytes()) == ("mine", b"predictions")
    os.link(target, tmp_path / ".out.jsonl.part")
    replace_file(tmp_path / "out.jsonl", b"others")
    assert target.read_text() == "mine"


def test_T9_a_real_full_disk_leaves_the_old_checkpoint(volume, tmp_path):
    torch = pytest.importorskip("torch")
    from unmask.data.batches.sources import Cursor
    from unmask.support.errors import UnmaskError
    from unmask.training.checkpoint import Progress, State, newest_checkpoint, save_checkpoint

    folder = volume(400) / "checkpoints"
    state = State({"weight": torch.ones(20_000)}, {}, Progress(cursor=Cursor(), step=1))  # 80 kB
    save_checkpoint(folder, state)
    state.progress.step = 2
    message = r"step-00000002: .*No space left on device\); the previous one is intact: free some space, .* resume"
    with pytest.raises(UnmaskError, match=message):
        save_checkpoint(folder, state._replace(model={"weight": torch.ones(100_000)}))
    assert newest_checkpoint(folder)[0].name == "step-00000001"
    small = volume(40) / "checkpoints"
    with pytest.raises(UnmaskError, match=r"No space left on device\); free some space, then start the run again"):
        save_checkpoint(small, state)
