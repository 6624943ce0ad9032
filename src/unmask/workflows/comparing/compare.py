"""Which encoder for a text, labels, minutes and a latency: `unmask compare`.

comparison -> cells (cells.py), computed by whoever works (work.py, compute.py) -> statistics and a recommendation
(results.py) -> a page, tables and JSON (report.py)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from unmask.data.corpus.encode import refuse_unguarded
from unmask.data.labelled.columns import as_columns
from unmask.data.labelled.hub_data import PREFIX, is_url, refuse_urls
from unmask.support.choices import (
    CellEngine,
    ColumnNames,
    Device,
    Documents,
    Files,
    Format,
    Precision,
    as_files,
    as_texts,
    check_choice,
    exists,
)
from unmask.support.durable import check_directory
from unmask.support.errors import UnmaskError, UserError, check_count, counted, keys_of, refuse_idle
from unmask.support.messages import argument
from unmask.support.urls import Url
from unmask.support.workers import local_workers, new_call, work_on_ray
from unmask.training.machine import Machine, choose_machine
from unmask.training.runs.display import Display, duration
from unmask.training.runs.usage import amount, check_price
from unmask.workflows.comparing.cells import RESULT, Plan, failure_of, folder_of, result_of
from unmask.workflows.comparing.checks import check_comparison, check_text, check_weights
from unmask.workflows.comparing.design import read_factors
from unmask.workflows.comparing.outcome import Outcome
from unmask.workflows.comparing.plan_checks import (
    check_changed,
    check_kept,
    check_language_models,
    check_memory,
    check_minutes,
    check_searches,
    check_teachers,
    some,
)
from unmask.workflows.comparing.planner import Planner
from unmask.workflows.comparing.recommendation import limits
from unmask.workflows.comparing.report import write_report
from unmask.workflows.comparing.results import conclude
from unmask.workflows.comparing.settings import (
    Comparison,
    TaskData,
    read_comparison,
)
from unmask.workflows.comparing.work import (
    JOIN,
    array_script,
    bytes_kept,
    expected_seconds,
    progress_of,
    seconds_taken,
    work,
    write_plan,
)


def compare(
    comparison: str | Path | None = None,
    *,
    out: str | Path,
    text: Files = (),
    task: str = "classification",
    train: Files = (),
    test: Files = (),
    columns: ColumnNames | None = None,
    format: Format | None = None,
    encoding: str | None = None,
    metric: str | None = None,
    examples: Sequence[int] = (),
    arms: str | Sequence[str] = (),
    budget: str | None = None,
    seeds: int = 3,
    search: bool = False,
    race: bool = False,
    outlook: bool = False,
    first: bool = False,
    vary: Sequence[str] = (),
    field: str = "text",
    documents: Documents = "auto",
    at_most: Sequence[str] = (),
    price: float | None = None,
    workers: int = 1,
    engine: CellEngine = "local",
    recompute: bool = False,
    dry_run: bool = False,
    slurm: bool = False,
    device: Device = "auto",
    precision: Precision = "auto",
    quiet: bool = False,
) -> Outcome:
    """Compare ways to a model on one's own text and labels under one budget, and recommend one.

    The same command continues what was interrupted, adds what is new, and may be started several times at once, on all
    machines that share the directory.

    Args:
        comparison: a .toml file that says what is compared (docs/comparing.md), in place of the parameters up to
            documents.
        out: directory of the comparison.
        text: files of raw text to pretrain on and to adapt to.
        task: what is learned from labels: one of `unmask.tasks.TASKS`.
        train: labeled files to train on; without any, arms are compared by how well they predict held-out text.
        test: labeled files that decide; by default a tenth of train.
        columns: names of the columns to read, or their numbers from 0 for a file without a header.
        format: file format; by default that of the file's suffix.
        encoding: encoding of the files, also of those of text; by default UTF-8, or what a byte-order mark declares.
        metric: metric that decides; by default that of the task.
        examples: numbers of training examples to learn from, such as 50,200,800: what more labels are worth.
        arms: ways to a model, separated by commas: recipes, which are pretrained on the text; DIRECTORY, a checkpoint
            as it is; DIRECTORY+adapt; DIRECTORY+distill; random; DIRECTORY+random; each with @frozen, @average, @rnn or
            @finetuned, or learned by the rule for the number of labels.
        budget: what each arm may spend on the text, such as 30min, 200Mtok or 1e16flop.
        seeds: how often everything is repeated, pretraining and fine-tuning.
        search: search the learning rates of each arm, on splits of training data.
        race: stop arms early that are clearly worse.
        outlook: also train with an eighth, a quarter and half of the budget, and extrapolate to more.
        first: only take a first look at the checkpoints as they are: rank them by their features, without training.
        vary: factors with the values to try, such as masking=token,span: all combinations of the first recipe.
        field: field of JSON Lines that holds the text; a.b is b in the object a.
        documents: what counts as a document in plain text: a whole file, a block between blank lines, or a line; auto
            is blank-line for a single file, file for several.
        at_most: limits of what is recommended, such as 5ms or 50MB.
        price: price of an hour of a machine, in any currency: the report then says what the comparison has cost.
        workers: number of processes that work at the same time.
        engine: where they run: on this machine, or as tasks of a Ray cluster.
        recompute: compute again what the comparison has changed of finished cells.
        dry_run: only list the cells, with the minutes and bytes that they will take.
        slurm: only print a batch script for Slurm, whose tasks divide the cells between them.
        device: where to compute; mps is the GPU of Apple's processors, auto is cuda if available, or cpu.
        precision: number format of the computation; auto is bf16 where it is faster than float32.
        quiet: print only results and errors.

    Returns:
        What came out; also written to OUT/report.html, .md, .csv and .json. Of a dry run, only the list of cells.

    Raises:
        UserError: the comparison cannot be made as it is; nothing was trained.
        UnmaskError: the work was interrupted, or every arm has failed; what is finished is saved.
    """
    refuse_unguarded()  # it would wait for cells that this process computes
    check_count("workers", workers, 1, 999)
    check_choice("engine", engine, CellEngine)
    check_price(price)
    if isinstance(examples, int):
        raise UserError(f"{argument('examples', examples)}: not a list of numbers", remedy=f"pass [{examples}]")
    for number in examples:
        check_count("examples", number)
    restrictions = limits(as_texts(at_most))
    chosen = {"engine": engine != "local"}
    if dry_run and not slurm:
        refuse_idle("on a list of cells", at_most=restrictions)
    if slurm:
        refuse_idle("on a script for Slurm", **chosen)
    if first:
        reason = "on a first look, which this process takes"
        refuse_idle(reason, workers=workers > 1, **chosen, slurm=slurm, at_most=restrictions)
    machine, display, out = choose_machine(device, precision), Display(quiet=quiet), Path(out)
    check_directory(out)
    of_task = {
        "task": task != "classification",
        "test": test,
        "columns": columns,
        "format": format,
        "metric": metric,
        "examples": examples,
    }
    if comparison is not None:
        given = {
            "text": text,
            "train": train,
            **of_task,
            "arms": arms,
            "budget": budget,
            "seeds": seeds != 3,
            "search": search,
            "race": race,
            "outlook": outlook,
            "vary": vary,
            "field": field != "text",
            "documents": documents != "auto",
            "encoding": encoding,
        }
        refuse_idle(": the file says what is compared", "write it there", **given)
        settings = read_comparison(comparison)
        named = [file for each in settings.tasks.values() for file in (*each.train, *each.test, *each.unlabelled)]
        refuse_urls(named, comparison)
    else:
        if not train:
            refuse_idle(f"without {argument('train')}", **of_task)
        words = arms.split(",") if isinstance(arms, str) else [word for part in arms for word in str(part).split(",")]
        data = TaskData(
            task=task,
            train=_names(train),
            test=_names(test),
            metric=metric or "",
            columns=as_columns(columns),
            format=format,
            encoding=encoding,
            examples=list(examples),
        )
        settings = Comparison(
            arms=[word.strip() for word in words if word.strip()],
            tasks={task: data} if train else {},
            text=[str(file) for file in as_files(text)],
            budget=budget or "",
            seeds=seeds,
            search=search,
            race=race,
            outlook=outlook,
            field=field,
            documents=documents,
            encoding=encoding,
            vary=read_factors(as_texts(vary)),
        )
    with keys_of(comparison, *Comparison.__struct_fields__, *TaskData.__struct_fields__):
        check_comparison(settings)
        settings = settings.located(lambda path: str(Path(path).resolve()) if exists(Path(path)) else path)
        check_text(settings.text, settings.reading)
        arms_by_name = settings.named_arms()
        check_weights(arms_by_name)
        planner = Planner(settings, arms_by_name, machine.precision)
        if not settings.tasks:
            check_language_models(planner)
        check_teachers(planner)
        whole = plan = planner.plan()
        left_out = check_changed(plan, out, recompute=recompute)
        if first:
            looks = tuple(cell for cell in plan.of("look") if not cell.needs)
            if not looks:
                raise UserError(f"{argument('first')}: no arm is a checkpoint as it is, or no task can be looked at")
            plan = replace(plan, cells=looks)
        check_memory(plan, machine)
        check_minutes(planner, plan, machine)
        check_searches(plan)
        lost = check_kept(plan, out, recompute=recompute)
    if left_out:
        display.say(f"finished before, and not in this comparison and its report: {some(left_out)}")
    planned = list(describe(plan, out, workers, price)) if dry_run else []
    if dry_run and not slurm:
        return Outcome(planned=planned)
    out.mkdir(parents=True, exist_ok=True)
    write_plan(settings, out)
    for cell in lost:
        (folder_of(out, cell) / RESULT).unlink(missing_ok=True)
    if slurm:
        options: dict[str, Any] = {"at_most": list(as_texts(at_most)), "price": price, "recompute": recompute}
        options |= {"quiet": quiet, "device": device, "precision": precision}
        return Outcome(script=array_script(out, workers, options), planned=planned)
    _work(plan, out, machine, workers, engine, quiet=quiet)
    if any(result_of(out, cell) for cell in whole.scored):  # a first look replaces no report of more
        plan = whole
    outcome = conclude(plan, out, machine, restrictions, price)
    write_report(outcome, out)
    display.say(f"report: {out / 'report.html'}")
    if outcome.arms and all(arm.state == "failed" for arm in outcome.arms):
        causes = "; ".join(dict.fromkeys(arm.error for arm in outcome.arms))
        raise UnmaskError(f"every arm has failed: {causes}; what failed is tried again by the same command")
    return outcome


def _names(files: Files) -> list[str]:
    """Return labeled files as the plan of a comparison names them.

    Raises:
        UserError: one is a URL with what may be secret, which a plan does not keep.
    """
    names = []
    for file in [files] if isinstance(files, str | Path) else files:
        if str(file).startswith(PREFIX) and not is_url(file):
            names.append(str(file))
            continue
        (url,) = as_files([file])
        if isinstance(url, Url) and url.address != str(url):
            raise UserError(
                "has a user, password or query, which a comparison does not keep for its other processes",
                file=url,
                remedy="download it first, or give credentials as the library of the store reads them",
            )
        names.append(str(url))
    return names


def _work(plan: Plan, out: Path, machine: Machine, workers: int, engine: str, *, quiet: bool) -> None:
    """Compute all cells with a number of processes."""
    attempt = new_call()
    arguments = (str(out.resolve()), machine.device.type, machine.precision, attempt)
    if engine == "ray":
        pieces, gpus = len(plan.cells), int(machine.device.type != "cpu")
        progress = partial(progress_of, plan, out, attempt, workers)
        work_on_ray(workers, JOIN, arguments, out, progress, Display(quiet=quiet).say, pieces=pieces, gpus=gpus)
    with local_workers(workers - 1 if engine == "local" else 0, JOIN, arguments):
        work(plan, out, machine, attempt=attempt, quiet=quiet, workers=workers)


def describe(plan: Plan, out: Path, workers: int, price: float | None = None) -> Iterator[str]:
    """Yield a line for each cell with its state, or its expected minutes, and bytes; and a line for all of them.

    Args:
        plan: the cells.
        out: the directory of the comparison.
        workers: number of processes that work at the same time.
        price: of an hour of a machine, for what the cells cost.
    """
    total, size, taken = 0.0, 0.0, seconds_taken(plan, out)
    for cell in plan.cells:
        state = "done" if result_of(out, cell) else "failed" if failure_of(out, cell) else ""
        seconds = 0.0 if state == "done" else expected_seconds(plan, cell, taken)
        kept = bytes_kept(cell)
        total, size = total + seconds, size + kept
        bytes_shown = f"{kept / 1e6:,.1f} MB" if kept else ""
        yield f"{cell.key}  {state or duration(seconds):>10}  {bytes_shown:>10}  {cell.name}"
    left = total / workers
    cost = "" if price is None else f", at {amount(price)} an hour {amount(price * left / 3600)}"
    yield (
        f"{counted(len(plan.cells), 'cell')}, about {duration(left)} with {workers} at a time{cost}; their models and "
        f"corpora take about {size / 1e6:,.0f} MB, and what is being trained several times its model"
    )
