"""Fine-tune what a comparison of finetuning/*.toml names, which says what is asked, on which data, and how fair it is.

A comparison has data sets, starts (checkpoints, encoders pretrained here, random weights) and methods (fine-tuning, a
downstream model on the frozen encoder; with a learning rate chosen on a split of the training data where it says so).
Each run, under runs/finetune/COMPARISON, adds a record to benchmarks/results: scores with 95 % intervals on data that
served no choice, steps, epochs, tokens, seconds. An interrupted run is resumed; a run with a record is not repeated
(remove the record to repeat it).
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
import trainer_finetune
from common import add, compared, logged, random_start
from comparison import COMPARISONS, Data, Start, Task, read_comparison
from dialogues import held_out, write_made
from pretrain import checkpoint, read_cases, tokenizer_of
from quality import (
    TOY_FINETUNING,
    Workspace,
    excerpt,
    move,
    pick,
    sample,
    split,
    split_sentences,
    workspace,
    write_squad,
)

import unmask
from unmask.data.labelled.question_files import read_squad
from unmask.inference.evaluation.scoring import evaluate_task
from unmask.model.model import load_model, save_model
from unmask.support.settings import Overrides, parse_overrides
from unmask.tasks.question_answering import QuestionAnswering
from unmask.training.machine import choose_machine
from unmask.training.processes import Processes
from unmask.training.runs.display import Display
from unmask.workflows.distillation.distill import distill_lesson
from unmask.workflows.distillation.lesson import Lesson
from unmask.workflows.distillation.student import student_of, student_settings
from unmask.workflows.distillation.task_distillation import prepare_baseline
from unmask.workflows.finetuning.job import LabelledFiles, defaults
from unmask.workflows.finetuning.run_job import run_prepared


class Files(NamedTuple):
    """What a run reads: see `Data`."""

    train: list[Path]
    dev: list[Path]
    test: list[Path]
    held: list[Path]


class Bench:
    """Runs a comparison.

    Args:
        name: of a file in finetuning/.
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
        only: dict[str, set[str]] | None = None,
        seeds: tuple[int, ...] = (),
        settings: tuple[str, ...] = (),
        choosing: bool = False,
    ) -> None:
        self.name, self.comparison = name, read_comparison(name)
        self.work, self.folder, self.only, self.settings, self.choosing = work, folder, only or {}, settings, choosing
        self.seeds = seeds or self.comparison.seeds[: 1 if work.toy else None]

    def run(self) -> None:
        """Run what has no record yet."""
        for task in self.tasks():
            factors, epochs = {"grid": (task.data.factors, task.data.epochs)}.get(task.method.rates, ((None,), (None,)))
            if task.method.rates == "best":
                factors = () if (best := self.best(task)) and self.choosing else (best,)
            for factor in factors:
                for amount in epochs:
                    for seed in self.seeds:
                        self.score(task, seed, factor, epochs=amount)

    def tasks(self) -> Iterator[Task]:
        """Yield what is compared; at toy size each data set, start and method once, not each with each."""
        seen: set[tuple[str, str]] = set()
        comparison = self.comparison
        for data_name, data in comparison.data.items():
            for start_name, start in comparison.starts.items():
                for method_name, method in comparison.methods.items():
                    names = {"data": data_name, "start": start_name, "method": method_name}
                    labels = {**names, **start.labels, "data": data.label or data_name}
                    if self._wanted(names, labels) and (not self.work.toy or names.items() - seen):
                        seen |= names.items()
                        case = read_cases()[1].get(start.model)
                        unit, _, amount = case.budget.partition("=") if case else ("", "", "")
                        yield Task(
                            data, start, method, labels | ({"budget": int(float(amount))} if unit == "tokens" else {})
                        )

    def best(self, task: Task) -> float:
        """Return the factor of the learning rate that scores best on the examples held out for choices."""
        failed = task.data.failed.get(task.labels["start"], ())
        factors = [factor for factor in task.method.factors if factor not in failed][: 2 if self.work.toy else None]
        seeds = self.comparison.seeds[: task.data.choosing_seeds]
        scores = {factor: mean(self.score(task, seed, factor, choosing=True) for seed in seeds) for factor in factors}
        return max(scores, key=lambda factor: scores[factor])

    def score(
        self, task: Task, seed: int, factor: float | None, *, epochs: float | None = None, choosing: bool = False
    ) -> float:
        """Fine-tune, or resume, where there is no record of it; return the score.

        Args:
            task: what is learned, from which start, how.
            seed: of the run.
            factor: of the rule's learning rate for classification; None: that of the defaults.
            epochs: None: those of the defaults.
            choosing: whether the run serves the choice of a factor.
        """
        data, toy = task.data, self.work.toy
        if choosing:
            data = msgspec.convert({**msgspec.to_builtins(data), **data.choosing}, Data)
            task = task._replace(data=data)
        key = self._key(task, seed, factor, epochs, choosing=choosing)
        if known := self.work.find(self.name, key):
            return float(known.get("score", known.get("accuracy", 0)))
        files, (model, tokenizer) = self.files(data), self._model(task.start)
        if choosing or epochs is not None:
            files = Files(files.train, files.held, [], [])
        settings = self._settings(task, seed, epochs, None if factor is None else self._rate(task, factor))
        downstream = data.probe if task.method.frozen == "probe" else task.method.frozen
        parts = [f"{part:g}" if isinstance(part, float) else str(part) for part in key.values()]
        out = self.work.runs / "finetune" / self.name / "-".join(parts).replace("/", "_")
        started = time.time()
        given: dict[str, Any] = {"dev": files.dev, "tokenizer": tokenizer, "settings": parse_overrides(settings)}
        if task.method.recipe:
            self._distill(task, files, out, given["settings"])
        elif task.method.trainer:
            trainer_finetune.finetune(data.task, model, files.train, out, passage_loss=data.passage_loss, **given)
        else:
            model = self._shallow(model, task.method.layers) if task.method.layers else model
            given |= {"frozen": bool(downstream), "downstream": downstream or None, "quiet": toy}
            resume = (out / "provenance.json").exists()
            unmask.finetune(data.task, model, files.train, out, resume=resume, **given)
        outcome = {"seconds": round(time.time() - started, 1), **self._outcome(out, data, files)}
        add(self.name, key | pick(outcome, [name for name in self.comparison.record if name not in key]))
        if not (self.comparison.keep or toy):
            shutil.rmtree(out)
        return float(outcome["score"])

    def _key(
        self, task: Task, seed: int, factor: float | None, epochs: float | None, *, choosing: bool
    ) -> dict[str, Any]:
        """Return the fields that tell the record of a run from others; the arguments are those of `score`."""
        numbers = {"examples": task.data.examples, "each": task.data.each, "factor": factor, "epochs": epochs}
        values: dict[str, Any] = {name: value for name, value in numbers.items() if value is not None}
        values |= {"seed": seed, **task.labels, "choosing": choosing, **({"method": "choosing"} if choosing else {})}
        key = pick(values, self.comparison.key)
        key |= {"set": list(self.settings)} if self.settings else {}
        return key | ({"choosing": True} if self.choosing else {})

    def _rate(self, task: Task, factor: float) -> float:
        """Return a factor times the learning rate by which the rule would learn classification."""
        model, tokenizer = self._model(task.start)
        shape = load_model(model, tokenizer=tokenizer).encoder.settings
        pretrained = task.method.rates == "best" or bool(task.start.model)
        rule: Any = defaults("classification", shape, examples=1, pretrained=pretrained)
        rate = factor * float(rule["optimizer"]["learning_rate"])
        return float(f"{rate:.{task.method.digits}g}") if task.method.digits else rate

    def _settings(self, task: Task, seed: int, epochs: float | None, rate: float | None) -> list[str]:
        """Return the settings of a run; None: those of the defaults."""
        data, length = task.data, 192 if task.data.task == "question-answering" else 48
        settings = [*self.comparison.settings, *data.settings, *task.method.settings, *task.start.settings]
        settings += [] if rate is None else [f"optimizer.learning_rate={rate}"]
        settings += [] if epochs is None else [f"budget.epochs={epochs}"]
        settings += [*self.settings, f"seed={seed}"]
        return [*settings, *TOY_FINETUNING, f"task.length={length}"] if self.work.toy else settings

    def _distill(self, task: Task, files: Files, out: Path, settings: Overrides) -> None:
        """Train a student of the fine-tuned start, which is fine-tuned where that is not done."""
        names = f"{task.labels['data']}-{task.labels['start']}"
        teacher = self.work.runs / "teachers" / self.name / names.replace("/", "_")
        toy = {**dict.fromkeys(("budget.steps", "batch.sequences"), 2), "task.length": 48} if self.work.toy else {}
        if not (teacher / "model").exists():
            model, tokenizer = self._model(task.start)
            resume = (teacher / "provenance.json").exists()
            known: dict[str, Any] = {"dev": files.dev, "tokenizer": tokenizer, "settings": toy, "resume": resume}
            unmask.finetune(task.data.task, model, files.train, teacher, **known)
        lesson = Lesson(
            unmask.read_recipe(task.method.recipe),
            teacher,
            LabelledFiles(files.train, files.dev),
            self.work.files(task.data.unlabelled) if task.method.unlabelled else (),
            layers=1 if self.work.toy else task.method.layers,
            settings=settings,
        )
        machine, display, resume = choose_machine(), Display(quiet=self.work.toy), (out / "provenance.json").exists()
        if task.method.alone:
            ready = prepare_baseline(lesson, machine, display)
            run_prepared(ready, out, machine, Processes.launched(), display, resume=resume)
        else:
            distill_lesson(lesson, out, resume=resume, machine=machine, quiet=self.work.toy)

    def _outcome(self, out: Path, data: Data, files: Files) -> dict[str, Any]:
        """Return what records can have."""
        last, recipe = logged(out)[-1], tomllib.loads((out / "recipe.toml").read_text(encoding="utf8"))
        outcome: dict[str, Any] = json.loads((out / "dev.json").read_bytes()) | {"dev": None}
        outcome |= compared(out)
        if "held" in self.comparison.record:
            outcome["held"] = evaluate(out, files.held)
        if files.test and not self.choosing:
            tested = evaluate(out, files.test)
            outcome |= {**tested, "dev": tested}
        if data.ask:
            (found,) = unmask.load(out).predict([data.ask[0]], [data.ask[1]])
            texts = dict(zip(("text", "text_b"), data.ask, strict=True))
            outcome["asked"] = {**texts, "label": found.label, "scores": found.scores}
        return {
            **outcome,
            **{name: last[name] for name in ("step", "epochs", "tokens")},
            "step_seconds": last["seconds"],
            "set": list(self.settings),
            "metric": data.metric,
            "score": outcome["metrics"][data.metric],
            "interval": outcome["intervals"].get(data.metric),
            "trained_on": files.train[0].read_bytes().count(b"\n") - 1,  # of a file with a header
            "learning_rate": recipe["optimizer"]["learning_rate"],
            "width": load_model(out).encoder.width,
            "recipe": recipe,
        }

    def _wanted(self, names: dict[str, str], labels: dict[str, Any]) -> bool:
        """Return whether --only, the parts themselves and what is optional let a combination be run."""
        parts = self.comparison
        data, start, method = parts.data[names["data"]], parts.starts[names["start"]], parts.methods[names["method"]]
        if (start.data and names["data"] not in start.data) or (start.methods and names["method"] not in start.methods):
            return False
        if method.unlabelled and not data.unlabelled:
            return False
        known = {"examples": data.examples, **labels}
        if any(not values & {str(known.get(key)), names.get(key)} for key, values in self.only.items()):
            return False
        named = {key: names[key] in self.only.get(key, ()) for key in names}
        return (named["data"] or not data.optional) and (named["start"] or not start.optional)

    def _model(self, start: Start) -> tuple[str, Path | None]:
        """Return the MODEL to start from and, of random weights, the tokenizer."""
        if start.model:
            return str(checkpoint(start.model, self.work)), None
        if start.recipe:
            return self.work.random(start.recipe), tokenizer_of(start.tokenizer, self.work)
        body, folder = checkpoint(start.body, self.work), self.folder / start.body
        folder.mkdir(parents=True, exist_ok=True)
        return random_start(str(body), folder), body

    def _shallow(self, model: str, layers: int) -> str:
        """Return an encoder of some of a model's layers, with which a student would begin, written where it is not."""
        layers, path = 1 if self.work.toy else layers, Path(model)
        folder = self.folder / f"{layers} layers of {model.replace('/', '_')}"
        if not folder.exists():
            whole = load_model(path)
            settings = student_settings(whole.encoder.settings, whole.encoder.settings, layers)
            save_model(folder, student_of(whole, settings, path.name)[0], f"{layers} layers of {path.name}.")
        return str(folder)

    def files(self, data: Data) -> Files:
        """Return the files of a data set, with what is made of them first.

        `prepare` is one of: "sample", the first of the shuffled training examples; "split NAME", of a training set (see
        quality.split); "sentences": one in `each` is trained on; "last tenth": of the sentences, is held out;
        "questions": those about a tenth of the passages are held out; "moved questions": beside that, a third of them
        are moved to another passage; "made FORM": what dialogues.py makes of the questions, those of the test file
        among them except about the articles that are scored.
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
            train, held = ([path] for path in split(name, data.examples or 0, folder, self.work))
        elif what == "sentences" and not self.work.toy:
            train = [excerpt(train[0], folder / "train.conll", each=data.each or 1)]
            dev = [excerpt(dev[0], folder / "dev.conll", most=data.watched)]
        elif what == "last" and not self.work.toy:
            train, held = ([path] for path in split_sentences(train[0], folder))
        elif what in ("questions", "moved"):
            rest, apart = QuestionAnswering().hold_out(read_squad(train), seed=0)
            parts = {"train": rest, "held": apart, "test": read_squad(test)}
            parts = {name: move(part) for name, part in parts.items()} if what == "moved" else parts
            train, held, test = ([write_squad(folder / f"{name}.json", part)] for name, part in parts.items())
            dev = held
        elif what == "made":
            rest, apart = held_out(read_squad(dev))
            scored = "hotpotqa" if name == "unsupported" else name
            train = [write_made(name, folder / "train.json", [*read_squad(train), *rest])]
            dev = [write_made(scored, folder / "dev.json", apart)]
        return Files(train, dev, test, held)


def evaluate(run: Path, paths: list[Path]) -> dict[str, Any]:
    """Return the scores of a run on files, with intervals and, where "no answer" can be right, the threshold."""
    model = load_model(run)
    result = evaluate_task(model, paths, columns={})
    result.pop("notes", None)  # they name the files by their paths
    return result | ({"threshold": model.task.threshold} if isinstance(model.task, QuestionAnswering) else {})


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
    for key, _, value in (text.partition("=") for text in options.only):
        only.setdefault(key, set()).add(value)
    with workspace(options.runs, toy=options.toy) as work, TemporaryDirectory() as name:
        given = (only, tuple(options.seeds), tuple(options.set), options.choosing)
        Bench(options.comparison, work, Path(name), *given).run()


if __name__ == "__main__":
    main()
