"""The page on Python: its blocks run, in order, in a folder that has the files which they name."""

import re
from pathlib import Path

import pytest

import unmask

PAGE = Path(__file__).resolve().parents[1] / "docs" / "python.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf8"), re.DOTALL)


def test_every_block_runs(documents, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("articles.txt").write_text("\n\n".join(documents), encoding="utf8")
    lines = [f"{word} day\t{label}" for word, label in (("good", "yes"), ("bad", "no")) for _ in range(40)]
    for name in ("reviews.tsv", "test.tsv"):
        Path(name).write_text("\n".join(["text\tlabel", *lines]), encoding="utf8")
    scored = [
        f"a {word} day\tthe day is {word}\t{score}" for word, score in (("good", 4), ("bad", 1)) for _ in range(40)
    ]
    Path("pairs.tsv").write_text("\n".join(["text_a\ttext_b\tscore", *scored]), encoding="utf8")
    names = {}
    for place, block in enumerate(BLOCKS):
        if not place:  # as it stands there, but in seconds
            block = block.replace("size=8000", "size=300").replace('"budget.minutes": 60', '"budget.steps": 2')
            block = block.replace('"bert-mini"', '"bert-tiny"').replace('"seed": 1', '"seed": 1, "budget.steps": 2')
        if '"pairs.tsv"' in block:
            block = block.replace('"my-similarity")\nnear', '"my-similarity", settings={"budget.steps": 2})\nnear')
        exec(compile(block, f"{PAGE.name}, block {place + 1}", "exec"), names)
    assert set(names["labels"]) == {"yes", "no"}
    assert names["result"]["examples"] == 80
    assert names["first"].ndim == 2
    first = unmask.load("my-own").predict(["good day"])[0].scores
    again = names["Predictor"](names["finished"]).predict(["good day"])[0].scores
    assert first == pytest.approx(again, abs=1e-6)


def test_the_public_names_are_listed_before_they_are_imported():
    assert dir(unmask) == sorted(unmask.__all__)
    assert all(hasattr(unmask, name) for name in dir(unmask))
