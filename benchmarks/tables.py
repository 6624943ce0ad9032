"""Write the tables of README.md and docs/results.md from benchmarks/results, and the learning curves into docs.

So is what `unmask pretrain` says about how far a recipe comes (src/unmask/workflows/pretraining/recorded.json).

On a page a table is between `<!-- table NAME -->` and `<!-- end -->`. Its records, rows and columns, and the command
that measures it, are in tables.toml. Each result is a list of records (see common.py), and every table is a pivot of
one (pivot.py).

`--check` writes nothing and fails where a page differs from the results.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common import HERE, RESULTS, read
from pivot import Record, matches, pivot, records_of

ROOT = HERE.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SPECIFICATION = HERE / "tables.toml"
RECORDED = ROOT / "src" / "unmask" / "workflows" / "pretraining" / "recorded.json"
MARKED = re.compile(r"<!-- table ([\w-]+) -->.*?<!-- end -->", re.DOTALL)


def markdown(table: Sequence[Sequence[str]]) -> list[str]:
    """Return a table in Markdown."""
    lines = [f"| {' | '.join(row)} |" for row in table]
    return [lines[0], "|" + "---|" * len(table[0]), *lines[1:]]


def provenance(spec: Record, records: Sequence[Record]) -> str:
    """Return the command that measures a table, and on what it was measured last.

    A table that was measured by commands of `earlier` scripts, which are gone or measure otherwise now, says so.
    """
    about = [record["about"] for record in records if "about" in record]
    machines = dict.fromkeys(one["processor"] for one in about if one.get("processor"))
    threads = sorted({one["threads"] for one in about if one.get("threads")})
    counted = " or ".join(map(str, threads)) + (" thread" if threads == [1] else " threads")
    measured = ", ".join([*machines, *([counted] if threads else [])])
    commands = ", ".join(f"`{command}`" for command in spec.get("commands", ()))
    machine = f" ({measured})" if measured else ""
    if "earlier" not in spec:
        return f"From {commands}{machine}."
    if spec["earlier"] == spec.get("commands"):
        return f"From an earlier version of {commands}{machine}."
    earlier = ", ".join(f"`{command}`" for command in spec["earlier"])
    makes = "makes" if len(spec.get("commands", ())) == 1 else "make"
    now = f"; {commands} {makes} this comparison now" if commands else ""
    return f"Measured by an earlier script, {earlier}{machine}{now}."


def fill(text: str, specs: Mapping[str, Record]) -> str:
    """Return a page with all of its tables written from the results.

    Raises:
        SystemExit: a table is not in tables.toml, or nothing has been measured for it.
    """

    def results(name: str) -> list[Record]:
        records: list[Record] = read(RESULTS / f"{name}.json").get("runs", [])
        if not records:
            sys.exit(f"benchmarks/results/{name}.json has no records")
        return records

    def table(match: re.Match[str]) -> str:
        name = match[1]
        if name not in specs:
            sys.exit(f"table {name} is not in {SPECIFICATION.name}")
        spec = specs[name]
        lines = markdown(pivot(spec, results))
        if "result" in spec:
            lines += ["", provenance(spec, records_of(spec, results))]
        return "\n".join([f"<!-- table {name} -->", *lines, "<!-- end -->"])

    return MARKED.sub(table, text)


def draw(spec: Record, path: Path) -> None:
    """Draw panels side by side: learning curves, or bars."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(5.0 * len(spec["panels"]), 3.6), dpi=120, layout="constrained")
    for panel, about in zip(drawing.subplots(1, len(spec["panels"])), spec["panels"], strict=True):
        records = [one for one in read(RESULTS / f"{about['result']}.json")["runs"] if matches(one, about["where"])]
        (_bars if "bars" in about else _curves)(panel, about, records)
        panel.set_title(about["title"], fontsize=10)
        panel.legend(frameon=False, fontsize=8)
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y" if "bars" in about else "both", alpha=0.25)
    drawing.savefig(path)


def _curves(panel: Any, about: Record, records: Sequence[Record]) -> None:
    """Draw a line for each record whose held-out lines have the value, in percent, over tokens or minutes."""
    key, unit = ("seconds", 60) if about.get("over") == "minutes" else ("tokens", 1e6)
    for record in records:
        curve = [line for line in record.get("heldout", []) if about["value"] in line]
        if curve:
            spent, values = zip(*((line[key] / unit, 100 * line[about["value"]]) for line in curve), strict=True)
            name = record[about["label"]]
            panel.plot(spent, values, marker="o", markersize=2, label=about.get("names", {}).get(name, name))
    panel.set(xlabel=about.get("over", "million tokens"), ylim=about.get("limits", (0, None)))


def _bars(panel: Any, about: Record, records: Sequence[Record]) -> None:
    """Draw the median value of each of the `bars` (labels to what tells their records), in groups of `series`."""
    width = 0.8 / len(about["series"])
    for offset, (name, where) in enumerate(about["series"].items()):
        groups = [
            [one[about["value"]] for one in records if matches(one, {**where, **bar})] for bar in about["bars"].values()
        ]
        heights = [statistics.median(group) if group else 0.0 for group in groups]
        positions = [index + offset * width for index in range(len(groups))]
        panel.bar_label(
            panel.bar(positions, heights, width, label=name), fmt=lambda height: f"{height:,.0f}", fontsize=7
        )
    panel.set_xticks([index + 0.4 - width / 2 for index in range(len(about["bars"]))], list(about["bars"]))


def recorded() -> Record:
    """Return what pretraining/default.py tells: what budgets reach (comparisons/scaling.toml), and F1 of entities."""
    records = read(RESULTS / "comparisons.json").get("runs", [])
    runs = [
        {
            "recipe": f"modernbert-{run['arm']}",
            "tokens": round(1e6 * float(run["task"].split()[0])),
            "accuracy": round(run["share"] / 100, 4),
        }
        for run in records
        if run["comparison"] == "scaling" and run.get("extrapolated") is False
    ]
    news = {
        "published": {"comparison": "token_classification", "arm": "minilm", "task": "conll2003-14041"},
        "half_hour": {"comparison": "half_hour", "arm": "mini", "task": "conll2003"},
    }
    scores = {name: round(run["score"], 1) for name, where in news.items() for run in records if matches(run, where)}
    return {"runs": sorted(runs, key=lambda run: (run["recipe"], run["tokens"])), **scores}


def main() -> None:
    """Write the pages and figures, or compare the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare the pages and write nothing")
    options = parser.parse_args()
    specs = tomllib.loads(SPECIFICATION.read_text(encoding="utf8"))
    figures, stale = specs.pop("figures", {}), []
    for page in PAGES:
        text = page.read_text(encoding="utf8")
        if (fresh := fill(text, specs)) != text:
            stale.append(page.name)
            if not options.check:
                page.write_text(fresh, encoding="utf8")
    runs = json.dumps(recorded(), indent=1) + "\n"
    if runs != RECORDED.read_text(encoding="utf8"):
        stale.append(RECORDED.name)
        if not options.check:
            RECORDED.write_text(runs, encoding="utf8")
    if options.check:
        sys.exit(f"not what benchmarks/results has: {', '.join(stale)}; run make tables" if stale else 0)
    for name, spec in figures.items():
        draw(spec, ROOT / "docs" / f"{name}.png")


if __name__ == "__main__":
    main()
