"""What predict refuses before it loads a model."""

import pytest

from unmask.cli.main import main


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("in.tsv", "in.tsv: --out is the file of --data; name another one"),
        ("folder", "folder: is a folder; name a file"),
        ("nowhere/out.jsonl", "nowhere: there is no such folder; make it, or name another --out"),
    ],
)
def test_an_output_that_cannot_be_is_refused_at_once(tmp_path, monkeypatch, capsys, out, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "in.tsv").write_text("text\nthe dog\n")
    assert main(["predict", "--model", "none", "--data", "in.tsv", "--out", out]) == 2
    assert capsys.readouterr().err == f"unmask: {message}\n"
    assert (tmp_path / "in.tsv").read_text() == "text\nthe dog\n"
