"""Fine-tune what a comparison of comparisons/*.toml names, which says what is asked, on which data, and how fair it is.

A comparison has data sets, starts (checkpoints, encoders pretrained here, random weights) and methods (fine-tuning, a
downstream model on the frozen encoder; with a learning rate chosen on a split of the training data where it says so).
Each run, under runs/finetune/COMPARISON, adds a record to benchmarks/results: scores with 95 % intervals on data that served no choice, steps, epochs,
tokens, seconds. An interrupted run is resumed; a run with a record is not repeated (remove the record to repeat it).
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import msgspec
from common import HERE, add, logged, random_start
from pretrain import checkpoint, tokenizer_of
from quality import TOY_FINETUNING, Workspace, move, pick, sample, split, workspace, write_squad

import unmask
from unmask.evaluation.model import evaluate_task
from unmask.finetuning.rule import defaults
from unmask.labelled.squad_file import read_squad
from unmask.labelled.tagged_file import read_sentences, write_columns
from unmask.model import load_model
from unmask.settings import parse_overrides
from unmask.tasks.question_answering import QuestionAnswering

COMPARISONS = HERE / "comparisons"


class Data(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A data set.

    Attributes:
        task, metric: what is learned, and the score that is shown.
        train, dev: files to train on, and to evaluate along the way and score at the end.
        test: files to score on instead, after training.
        held: files to choose by; a split of the training data where `prepare` makes one.
        prepare: what is made of the files first; see `prepare`.
        examples: number of training examples, at most.
        each, watched: one training sentence in `each` is used; of the dev sentences so many are evaluated on.
        label: what records call it, if not by its name.
        ask: a pair of texts that the finished model is asked about.
        probe: the downstream model of methods that leave it to the data.
        factors, epochs: of the rule's learning rate, and of the training data: where a method runs a grid.
        choosing: what is different in runs that serve the choice of a learning rate.
        failed: by start, the factors that are not chosen.
        settings: of its runs.
        optional: runs only where --only names it.
    """

    task: str
    metric: str
    train: tuple[str, ...] = ()
    dev: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    prepare: str = ""
    examples: int | None = None
    each: int | None = None
    watched: int | None = None
    label: str = ""
    ask: tuple[str, str] | None = None
    probe: str = ""
    factors: tuple[float, ...] = ()
    epochs: tuple[float, ...] = ()
    choosing: dict[str, Any] = {}
    failed: dict[str, tuple[float, ...]] = {}
    settings: tuple[str, ...] = ()
    optional: bool = False


class Start(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The weights that training starts from: of `model`, or random ones in the body of `body` or `recipe`.

    Attributes:
        model, body: "minilm", or a case of pretraining.toml.
        recipe, tokenizer: a recipe's body, and the vocabulary: that of a text of pretraining.toml or of a model.
        labels: fields of its records; `start` is its name unless it is here.
        data, methods: those that it is for; empty: all.
        settings: of its runs.
        optional: runs only where --only names it.
    """

    model: str = ""
    body: str = ""
    recipe: str = ""
    tokenizer: str = ""
    labels: dict[str, Any] = {}
    data: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    optional: bool = False


class Method(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a start learns a data set.

    Attributes:
        frozen: the downstream model on the frozen encoder, or "of the data"; empty: all parameters are trained.
        rates: "rule": the default learning rate; "best": the best of the rule's times `factors`, chosen with the first
            seed; "grid": each of the rule's times the data's factors, and each number of epochs, scored by `held`.
        factors: of the rule's learning rate for pretrained weights.
        digits: significant ones to which the learning rate is rounded; 0: not rounded.
        settings: of its runs.
    """

    frozen: str = ""
    rates: Literal["rule", "best", "grid"] = "rule"
    factors: tuple[float, ...] = ()
    digits: int = 0
    settings: tuple[str, ...] = ()


class Comparison(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of comparisons/.

    Attributes:
        key, record: the fields of a record that tell it from others, and the other ones ("NAME=VALUE'S NAME").
        data, starts, methods: by name.
        seeds: by default.
        settings: of all runs.
        keep: whether run directories are kept.
    """

    key: tuple[str, ...]
    record: tuple[str, ...]
    data: dict[str, Data]
    starts: dict[str, Start]
    methods: dict[str, Method]
    seeds: tuple[int, ...] = (0, 1, 2)
    settings: tuple[str, ...] = ()
    keep: bool = False


@dataclass(frozen=True)
class Files:
    """What a run reads: see `Data`."""

    train: list[Path]
    dev: list[Path]
    test: list[Path]
    held: list[Path]


@dataclass(frozen=True)
class Task:
    """A data set, a start and a method, with their labels in records."""

    data: Data
    start: Start
    method: Method
    labels: dict[str, Any]


class Bench:
    """Runs a comparison.

    Args:
        name: of a file in comparisons/.
        work: where.
        folder: of files that are made for the runs.
        only: by field, the values that are run; empty: all.
        seeds: instead of the comparison's.
        settings: over all others.
        choosing: only choose, and do not score what is reported.
    """

    def __init__(
        self,
        name: str,
        work: Workspace,
        folder: Path,
        *,
        only: dict[str, set[str]] | None = None,
        seeds: tuple[int, ...] = (),
        settings: tuple[str, ...] = (),
        choosing: bool = False,
    ) -> None:
        table = tomllib.loads((COMPARISONS / f"{name}.toml").read_text(encoding="utf8"))
        self.name, self.comparison = name, msgspec.convert(table, Comparison)
        self.work, self.folder, self.only = work, folder, only or {}
        self.seeds = seeds or self.comparison.seeds[: 1 if work.toy else None]
        self.settings, self.choosing = settings, choosing

    def run(self) -> None:
        """Run what has no record yet."""
        for task in self.tasks():
            if task.method.rates == "grid":
                for factor in task.data.factors:
                    for epochs in task.data.epochs:
                        for seed in self.seeds:
                            self.score(task, seed, factor=factor, epochs=epochs, held=True)
                continue
            factor = self.best(task) if task.method.rates == "best" else None
            if not (self.choosing and factor):
                for seed in self.seeds:
                    self.score(task, seed, factor=factor)

    def tasks(self) -> Iterator[Task]:
        """Yield what is compared; at toy size each data set, start and method once, not each with each."""
        seen: set[tuple[str, str]] = set()
        for data_name, data in self.comparison.data.items():
            for start_name, start in self.comparison.starts.items():
                for method_name, method in self.comparison.methods.items():
                    names = {"data": data_name, "start": start_name, "method": method_name}
                    if not self._wanted(names, data, start):
                        continue
                    if not self.work.toy or names.items() - seen:
                        seen |= names.items()
                        labels = {**names, **start.labels, "data": data.label or data_name}
                        yield Task(data, start, method, labels)

    def best(self, task: Task) -> float:
        """Return the factor of the learning rate that scores best on the examples held out for choices."""
        failed = task.data.failed.get(task.labels["start"], ())
        factors = [factor for factor in task.method.factors if factor not in failed][: 2 if self.work.toy else None]
        seed = self.comparison.seeds[0]
        scores = {factor: self.score(task, seed, factor=factor, choosing=True) for factor in factors}
        return max(scores, key=lambda factor: scores[factor])

    def score(
        self,
        task: Task,
        seed: int,
        *,
        factor: float | None = None,
        epochs: float | None = None,
        choosing: bool = False,
        held: bool = False,
    ) -> float:
        """Fine-tune, or resume, where there is no record of it; return the score.

        Args:
            task: what is learned, from which start, how.
            seed: of the run.
            factor: of the rule's learning rate for pretrained weights.
            epochs: instead of the rule's.
            choosing: whether the run serves the choice of a factor.
            held: score on the examples held out for choices, as the others do not.
        """
        data, comparison = task.data, self.comparison
        if choosing:
            data = msgspec.convert({**msgspec.to_builtins(data), **data.choosing}, Data)
        values: dict[str, Any] = {
            **{"examples": data.examples, "each": data.each, "factor": factor, "epochs": epochs},
            **{"seed": seed, "choosing": choosing, **task.labels},
        }
        values |= {"method": "choosing"} if choosing else {}
        key = pick({name: value for name, value in values.items() if value is not None}, comparison.key)
        key |= {"set": list(self.settings)} if self.settings else {}
        key |= {"choosing": True} if self.choosing else {}
        if known := self.work.find(self.name, key):
            return float(known.get("score", known.get("accuracy", 0)))
        files = self._files(data, choosing=choosing)
        if choosing or held:
            files = Files(files.train, files.held, [], [])
        rate: list[str] = []
        model, tokenizer = self._model(task.start)
        if factor is not None:
            shape = load_model(model, tokenizer=tokenizer).encoder.settings
            rule: Any = defaults(data.task, shape, examples=1, pretrained=bool(task.start.model) or not held)
            value = factor * rule["optimizer"]["learning_rate"]
            value = float(f"{value:.{task.method.digits}g}") if task.method.digits else value
            rate = [f"optimizer.learning_rate={value}"]
        settings = [*comparison.settings, *data.settings, *task.method.settings, *task.start.settings, *rate]
        settings += [] if epochs is None else [f"budget.epochs={epochs}"]
        settings += [*self.settings, f"seed={seed}"]
        if self.work.toy:
            settings += [*TOY_FINETUNING, f"task.length={192 if data.task == 'question-answering' else 48}"]
        downstream = data.probe if task.method.frozen == "of the data" else task.method.frozen
        parts = [f"{part:g}" if isinstance(part, float) else str(part) for part in key.values()]
        out = self.work.runs / "finetune" / self.name / "-".join(parts).replace("/", "_")
        started = time.time()
        unmask.finetune(
            data.task,
            model,
            files.train,
            out,
            dev=files.dev,
            tokenizer=tokenizer,
            settings=parse_overrides(settings),
            frozen=bool(downstream),
            downstream=downstream or None,
            resume=(out / "recipe.toml").exists(),
            quiet=self.work.toy,
        )
        outcome = self._outcome(out, data, files) | {"seconds": round(time.time() - started, 1)}
        add(self.name, key | pick(outcome, [name for name in comparison.record if name not in key]))
        if not (comparison.keep or self.work.toy):
            shutil.rmtree(out)
        return float(outcome["score"])

    def _outcome(self, out: Path, data: Data, files: Files) -> dict[str, Any]:
        """Return what records can have."""
        last, recipe = logged(out)[-1], tomllib.loads((out / "recipe.toml").read_text(encoding="utf8"))
        outcome: dict[str, Any] = json.loads((out / "dev.json").read_bytes())
        outcome |= {"dev": None, "set": list(self.settings), "metric": data.metric}
        if "held" in self.comparison.record:
            outcome["held"] = evaluate(out, files.held)
        if files.test and not self.choosing:
            outcome["dev"] = evaluate(out, files.test)
            outcome |= outcome["dev"]
        if data.ask:
            (found,) = unmask.load(out).predict([data.ask[0]], [data.ask[1]])
            asked = {"text": data.ask[0], "text_b": data.ask[1], "label": found.label, "scores": found.scores}
            outcome["asked"] = asked
        return {
            **outcome,
            **{name: last[name] for name in ("step", "epochs", "tokens")},
            "step_seconds": last["seconds"],
            "score": outcome["metrics"][data.metric],
            "interval": outcome["intervals"].get(data.metric),
            "trained_on": files.train[0].read_bytes().count(b"\n") - 1,
            "learning_rate": recipe["optimizer"]["learning_rate"],
            "width": load_model(out).encoder.width,
            "recipe": recipe,
        }

    def _wanted(self, names: dict[str, str], data: Data, start: Start) -> bool:
        """Return whether --only, the start and what is optional let a combination be run."""
        if (start.data and names["data"] not in start.data) or (start.methods and names["method"] not in start.methods):
            return False
        labels = {**names, "examples": data.examples, **start.labels, **({"data": data.label} if data.label else {})}
        if any(not values & {str(labels.get(key)), names.get(key)} for key, values in self.only.items()):
            return False
        named = {key: names[key] in self.only.get(key, ()) for key in names}
        return (named["data"] or not data.optional) and (named["start"] or not start.optional)

    def _model(self, start: Start) -> tuple[str, Path | None]:
        """Return the MODEL to start from and, of random weights, the tokenizer."""
        if start.model:
            return str(checkpoint(start.model, self.work)), None
        if start.recipe:
            return self.work.random(start.recipe), tokenizer_of(start.tokenizer, self.work)
        body = checkpoint(start.body, self.work)
        folder = self.folder / start.body
        folder.mkdir(parents=True, exist_ok=True)
        return random_start(str(body), folder), body

    def _files(self, data: Data, *, choosing: bool) -> Files:
        """Return the files of a data set, with what is made of them first.

        `prepare` is one of: "sample", the first of the shuffled training examples; "split NAME", of a training set (see
        quality.split); "sentences", of which each so many-th is trained on; "questions", of which those about a tenth
        of the passages are held out; "moved questions", of which a third are about another passage, too.
        """
        names = (data.train, data.dev, data.test, data.held)
        train, dev, test, held = (self.work.files(some) for some in names)
        if self.work.toy and data.task == "token-classification":
            dev, test, held = train, train, train  # other files have types of entities that an excerpt does not have
        folder = self.folder / "-".join([*data.prepare.split(), *data.train, str(data.examples)]).replace("/", "_")
        folder.mkdir(parents=True, exist_ok=True)
        what, _, name = data.prepare.partition(" ")
        if what == "sample":
            train = [sample(train[0], data.examples or 0, folder / "train.tsv")]
        elif what == "split":
            made, kept = split(name, data.examples or 0, folder, self.work)
            train, held = [made], [kept]
        elif what == "sentences":
            train = [excerpt(train[0], folder / "train.conll", each=1 if self.work.toy else data.each or 1)]
            dev = [excerpt(dev[0], folder / "dev.conll", most=data.watched)] if not self.work.toy else train
        elif what in ("questions", "moved"):
            rest, apart = QuestionAnswering().hold_out(read_squad(train), seed=0)
            parts = {"train": rest, "held": apart, "test": read_squad(test)}
            parts = {name: move(part) for name, part in parts.items()} if what == "moved" else parts
            train, held, test = ([write_squad(folder / f"{name}.json", part)] for name, part in parts.items())
            dev = held
        elif what:
            raise ValueError(f"prepare = {data.prepare!r} is unknown")
        return Files(train, held if choosing else dev, test, held)


def excerpt(source: Path, to: Path, *, each: int = 1, most: int | None = None) -> Path:
    """Write one sentence in `each` of a file, and at most `most` of them."""
    sentences = read_sentences([source], columns={})[::each][:most]
    to.write_text("".join(write_columns(sentence, sentence.tags) for sentence in sentences), encoding="utf8")
    return to


def evaluate(run: Path, paths: list[Path]) -> dict[str, Any]:
    """Return the scores of a run on files, with intervals and, where "no answer" can be right, the threshold."""
    model = load_model(run)
    result = evaluate_task(model, paths, columns={})
    result.pop("notes", None)  # they name the files by their paths
    threshold = {"threshold": model.task.threshold} if isinstance(model.task, QuestionAnswering) else {}
    return result | threshold


def main(arguments: list[str] | None = None) -> None:
    """Run what has no record yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = sorted(path.stem for path in COMPARISONS.glob("*.toml"))
    parser.add_argument("comparison", choices=names, metavar="COMPARISON", help=", ".join(names))
    parser.add_argument("--only", nargs="+", default=[], metavar="KEY=VALUE", help="data=, start=, method=, examples=")
    parser.add_argument("--seeds", type=int, nargs="+", default=[], help="default: the comparison's")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="try another setting")
    parser.add_argument("--choosing", action="store_true", help="score only what is held out for choices")
    parser.add_argument("--runs", type=Path, help="where runs are kept (default: runs)")
    parser.add_argument("--toy", action="store_true", help="tiny models, two steps, excerpts; nothing is kept")
    options = parser.parse_args(arguments)
    only: dict[str, set[str]] = {}
    for text in options.only:
        key, _, value = text.partition("=")
        only.setdefault(key, set()).add(value)
    with workspace(options.runs, toy=options.toy) as work, TemporaryDirectory() as folder:
        seeds, settings = tuple(options.seeds), tuple(options.set)
        bench = Bench(
            options.comparison,
            work,
            Path(folder),
            only=only,
            seeds=seeds,
            settings=settings,
            choosing=options.choosing,
        )
        bench.run()


if __name__ == "__main__":
    main()
