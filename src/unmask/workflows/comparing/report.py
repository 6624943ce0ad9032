"""The report of a comparison: one HTML page that loads nothing, and the same as Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib import resources
from math import prod
from pathlib import Path

import msgspec

from unmask.support.durable import only_writer, replace_file
from unmask.support.errors import counted
from unmask.support.html_page import html_page
from unmask.support.pictures import STYLE, Curve, Picture, Point, curves, intervals, scatter
from unmask.training.runs.display import duration
from unmask.workflows.comparing.cells import BITS
from unmask.workflows.comparing.design import combined
from unmask.workflows.comparing.outcome import ArmOutcome, Estimate, Outcome, Prospect, TaskScore

MAX_LABELS = 10
"""Maximum number of labels of a task whose scores are shown; report.json has all."""
BARS = "Bars are 95 % intervals over seeds and test examples."
CHANGES = ("factor", "value", "change", "interval")
"""Heads of the table of effects."""
PAGE_STYLE = resources.files("unmask.workflows.comparing") / "page" / "report.css"


def write_report(outcome: Outcome, out: Path) -> None:
    """Write report.html, report.md, report.csv and report.json."""
    with only_writer(out / "report.json", wait=True):  # all who work on a comparison end at the same time
        replace_file(out / "report.json", msgspec.json.format(msgspec.json.encode(outcome)))
        replace_file(out / "report.csv", as_csv(outcome).encode())
        replace_file(out / "report.md", as_markdown(outcome).encode())
        replace_file(out / "report.html", as_page(outcome).encode())


def as_csv(outcome: Outcome) -> str:
    """Return one line per arm, task and seed."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("arm", "task", "metric", "seed", "score"))
    for arm in outcome.arms:
        for task, score in arm.scores.items():
            writer.writerows((arm.name, task, score.metric, seed, value) for seed, value in enumerate(score.seeds))
        if arm.bits is not None:
            bits = arm.bits_by_seed or [arm.bits.mean]
            writer.writerows((arm.name, "text", BITS, seed, value) for seed, value in enumerate(bits))
    return file.getvalue()


def columns(outcome: Outcome) -> list[str]:
    """Return the heads of the table of arms."""
    tasks = [f"{name}, {facts.metric.replace('_', ' ')}" for name, facts in outcome.tasks.items()]
    mean = ["mean"] if len(tasks) > 1 else []
    mean += ["interquartile mean"] if _has_middle(outcome) else []
    bits = ["bits per character"] if _has_bits(outcome) else []
    costs = ["size", "one text", "training on text", *(["learning the tasks"] if tasks else [])]
    return ["arm", *tasks, *mean, "behind the best", *bits, *costs]


def cells_of(outcome: Outcome, arm: ArmOutcome) -> list[str]:
    """Return the row of an arm, in the order of `columns`."""
    if arm.state == "failed":  # at one task or several
        whole = [task in arm.scores and len(arm.scores[task].seeds) == outcome.seeds for task in outcome.tasks]
        scores = [
            _estimate(arm.scores[task].score) if done else "failed"
            for task, done in zip(outcome.tasks, whole, strict=True)
        ]
        scores = scores or ["failed"]
        return [arm.name, *scores, *[""] * (len(columns(outcome)) - 1 - len(scores))]
    scores = [_estimate(arm.scores[task].score) if task in arm.scores else "" for task in outcome.tasks]
    scores += [_estimate(arm.score) if arm.score else ""] if len(outcome.tasks) > 1 else []
    scores += [_estimate(arm.interquartile) if arm.interquartile else ""] if _has_middle(outcome) else []
    latency = "" if arm.engine_latency is None else f"{_two_digits(arm.engine_latency)} ms ({arm.engine})"
    text = f"{duration(arm.trained_seconds)}, {_tokens(arm.trained_tokens)}" if arm.trained_seconds else "none"
    digits = 1 if outcome.tasks else 3
    behind = _estimate(arm.behind, digits) if arm.behind else ("best" if arm.score else "")
    behind += " (stopped early)" if arm.state == "stopped" else ""
    size = f"{arm.parameters / 1e6:.1f} M" if arm.parameters else ""
    bits = [_estimate(arm.bits, 2 if outcome.tasks else 3) if arm.bits else ""] if _has_bits(outcome) else []
    learning = [duration(arm.learning_seconds)] if outcome.tasks else []
    return [arm.name, *scores, behind, *bits, size, latency, text, *learning]


def _only_looks(outcome: Outcome) -> bool:
    """Return whether a first look is all that there is: arms have no row of a table then."""
    return bool(outcome.looks) and all(arm.state == "unfinished" and not arm.scores for arm in outcome.arms)


def _has_middle(outcome: Outcome) -> bool:
    return bool(outcome.tasks) and any(arm.interquartile for arm in outcome.arms)


def _has_bits(outcome: Outcome) -> bool:
    return any(arm.bits for arm in outcome.arms)


def as_markdown(outcome: Outcome) -> str:
    """Return the report as Markdown, without pictures."""
    heads, digits = columns(outcome), 1 if outcome.tasks else 3
    lines = ["# Which encoder?", "", *(line for text in outcome.recommendation for line in (text, ""))]
    lines += [line for warning in outcome.warnings for line in (f"**{warning}**", "")]
    lines += [line for note in outcome.notes for line in (note, "")]
    if not _only_looks(outcome):
        lines += [_row(heads), "|---" * len(heads) + "|", *(_row(cells_of(outcome, arm)) for arm in outcome.arms)]
    lines += ["", *(f"- {arm.name}: {arm.how} {_cost(arm)}" for arm in outcome.arms), ""]
    lines += [*(line for task in outcome.tasks for line in (_facts(outcome, task), "")), _about(outcome), ""]
    if outcome.effects:
        lines += [_compared(outcome), "", _row(CHANGES), "|---" * len(CHANGES) + "|", *map(_row, _changes(outcome)), ""]
    for look in outcome.looks:
        agreement = "" if look.agreement is None else f"; rank correlation with the final order {look.agreement:.2f}"
        lines += [f"First look at {look.task}: {look.order}{agreement}.", ""]
    if outcome.prospects:
        lines += ["Extrapolation, intervals of 80 %:", "", "| arm | budget | score |", "|---|---|---|"]
        lines += [_row([each.arm, _more(each), _estimate(each.score, digits)]) for each in outcome.prospects]
        lines.append("")
    for each in outcome.differing:
        answer = f" (true: {each.gold}; predicted: {each.predicted})" if each.gold or each.predicted else ""
        shown = " ".join(each.text.split())
        lines.append(f"- {each.task}, {each.where}: wrong: {each.wrong}{answer}: {shown}")
    lines += ["", "Cells:", "", "| cell | state | seconds | command |", "|---|---|---|---|"]
    lines += [
        _row(
            [
                cell.name,
                cell.state + (cell.error and f": {cell.error}"),
                f"{cell.seconds:.0f}",
                cell.command and f"`{cell.command}`",
            ]
        )
        for cell in outcome.cells
    ]
    return "\n".join(lines) + "\n"


def _changes(outcome: Outcome) -> Iterator[list[str]]:
    """Yield the factor, the values, the change and its interval of each effect."""
    digits = 2 if outcome.tasks else 3
    for effect in outcome.effects:
        mean, low, high = (f"{end:+.{digits}f}" for end in (effect.change.mean, effect.change.low, effect.change.high))
        yield [effect.factor, f"{effect.value} instead of {effect.baseline}", mean, f"{low} to {high}"]


def _more(prospect: Prospect) -> str:
    """Return of what an arm would have a multiple."""
    return f"{prospect.times:g} times" + (f" the labels of {prospect.task}" if prospect.task else "")


def _row(cells: Iterable[str]) -> str:
    """Return a row of a table in Markdown, on one line and with as many columns as there are cells."""
    lines = (" ".join(cell.split()).replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(lines)} |"


def as_page(outcome: Outcome) -> str:
    """Return the report as HTML."""
    scored = [arm for arm in outcome.arms if arm.score is not None]
    parts = ['<div class="recommendation">', *(f"<p>{escape(text)}</p>" for text in outcome.recommendation), "</div>"]
    parts += [f'<p class="warning">{escape(warning)}</p>' for warning in outcome.warnings]
    parts += [f"<p>{escape(note)}</p>" for note in outcome.notes]
    parts += _quality_and_cost(outcome, scored)
    parts += ["<h2>The arms</h2>", "" if _only_looks(outcome) else _table(outcome), "<ul>"]
    parts += [
        f"<li><strong>{escape(arm.name)}</strong>: {escape(arm.how)} {escape(_cost(arm))}"
        f"{f' <em>Failed: {escape(arm.error)}</em>' if arm.error else ''}</li>"
        for arm in outcome.arms
    ]
    parts += ["</ul>", *(f'<p class="muted">{escape(_facts(outcome, task))}</p>' for task in outcome.tasks)]
    parts.append(f'<p class="muted">{escape(_about(outcome))}</p>')
    for task in outcome.tasks if len(outcome.tasks) > 1 else ():
        points = [
            _point(arm.name, arm.scores[task].score, arm.name in outcome.best) for arm in scored if task in arm.scores
        ]
        if points:
            title = f"{task}, {outcome.tasks[task].metric.replace('_', ' ')}"
            parts += [f"<h2>{escape(task)}</h2>", figure(intervals(points, title), BARS)]
    parts += (
        _effects(outcome)
        + _by_examples(outcome)
        + _prospects(outcome)
        + _looks(outcome)
        + _curves(outcome)
        + _examples(outcome)
        + _details(outcome)
    )
    return report_page("Which encoder?", parts)


def report_page(title: str, parts: Iterable[str]) -> str:
    """Return the page of a report, given the HTML of what it consists of."""
    content = "\n".join(["<main>", f"<h1>{escape(title)}</h1>", *parts, "</main>"])
    return html_page(title, PAGE_STYLE.read_text(encoding="utf8") + STYLE, content)


def _quality_and_cost(outcome: Outcome, scored: Sequence[ArmOutcome]) -> list[str]:
    timed = [
        _point(arm.name, arm.score, arm.name in outcome.best, arm.engine_latency)
        for arm in scored
        if arm.engine_latency and arm.score is not None
    ]
    if not scored:
        return []
    title = "minus bits per character" if not outcome.tasks else "mean score"
    if len(outcome.tasks) == 1:
        title = next(iter(outcome.tasks.values())).metric.replace("_", " ")
    if timed:
        caption = f"{BARS} The dashed line is the Pareto front. Arms that are equally fast stand side by side."
        return [figure(scatter(timed, "milliseconds for one text, fastest engine here", title), caption)]
    points = [_point(arm.name, arm.score, arm.name in outcome.best) for arm in scored if arm.score is not None]
    return [figure(intervals(points, title), BARS)] if points else []


def _cost(arm: ArmOutcome) -> str:
    """Return the costs of an arm that are not in the table."""
    parts = [f"{_two_digits(arm.megabytes)} MB of weights in float32"] if arm.parameters else []
    parts += [f"at most {arm.memory / 1e6:,.0f} MB in memory while it is trained"] if arm.memory else []
    parts += [f"{_two_digits(arm.latency)} ms for one text in torch"] if arm.latency else []
    parts += [f"{arm.speed:,.0f} texts per second, many together"] if arm.speed else []
    errors = {task: score.calibration for task, score in arm.scores.items() if score.calibration is not None}
    parts += [f"calibration error of {task} {error:.1f} %" for task, error in errors.items()]
    parts += [
        f"F1 (average precision) of {task}: {_by_label(score)}" for task, score in arm.scores.items() if score.by_label
    ]
    return ", ".join(parts) + "." if parts else ""


def _by_label(score: TaskScore) -> str:
    """Return the F1 and the average precision of the labels of a task, the lowest F1 first."""
    order = sorted(score.by_label, key=lambda label: score.by_label[label]["f1"])
    shown = [(label, score.by_label[label]) for label in order[:MAX_LABELS]]
    texts = [f"{label} {of['f1']:.1f} ({of['average_precision']:.1f})" for label, of in shown]
    return "; ".join(texts) + ("; …" if len(order) > MAX_LABELS else "")


def _table(outcome: Outcome) -> str:
    best = [number for number, arm in enumerate(outcome.arms) if arm.name in outcome.best]
    return _html_table(columns(outcome), [cells_of(outcome, arm) for arm in outcome.arms], best)


def _html_table(heads: Sequence[str], rows: Iterable[Sequence[str]], best: Sequence[int] = ()) -> str:
    """Return a table whose first column is of names, given its rows and the numbers of those that stand out."""
    lines = ["".join(f"<th{_class(number)}>{escape(head)}</th>" for number, head in enumerate(heads))]
    for place, row in enumerate(rows):
        cells = "".join(f"<td{_class(number)}>{escape(text)}</td>" for number, text in enumerate(row))
        lines.append(f'<tr class="best">{cells}</tr>' if place in best else f"<tr>{cells}</tr>")
    head, *body = lines
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(body)}</table></div>'


def _effects(outcome: Outcome) -> list[str]:
    if not outcome.effects:
        return []
    points = [
        _point(f"{effect.factor}: {effect.value}", effect.change, effect.change.low > 0 or effect.change.high < 0)
        for effect in outcome.effects
    ]
    picture = figure(intervals(points, f"change of the {_changed(outcome)}"), _compared(outcome))
    return ["<h2>What each choice changes</h2>", picture, _html_table(CHANGES, _changes(outcome))]


def _changed(outcome: Outcome) -> str:
    return "score" if outcome.tasks else "bits per character"


def _compared(outcome: Outcome) -> str:
    """Return in words what the effects are changes of, compared with what, and what they are confounded with."""
    design, factors = outcome.settings.get("design"), outcome.settings.get("vary", {})
    base = ", ".join(dict.fromkeys(f"{effect.factor} = {effect.baseline}" for effect in outcome.effects))
    others = "one factor at a time" if design == "single" else "mean over the other factors"
    text = f"Change of the {_changed(outcome)}, {others}, compared with {base}."
    if design == "fraction" and len(combined(factors, design)) < prod(map(len, factors.values())):
        text += " Not all combinations were trained: a change includes what three other factors change only together."
    return text


def _prospects(outcome: Outcome) -> list[str]:
    if not outcome.prospects:
        return []
    parts = []
    for task in dict.fromkeys(each.task for each in outcome.prospects):
        points = [
            _point(f"{each.arm}, {each.times:g} times", each.score, False)
            for each in outcome.prospects
            if each.task == task
        ]
        source = "each number of labels" if task else "an eighth, a quarter, half and all of the budget"
        more = f"{escape(task)}: with more labels" if task else "With more budget"
        caption = f"Extrapolated from the scores with {source}; intervals of 80 %."
        title = f"expected {'score' if outcome.tasks else 'bits per character'}"
        parts += [f"<h2>{more}, an extrapolation</h2>", figure(intervals(points, title), caption)]
    return parts


def _by_examples(outcome: Outcome) -> list[str]:
    """Return the scores of each task over its numbers of training examples, and what more of them promise."""
    parts = []
    for name, tasks in outcome.by_examples.items():
        lines = [
            Curve(
                arm.name,
                [(outcome.tasks[task].trained_on, arm.scores[task].score.mean) for task in tasks if task in arm.scores],
                _kind(arm.name in outcome.best),
            )
            for arm in outcome.arms
        ]
        if lines := [line for line in lines if len(line.points) > 1]:
            metric = next(outcome.tasks[task].metric for task in tasks if task in outcome.tasks)
            picture = curves(lines, "training examples", metric.replace("_", " "))
            parts += [f"<h2>{escape(name)}, by the number of labels</h2>", figure(picture, "Means over seeds.")]
    return parts


def _looks(outcome: Outcome) -> list[str]:
    if not outcome.looks:
        return []
    parts = ["<h2>The first look</h2>"]
    for look in outcome.looks:
        agreement = (
            ""
            if look.agreement is None
            else f" The rank correlation of this order with the final one is {look.agreement:.2f}."
        )
        parts.append(f"<p>{escape(look.task)}: {escape(look.order)}.{agreement}</p>")
    parts.append(
        '<p class="muted">Scores of features without training, before fine-tuning: H-score, or LogME for '
        "regression.</p>"
    )
    return parts


def _curves(outcome: Outcome) -> list[str]:
    lines = [
        Curve(arm.name, [(minutes, loss) for minutes, _, loss in arm.curve], _kind(arm.name in outcome.best))
        for arm in outcome.arms
        if len(arm.curve) > 1
    ]
    if not lines:
        return []
    caption = "Losses of different objectives and vocabularies cannot be compared with each other, only their courses."
    if any(line.points[-1][0] == line.points[-2][0] for line in lines):
        caption += " A line that ends upright ends with the loss of the model that is kept, an average of weights."
    return ["<h2>Learning curves</h2>", figure(curves(lines, "minutes", "held-out loss"), caption)]


def _examples(outcome: Outcome) -> list[str]:
    if not outcome.differing:
        return []
    parts = ["<h2>Where the two best arms differ</h2>"]
    for each in outcome.differing:
        answer = f" (true: {each.gold}; predicted: {each.predicted})" if each.gold or each.predicted else ""
        parts.append(
            f'<article><div class="where">{escape(each.task)}, {escape(each.where)}</div>'
            f'<div class="text" dir="auto">{escape(each.text)}</div>'
            f"<div>wrong: <strong>{escape(each.wrong)}</strong>{escape(answer)}</div></article>"
        )
    return parts


def _details(outcome: Outcome) -> list[str]:
    settings = msgspec.json.format(msgspec.json.encode(outcome.settings)).decode()
    parts = ["<h2>Everything else</h2>", f"<details><summary>Settings</summary><pre>{escape(settings)}</pre></details>"]
    parts += [
        f"<details><summary>All settings of {escape(name)}</summary><pre>{escape(recipe)}</pre></details>"
        for name, recipe in outcome.recipes.items()
    ]
    parts.append(f"<details><summary>{counted(len(outcome.cells), 'cell')}, with the command of each</summary>")
    for cell in outcome.cells:
        state = f"{cell.state}, {cell.seconds:.0f} s" if cell.seconds else cell.state
        error = f": {cell.error}" if cell.error else ""
        command = f"<pre>{escape(cell.command)}</pre>" if cell.command else ""
        parts.append(
            f"<p>{escape(cell.name)} <small>({escape(cell.key)}; {escape(state + error)})</small></p>{command}"
        )
    parts.append("</details>")
    return parts


def _about(outcome: Outcome) -> str:
    """Return one paragraph on how the figures came about."""
    seeds = counted(outcome.seeds, "seed")
    budget = f"each arm that is trained on text has {outcome.budget}; " if outcome.budget else ""
    machine = ", ".join(f"{name} {value}" for name, value in outcome.machine.items())
    bits, first = "", ", by the model of the first seed, with intervals over documents" if outcome.tasks else ""
    if _has_bits(outcome):
        bits = f"Bits per character are of held-out text{first}; fewer are better, whatever the vocabulary. "
    if any(arm.pseudo for arm in outcome.arms):
        bits += (
            "Those of masked language models are of the pseudo-log-likelihood, without the rest of a word in sight: "
            "compare them with each other only. "
        )
    tested = "test examples" if outcome.tasks else "documents"
    used = f"All cells together used {outcome.used}. " if outcome.used else ""
    where = f"{used}{machine}. unmask {outcome.versions.get('unmask', '')}."
    if _only_looks(outcome):
        return where
    return (
        f"Means of {seeds}; {budget}intervals of 95 % include the variation over seeds and over {tested}; those "
        "of 'behind the best' hold for all arms at once. What a checkpoint cost before is not counted. "
        f"{bits}Speed was measured last, while nothing else of the comparison ran. {where}"
    )


def _facts(outcome: Outcome, task: str) -> str:
    facts = outcome.tasks[task]
    labels = f", {counted(facts.labels, 'label')}" if facts.labels else ""
    examples = f"{counted(facts.trained_on, 'training example')}, {counted(facts.examples, 'test example')}"
    constant = "" if facts.constant is None else f"; the same prediction for all of these scores {facts.constant:.1f}"
    kind = "" if task == facts.task else f" ({facts.task})"
    return f"{task}{kind}: {examples}{labels}{constant}."


def _tokens(number: float) -> str:
    """Return a number of tokens, in thousands or millions of them where there are as many."""
    if number < 1e5:
        return f"{number:,.0f} tokens"
    return f"{number / 1e3:,.0f} k tokens" if number < 1e6 else f"{number / 1e6:,.1f} M tokens"


def _two_digits(value: float) -> str:
    """Return a number with two digits, or all of those before the point."""
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def _estimate(estimate: Estimate, digits: int = 1) -> str:
    mean, low, high = (
        f"{round(value, digits) + 0.0:.{digits}f}" for value in (estimate.mean, estimate.low, estimate.high)
    )
    return f"{mean} ({low} to {high})"


def figure(picture: Picture, caption: str) -> str:
    """Return a picture with a caption; on narrow screens it is scrolled."""
    return f'<figure><div class="scroll">{picture}</div><figcaption>{escape(caption)}</figcaption></figure>'


def _point(name: str, score: Estimate, stands_out: bool, x: float = 0) -> Point:
    return Point(name, x, score.mean, (score.low, score.high), _kind(stands_out))


def _kind(stands_out: bool) -> str:
    return "best" if stands_out else "other"


def _class(number: int) -> str:
    return ' class="number"' if number else ""


def summary(outcome: Outcome) -> Iterable[str]:
    """Yield the lines that the command prints."""
    yield from outcome.recommendation
    yield from (f"warning: {warning}" for warning in outcome.warnings)
    yield from outcome.notes
    if _only_looks(outcome):
        return
    heads = columns(outcome)[: 3 + len(outcome.tasks)]
    rows = [cells_of(outcome, arm)[: len(heads)] for arm in outcome.arms]
    widths = [max(len(row[number]) for row in [heads, *rows]) for number in range(len(heads))]
    for row in [heads, *rows]:
        yield "  ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True)).rstrip()
