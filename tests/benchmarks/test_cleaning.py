"""The benchmark of cleaning runs at toy size: pages are untidy as it says, and cleaning makes them tidy again."""

import json

import pytest

pytest.importorskip("resiliparse")
pytestmark = pytest.mark.shared


def read_lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf8").splitlines()]


def test_pages_are_copied_and_have_menus(benchmark_module, tmp_path, shared):
    module = benchmark_module("cleaning")
    module.write_pages(tmp_path, 300)
    articles = {page["text"] for page in read_lines(tmp_path / "tidy.jsonl")}
    pages, menus = read_lines(tmp_path / "pages.jsonl"), set(module.menu_lines())
    assert len(pages) == pytest.approx(len(articles) / (1 - module.COPIED), abs=5)
    with_menu = [page["text"].splitlines()[0] in menus for page in pages]
    assert sum(with_menu) / len(pages) == pytest.approx(module.WITH_MENU, abs=0.1)
    bare = ["\n".join(line for line in page["text"].splitlines() if line not in menus) for page in pages]
    assert articles == set(bare)


@pytest.mark.exhaustive
def test_each_text_is_pretrained_on_and_scored(benchmark_module, run_main, tmp_path, shared, records, monkeypatch):
    module, excerpt = benchmark_module("cleaning"), benchmark_module("files").excerpt
    small = {"ARTICLES": 200, "TOKENS": 8000, "VOCABULARY": 500, "SENTENCES": 30, "LIMIT": 1}
    files = {
        name: excerpt(shared / "data" / getattr(module, name), tmp_path / name, 40, blocks=True)
        for name in ("TRAIN", "TEST")
    }
    for name, value in {**small, **files, "EPOCHS": {"budget.epochs": 1}}.items():
        monkeypatch.setattr(module, name, value)
    run_main(module, "raw", "cleaned", "--seeds", "0", "--runs", str(tmp_path))
    raw, cleaned = records("cleaning")
    assert raw["text"] == "raw" and cleaned["text"] == "cleaned"
    for record in (raw, cleaned):
        assert record["tokens"] >= 6000 and 0 <= record["f1"] <= 100 and record["bits_per_character"] > 1
    assert cleaned["epochs"] > 1.3 * raw["epochs"], "it is shorter, and so read more often"
