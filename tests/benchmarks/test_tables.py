"""The pages have the tables of the results."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPECIFICATIONS = tomllib.loads((ROOT / "benchmarks" / "tables.toml").read_text(encoding="utf8"))
RUNS = [
    {"start": "one", "seed": 0, "about": {"processor": "P", "threads": 1}},
    {"start": "other", "seed": 0, "about": {"processor": "Q", "threads": 2}},
]


@pytest.fixture
def tables(benchmark_module):
    return benchmark_module("tables")


def test_a_page_gets_its_tables_with_command_and_machine(tables, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    (tmp_path / "x.json").write_text(json.dumps({"runs": RUNS}))
    columns = [{"title": "n", "value": "seed", "show": "count"}]
    specs = {
        "t": {
            "result": "x",
            "commands": ["python x.py"],
            "where": {"start": "one"},
            "rows": ["start"],
            "columns": columns,
        }
    }
    page = "a\n<!-- table t -->\nold\n<!-- end -->\nb"
    filled = tables.fill(page, specs)
    table = "| start | n |\n|---|---|\n| one | 1 |\n\nFrom `python x.py` (P, 1 thread)."
    assert filled == f"a\n<!-- table t -->\n{table}\n<!-- end -->\nb"
    assert tables.fill(filled, specs) == filled
    earlier = tables.fill(page, {"t": {**specs["t"], "earlier": ["python old.py"]}})
    assert "Measured by an earlier script, `python old.py` (P, 1 thread); `python x.py` makes this comp" in earlier
    same = {"t": {**specs["t"], "earlier": ["python x.py"]}}
    assert "From an earlier version of `python x.py` (P, 1 thread).\n" in tables.fill(page, same)
    gone = {name: value for name, value in specs["t"].items() if name != "commands"} | {"earlier": ["python old.py"]}
    assert "Measured by an earlier script, `python old.py` (P, 1 thread).\n" in tables.fill(page, {"t": gone})
    chosen = {"choose": {"by": [], "over": "rate", "value": "seed"}, "where": {"start": "one", "chosen": True}}
    assert tables.fill(page, {"t": {**specs["t"], **chosen}}) == filled, "what is chosen has its machine"
    with pytest.raises(SystemExit, match=r"table other is not in tables\.toml"):
        tables.fill(page.replace("table t", "table other"), specs)
    with pytest.raises(SystemExit, match="has no records"):
        tables.fill(page, {"t": {**specs["t"], "result": "none"}})


def test_the_pages_have_what_was_measured(tables, monkeypatch, run_main):
    monkeypatch.setattr(tables, "RESULTS", ROOT / "benchmarks" / "results")
    with pytest.raises(SystemExit) as ended:
        run_main(tables, "--check")
    assert ended.value.code == 0


@pytest.mark.parametrize("name", sorted(SPECIFICATIONS.keys() - {"figures"}))
def test_each_table_is_on_a_page_and_its_command_exists(name):
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert any(f"<!-- table {name} -->" in page.read_text(encoding="utf8") for page in pages)
    for command in SPECIFICATIONS[name].get("commands", ()):
        program, first, *_ = shlex.split(command)
        assert (ROOT / first).is_file() if program == "python" else (program, first) == ("unmask", "pretrain")


@pytest.mark.parametrize("name", sorted(name for name, each in SPECIFICATIONS.items() if "result" in each))
def test_the_scripts_that_a_table_names_are_those_of_its_records(tables, name):
    spec = SPECIFICATIONS[name]

    def runs(result):
        return json.loads((ROOT / "benchmarks" / "results" / f"{result}.json").read_text())["runs"]

    commands = [record["about"]["command"] for record in tables.records_of(spec, runs) if "about" in record]
    measured = {command.split()[1] for command in commands}
    assert measured <= {command.split()[1] for command in spec.get("earlier", spec.get("commands", ()))}


def test_every_result_has_one_schema():
    for path in (ROOT / "benchmarks" / "results").glob("*.json"):
        result = json.loads(path.read_text(encoding="utf8"))
        assert result.keys() == {"runs"}, path.name
        assert result["runs"], path.name
        for run in result["runs"]:
            assert re.fullmatch(r"python benchmarks/\w+\.py.*", run["about"]["command"]), path.name
            assert run["about"]["processor"], path.name
