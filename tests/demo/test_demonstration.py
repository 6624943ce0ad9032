"""The demonstration: at toy size it goes from documentation to a picture, and goes on from what exists."""

import json

import pytest

from tests.demo.test_areas import modules
from unmask.demo import demonstration as demo
from unmask.demo.demonstration import texts_by_area

TINY = {
    "budget.steps": 2,
    "batch.tokens": 512,
    "tokenizer.vocabulary": 150,
    "encoder.width": 32,
    "encoder.layers": 1,
    "encoder.feed_forward": 32,
}


@pytest.fixture
def small(tmp_path, monkeypatch):
    """The demonstration at toy size on documentation of its own; returns its directory."""
    for name in ("graphs", "algebra"):
        modules(tmp_path / "library" / name, name, 60)
    names = {"graphs": "graphs", "algebra": "algebra"}
    monkeypatch.setattr(demo, "FEWEST", 10)
    monkeypatch.setattr(demo, "texts_by_area", lambda: texts_by_area(names, roots=[tmp_path / "library"]))
    monkeypatch.setattr(demo, "folders", lambda: [tmp_path / "library"])
    monkeypatch.setattr(demo, "SETTINGS", {**TINY, "budget.minutes": 0.02})
    for constant, value in {"TEST": 6, "COUNTS": (2, 3), "DRAWS": 1, "CHECKPOINT": "no_such_package"}.items():
        monkeypatch.setattr(demo, constant, value)
    return tmp_path / "demo"


def test_from_documentation_to_a_picture(small, capsys):
    demo.run_demo(small)
    out = capsys.readouterr().out
    assert "12 test texts of 2 areas" in out
    assert "random weights" in out and "pretrained here" in out and "MiniLM" not in out
    assert demo.SENTENCES[0] in out and str(small / "sentences.txt") in out
    text = (small / "documentation.jsonl").read_text()
    held = [line.split("\t") for line in (small / "test.tsv").read_text().splitlines()[1:]]
    assert len(held) == 12 and not any(line[0] in text for line in held), "the encoder does not read the test texts"
    learned = {line for path in small.glob("train-*.tsv") for line in path.read_text().splitlines()[1:]}
    assert not learned & {"\t".join(line) for line in held}
    assert len(learned) == 2 * 3, "the larger number contains the smaller one"
    runs = sorted(path.name for path in (small / "classifiers").iterdir())
    assert runs == sorted(f"{start}-{n}-0" for start in ("random", "pretrained") for n in (2, 3))
    scores = json.loads((small / "classifiers" / "pretrained-3-0" / demo.SCORES).read_text())
    assert f"{scores['metrics']['accuracy']:.1f} % right" in out
    assert "labeled texts of each team" in (small / "demo.svg").read_text() and str(small / "demo.svg") in out

    (small / "sentences.txt").write_text("My own sentence.\n")
    before = {path: path.stat().st_mtime_ns for path in small.rglob("model.safetensors")}
    demo.run_demo(small)
    assert "My own sentence." in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in small.rglob("model.safetensors")} == before, "all was there"
    scores = small / "classifiers" / "pretrained-3-0" / demo.SCORES
    scores.unlink()  # as if it had been killed between the model and its scores
    demo.run_demo(small)
    assert json.loads(scores.read_text())["metrics"]


def test_a_published_checkpoint_is_fine_tuned_where_it_is_installed(tmp_path, monkeypatch):
    assert [start for start, _, _ in demo._starts(tmp_path)] == ["random", "pretrained", "published"]
    monkeypatch.setattr(demo, "CHECKPOINT", "no_such_package")
    assert [start for start, _, _ in demo._starts(tmp_path)] == ["random", "pretrained"]


def test_each_draw_has_texts_of_its_own():
    texts = list(range(demo.TEST + demo.DRAWS * max(demo.COUNTS)))
    draws = [{count: demo._draw_of(texts, count, draw) for count in demo.COUNTS} for draw in range(demo.DRAWS)]
    assert [len(draws[0][count]) for count in demo.COUNTS] == list(demo.COUNTS)
    assert all(set(draw[4]) < set(draw[64]) and min(draw[4]) >= demo.TEST for draw in draws)
    assert len({text for draw in draws for text in draw[64]}) == 64 * demo.DRAWS


def test_the_numbers_fit_what_the_areas_have():
    assert all("[MASK]" in text for text in demo.BLANKS)
    assert demo.TEST + demo.DRAWS * max(demo.COUNTS) <= demo.FEWEST
