"""The commands: which function each calls, and how its result is printed."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, TextIO

from unmask.support.errors import UserError, counted, printable
from unmask.support.messages import argument, call, rendered

if TYPE_CHECKING:
    from unmask.data.corpus.sample import SampledText
    from unmask.inference.bench import Bench
    from unmask.inference.calls import Predictions
    from unmask.inference.fill import Filling
    from unmask.workflows.auditing.audit import Audit
    from unmask.workflows.comparing.outcome import Outcome
    from unmask.workflows.corpora.advice import Advice
    from unmask.workflows.corpora.diff import Difference

FIRST, WIDTH = 10, 100
"""How many suspects of an audit are printed, and how many characters of their texts."""


@dataclass(frozen=True)
class Verb:
    """A command.

    Attributes:
        function: MODULE:NAME of what it calls.
        words: parameters of which the command line gives only the value.
        show: prints the result; its other parameters are options of the command, too.
        json: whether it has the option `--json`, with which the result is printed as one JSON object instead.
        values: values of parameters, if they are listed elsewhere than in the signature.
    """

    function: str
    words: tuple[str, ...] = ()
    show: Callable[..., None] | None = None
    json: bool = False
    values: Mapping[str, Callable[[], Iterable[str]]] = field(default_factory=dict)


def print_json(value: object) -> None:
    """Print a value as one line of JSON on standard output."""
    import msgspec

    text = msgspec.json.encode(value).decode()
    try:
        text.encode(sys.stdout.encoding or "utf8")
    except UnicodeEncodeError:
        text = json_module.dumps(msgspec.json.decode(text))  # only ASCII
    sys.stdout.write(text + "\n")


def print_text(text: str, stream: TextIO | None = None) -> None:
    """Print a line for people, on standard output by default; control characters in it, but tabs, are escaped."""
    print("\t".join(map(printable, rendered(text).split("\t"))), file=stream)


def print_lines(text: str) -> None:
    """Print a text of several lines, if it is not empty, as `print_text`."""
    for line in text.split("\n") if text else ():
        print_text(line)


def print_file(text: str) -> None:
    """Print the text of a file as it is."""
    sys.stdout.write(text)


def show_scores(result: dict[str, Any]) -> None:
    """Print metrics with their intervals, and the differences from a second model."""
    from unmask.training.runs.report import metric_name

    print_text(f"{result['task']}: {counted(result['examples'], 'example')}, {result['seconds']:.1f} s")
    for name, value in result["metrics"].items():
        low, high = result["intervals"].get(name, (None, None))
        shown = metric_name(name, result.get("positive"))
        print_text(f"  {shown:26} {value:.4g}" + ("" if low is None else f"  (95 %: {low:.4g} to {high:.4g})"))
    for name, value in result.get("calibration", {}).items():
        print_text(f"  {name:26} {value:.4g}")
    if scorer := result.get("scorer"):
        print_text(f"  scored by the rules of {scorer}")
    parts = (
        result.get(name, {}).items()
        for name in ("by_label", "by_type", "by_kind", "by_domain", "by_field", "by_paradigm", "by_depth")
    )
    for part, scores in chain.from_iterable(parts):
        print_text(f"  {part:26} " + ", ".join(f"{name} {value:.4g}" for name, value in scores.items()))
    if against := result.get("against"):
        print_text(f"compared with {against['model']}, by a paired bootstrap:")
        print_text(f"  {'':26} {'other model':12} {'this minus other [95 %]':32} p")
        for metric, tested in against["differences"].items():
            low, high = tested["interval"]
            difference = f"{tested['difference']:+.4g} [{low:+.4g}, {high:+.4g}]"
            value = f"{against['metrics'][metric]:.4g}"
            print_text(f"  {metric:26} {value:12} {difference:32} {tested['p']:.2g}")


def show_predictions(predictions: Predictions, *, json: bool = False) -> None:
    """Print a line for each prediction; nothing if they are written to a file.

    Args:
        json: print one JSON object per prediction.
    """
    for prediction in () if predictions.out else predictions:
        if json:
            print_json(prediction)
        else:
            print_text(predictions.line(prediction))


def show_filled(texts: list[Filling], *, json: bool = False) -> None:
    """Print texts, and the candidates of each mask.

    Args:
        json: print one JSON object per text.
    """
    for filling in texts:
        if json:
            print_json(filling)
            continue
        print_text(filling.text)
        for mask in filling.masks:
            candidates = ", ".join(f"{candidate.token} {candidate.probability:.3f}" for candidate in mask.candidates)
            print_text(f"  at {mask.position}: {candidates}")


def show_engines(measured: Bench) -> None:
    """Print a line per engine."""
    print_text(f"{'engine':20} {'sentences/s':>12} {'p50 ms':>8} {'p99 ms':>8}  difference from float32")
    for row in measured.rows:
        speed = f"{row.sentences_per_second:12,.0f} {row.p50_ms:8.2f} {row.p99_ms:8.2f}"
        print_text(f"{f'{row.backend} {row.precision}':20} {speed}  {row.difference:.2g}")
    for reason in measured.left_out:
        print_text(f"left out: {reason}")
    best = measured.rows[measured.recommended]
    how = call("predict", precision=best.precision)
    if best.backend != "torch":
        how = call("export", format=best.backend, precision=best.precision)
    print_text(f"recommended: {best.backend} in {best.precision} ({how})")


def show_audit(audit: Audit) -> None:
    """Print how many labels are probably wrong, by label, and the first examples to look at."""
    print_text(
        f"{audit.task}: {counted(audit.examples, 'example')}, {audit.wrong:,} with labels that are probably wrong, "
        f"{audit.contradictory:,} with equal texts and different labels"
    )
    print_text(
        f"the classifier agrees with {100 * audit.agreement:.1f} % of the labels; "
        f"estimated share of wrong ones: {100 * audit.noise:.1f} %"
    )
    for label, counts in audit.by_label.items():
        missing = f", {counts['missing']:,} probably missing" if counts.get("missing") else ""
        instead = f", most often rather {counts['instead']}" if "instead" in counts else ""
        print_text(f"  {label:26} {counts['examples']:,}, {counts['wrong']:,} probably wrong{instead}{missing}")
    for suspect in audit.suspects[:FIRST]:
        probability = "" if suspect.probability is None else f" ({suspect.probability:.3f})"
        instead = f" -> {suspect.suggested}" if suspect.suggested else ""
        print_text(f"{suspect.rank}. {suspect.file}:{suspect.line}: {suspect.given}{instead}{probability}")
        print_text(f"   {suspect.text[:WIDTH]}{'…' if len(suspect.text) > WIDTH else ''}")
        if suspect.equal_to:
            print_text(f"   equal text with other labels: {suspect.equal_to}")
    if len(audit.suspects) > FIRST:
        print_text(f"and {len(audit.suspects) - FIRST:,} more, which --out and --page write to a file and a page")


def show_outcome(outcome: Outcome, *, json: bool = False) -> None:
    """Print what a comparison recommends, and its table; or its cells or a batch script, if these were asked for.

    The list of cells is on standard error if there is a script, too.

    Args:
        json: print the result as one JSON object.
    """
    if outcome.script:
        print_file(outcome.script)
        for line in outcome.planned:
            print_text(line, sys.stderr)
    elif json:
        print_json(outcome)
    elif outcome.planned:
        for line in outcome.planned:
            print_text(line)
    elif outcome.arms:
        from unmask.workflows.comparing.report import summary

        for line in summary(outcome):
            print_text(line)


def show_advice(advice: list[Advice]) -> None:
    """Print what stands out in a corpus, and what to do about it."""
    for each in advice:
        print_text(f"{each.problem} {each.remedy}")
    if not advice:
        print_text("nothing stands out")


def show_texts(texts: list[SampledText], *, json: bool = False) -> None:
    """Print texts, each after a line with its number and its address.

    Args:
        json: print one JSON object per text, with text and url.
    """
    for number, text in enumerate(texts, 1):
        if json:
            print_json(text)
            continue
        print_text(f"--- {number}{f': {text.url}' if text.url else ''}")
        print_lines(text.text)


def show_difference(difference: Difference) -> None:
    """Print how two corpora differ."""
    estimated = "" if difference.sample == 1 else f", estimated from {100 * difference.sample:.2g} % of them"
    if difference.common is None:
        print_text("documents are not compared: the vocabularies differ")
    else:
        print_text(f"in both: {counted(difference.common, 'document')}{estimated}")
    for side in (difference.first, difference.second):
        print_text(f"{side.name}: {counted(side.documents, 'document')}, {counted(side.tokens, 'token')}")
        if side.alone is not None:
            print_text(f"  only here: {100 * side.alone:.3g} % of {side.different:,} different documents")
        quantiles = ", ".join(f"{length:,.0f}" for length in side.lengths)
        print_text(f"  tokens of a document (5, 25, 50, 75, 95 %): {quantiles}")
        words = ", ".join(f"{word} ({here:,.0f} : {there:,.0f})" for word, here, there in side.words)
        print_text(f"  more frequent here (per million words, here : there): {words or 'no words'}")


def show_compared(compared: dict[str, Any] | None) -> None:
    """Print how an exported model differs from the original on labeled examples."""
    if compared is not None:
        low, high = compared["interval"]
        print_text(
            f"{compared['metric']}, exported minus original: {compared['difference']:+.4g} [{low:+.4g}, {high:+.4g}], "
            f"p = {compared['p']:.2g}, {compared['examples']:,} examples"
        )


def show_tokens(texts: Iterator[dict[str, Any]], *, ids: bool = False, json: bool = False) -> None:
    """Print the tokens of each text.

    Args:
        ids: print token ids instead of tokens.
        json: print one JSON object per text, with text, tokens, ids and offsets.

    Raises:
        UserError: both.
    """
    if ids and json:
        raise UserError(f"{argument('ids')} and {argument('json')} cannot be combined", remedy="omit one of them")
    for encoded in texts:
        if json:
            print_json(encoded)
        else:
            print_text(" ".join(map(str, encoded["ids" if ids else "tokens"])))


def show_facts(report: dict[str, dict[str, str]]) -> None:
    """Print facts under their headings."""
    width = max(len(name) for facts in report.values() for name in facts)
    for heading, facts in report.items():
        print_text(heading)
        for name, fact in facts.items():
            print_text(f"  {name:{width}}  {fact}")


def show_schema(schema: dict[str, Any]) -> None:
    """Print a JSON Schema."""
    sys.stdout.write(json_module.dumps(schema, indent=2) + "\n")


def _tasks() -> Iterable[str]:
    from unmask.tasks import TASKS

    return TASKS


def _formats() -> Iterable[str]:
    from unmask.workflows import EXPORTERS

    return EXPORTERS


GROUPS = {
    "tokenizer": "train a tokenizer on text, extend one, or tokenize texts with one",
    "corpus": "build a pretraining corpus from text, mix several, or describe, read and compare them",
    "recipes": "list, show and compare the shipped recipes, or print their schema",
    "runs": "list runs, describe one, or plot the curves of several",
}
"""Commands that have actions, such as `unmask corpus build`."""
COMMANDS = "unmask.inference.calls"
TEXT = "unmask.workflows.text"
LIBRARY = "unmask.workflows.library"
RUNS = "unmask.training.runs.report"
VERBS = {
    "tokenizer train": Verb(f"{TEXT}:train_tokenizer", ("files",)),
    "tokenizer extend": Verb(f"{TEXT}:extend_tokenizer", ("files",)),
    "tokenizer encode": Verb(f"{TEXT}:tokenize", ("texts",), show_tokens),
    "corpus build": Verb("unmask.workflows.corpora.build:build_corpus", ("files",)),
    "corpus mix": Verb(f"{TEXT}:mix_corpora", ("corpora",)),
    "corpus info": Verb(f"{TEXT}:describe_corpus", ("directory",), print_lines),
    "corpus sample": Verb("unmask.workflows.corpora.texts:sample_corpus", ("directory",), show_texts),
    "corpus diff": Verb("unmask.workflows.corpora.diff:diff_corpora", ("first", "second"), show_difference, json=True),
    "corpus report": Verb("unmask.workflows.corpora.report:report_corpus", ("directory",), show_advice, json=True),
    "pretrain": Verb("unmask.workflows.pretraining.launch:pretrain", ("recipe",)),
    "finetune": Verb("unmask.workflows.finetuning.finetune:finetune", ("task",), values={"task": _tasks}),
    "multitask": Verb("unmask.workflows.multitask.multitask:multitask", ("tasks",)),
    "distill": Verb("unmask.workflows.distillation.distill:distill", ("recipe",)),
    "compare": Verb(
        "unmask.workflows.comparing.compare:compare", ("comparison",), show_outcome, values={"task": _tasks}
    ),
    "evaluate": Verb("unmask.inference.evaluation.evaluate_model:evaluate", (), show_scores, json=True),
    "audit": Verb("unmask.workflows.auditing.audit:audit", (), show_audit, json=True),
    "predict": Verb(f"{COMMANDS}:predict", ("texts",), show_predictions),
    "suggest": Verb("unmask.workflows.suggest:suggest"),
    "mine": Verb("unmask.workflows.mining:mine"),
    "features": Verb("unmask.inference.embed:write_features"),
    "embed": Verb("unmask.inference.embed:embed"),
    "fill": Verb(f"{COMMANDS}:fill", ("texts",), show_filled),
    "serve": Verb("unmask.serving.serve:serve", ("models",)),
    "export": Verb("unmask.workflows.formats:export", (), show_compared, values={"format": _formats}),
    "bench": Verb(f"{COMMANDS}:bench", ("model",), show_engines, json=True),
    "doctor": Verb("unmask.workflows.doctor:doctor", (), show_facts, json=True),
    "push": Verb(f"{LIBRARY}:push", ("directory", "name")),
    "recipes list": Verb(f"{LIBRARY}:list_recipes", (), print_lines),
    "recipes show": Verb(f"{LIBRARY}:show_recipe", ("name",), print_file),
    "recipes diff": Verb(f"{LIBRARY}:diff_recipes", ("first", "second"), print_lines),
    "recipes schema": Verb("unmask.recipes.recipe:recipe_schema", (), show_schema),
    "completion": Verb("unmask.cli.main:completion", ("shell",), print_lines),
    "runs list": Verb(f"{RUNS}:list_runs", ("folders",), print_lines),
    "runs show": Verb(f"{RUNS}:describe_run", ("run",), print_lines),
    "runs plot": Verb(f"{RUNS}:plot_runs", ("runs",)),
    "demo": Verb("unmask.demo.demonstration:run_demo"),
}
"""Commands by their words."""
