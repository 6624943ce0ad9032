"""Calls of a model by its directory, for data in files or in memory: predict, features, embed, fill and bench."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.data.labelled.columns import as_columns
from unmask.data.labelled.table import Data, ExampleTable, as_sources
from unmask.data.text.files import display_name, split_part
from unmask.inference.bench import Bench, measure_engines
from unmask.inference.fastest import FastestBackend
from unmask.inference.fill import Filling
from unmask.inference.load import open_predictor, warn_of_new_tokens
from unmask.inference.predictor import Predictor
from unmask.inference.stream import (
    check_explained,
    check_out,
    check_table,
    identity,
    save_predictions,
    write_predictions,
)
from unmask.inference.zero_shot import by_labels
from unmask.model.model import load_model
from unmask.support.choices import (
    ColumnNames,
    Device,
    ExplainMethod,
    InferenceEngine,
    InferencePrecision,
    LabelNames,
    TextFormat,
    as_files,
    as_texts,
    check_choice,
)
from unmask.support.durable import only_writer
from unmask.support.errors import UserError, check_count, counted, refuse_idle
from unmask.support.messages import argument
from unmask.support.stores import look_up
from unmask.support.urls import Url, address_of
from unmask.tasks.explained import describe
from unmask.tasks.task import Task
from unmask.training.machine import choose_inference_machine
from unmask.training.runs.display import Display

EXPLAINED_WINDOW = 64
"""Number of explained examples after which those in a file are written."""


class Predictions(list[Any]):
    """The predictions of a call, in the order of the examples.

    Attributes:
        task: the task of the model, which says how a prediction is shown (`Task.line`).
        out: the file that they are written to; None: none.
    """

    def __init__(self, predictions: Sequence[Any], task: Task, out: str | Path | None = None) -> None:
        super().__init__(predictions)
        self.task, self.out = task, out

    def line(self, prediction: Any) -> str:
        """Return a prediction as a line: that of the task, then its explanations, if there are any (`describe`)."""
        explanations = (describe(prediction, explanation) for explanation in getattr(prediction, "explanations", ()))
        return "\t".join((self.task.line(prediction), *explanations))


def predict(
    model: str | Path,
    data: Data = (),
    *,
    texts: Sequence[str] = (),
    text_b: Sequence[str] = (),
    question: str | None = None,
    passage: Sequence[str] = (),
    title: Sequence[str] = (),
    choices: Sequence[str] = (),
    history: Sequence[str] = (),
    labels: LabelNames | None = None,
    template: str | None = None,
    multi_label: bool = False,
    columns: ColumnNames | None = None,
    format: TextFormat | None = None,
    encoding: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    explain: ExplainMethod | None = None,
    dimensions: int | None = None,
    allow_pickle: bool = False,
    device: Device = "auto",
    precision: InferencePrecision = "float32",
    engine: InferenceEngine = "torch",
    quiet: bool = False,
) -> Predictions:
    """Classify texts, find entities, or answer questions with a fine-tuned model, or classify by names of labels.

    Args:
        model: run directory, Hugging Face model directory or name on the Hub, or an exported model.
        data: examples as for evaluate, whose labels are not read, or .txt file with one text per line (for models
            trained on pairs, .txt is read as .tsv); in Python also examples in memory.
        texts: texts to classify, score or find entities in.
        text_b: second text of each pair, for models trained on pairs of texts.
        question: question to answer from the passage.
        passage: text that holds the answer to the question (hotpotqa: texts).
        title: titles of the texts (hotpotqa).
        choices: texts to choose from, about the passage.
        history: earlier questions of the dialogue, each followed by its answer, the oldest first (quac, coqa).
        labels: labels for a model that was not fine-tuned for them: a classifier of entailment, or a masked language
            model (docs/no-labels.md); "a,b,c", or in Python a list.
        template: text with {} in place of the label; by default "This text is about {}." or "It is about {}."
        multi_label: with labels, predict any number of them for a text.
        columns: names of the columns to read, or their numbers from 0 for a file without a header.
        format: file format; by default that of the file's suffix.
        encoding: encoding of the files; by default UTF-8, or what a byte-order mark declares.
        out: file to write the predictions to, as JSON Lines; of rows in a file, with their other columns, and as a
            table if it ends in .csv, .tsv, .parquet or .xlsx (token-classification: CoNLL columns if it ends in .conll,
            .tsv or .txt; question-answering: one JSON object {id: answer}, with the best alternatives in
            FILE.nbest.json). Those of a single file are written as they are computed, and not returned.
        resume: continue the predictions that an interrupted run has begun in out.
        explain: also compute what each word contributes to the prediction, by this method, for classification,
            multi-label, regression and token-classification: in out, or marked in the printed text, {+for+} and
            [-against-] the prediction.
        dimensions: for embedding, number of first dimensions of the vectors that are compared; by default all, or as
            the model specifies.
        allow_pickle: load pickled weights (pytorch_model.bin), restricted to tensors.
        device: where to compute; mps is the GPU of Apple's processors, auto is cuda if available, or cpu.
        precision: number format of the computation; auto is bf16 where it is faster than float32, and int8
            needs VNNI of AVX-512.
        engine: auto is the fastest that is installed, which is measured by the first call, and stored in the directory
            of the model.
        quiet: print only results and errors.

    Raises:
        UserError: the model was not fine-tuned, the data is malformed, a parameter has no effect, or the predictions
            cannot be explained.
    """
    sources = as_sources(data, encoding)
    files = [source for source in sources if not isinstance(source, ExampleTable)]
    texts, text_b, passage, title, choices, history = map(as_texts, (texts, text_b, passage, title, choices, history))
    posed = {"question": question, "passage": passage, "title": title, "choices": choices, "history": history}
    asked = _check_asked(posed, texts, sources)
    if not sources:
        refuse_idle(f"without {argument('data')}", columns=columns, format=format, encoding=encoding)
    written = None if out is None else Path(out)
    if written is not None:
        check_out(written, files)
    if explain is not None:
        check_choice("explain", explain, ExplainMethod)
        check_explained(written, labels)
    streams = out is not None and len(files) == len(sources) == 1
    if not (out and files):
        refuse_idle(f"without {argument('data')} and {argument('out')}", resume=resume)
    if resume and not streams:
        raise UserError(f"{argument('resume')} continues the predictions of one file", remedy="pass one at a time")
    if not texts:
        refuse_idle(f"without {argument('texts')} (pairs in a file are two columns)", text_b=text_b)
    for file in files:
        _check_exists(file, resume=resume)
    display, notes = Display(quiet=quiet), list[str]()
    machine = choose_inference_machine(device, precision)
    predictor = open_predictor(model, machine, display, allow_pickle=allow_pickle, engine=engine)
    fastest = predictor.backend if isinstance(predictor.backend, FastestBackend) else None
    predictor = predictor.with_dimensions(dimensions)
    if labels is not None or template is not None or multi_label:
        predictor = by_labels(predictor, labels or (), template, multi_label=multi_label)
    if written is not None:
        check_table(written, predictor.task)
    predictions: list[Any] = []
    with only_writer(written):
        if streams and written is not None:
            (file,) = files
            named = as_columns(columns)
            examples = predictor.iterate(file, columns=named, kind=format, notes=notes)
            options: dict[str, Any] = {"columns": named, "format": format, "encoding": encoding}
            if labels is not None:
                options |= {"labels": [*predictor.labels], "template": template, "multi_label": multi_label}
            computed = {"precision": predictor.backend.precision, "device": machine.device.type}
            if fastest is not None:
                computed["engine"] = fastest.identity
            if dimensions is not None:
                options["dimensions"] = dimensions
            if explain is not None:
                computed["explain"] = explain
                predictor.window = min(predictor.window, EXPLAINED_WINDOW)
            about = identity(predictor.fingerprint(), file, **options, **computed)
            count = write_predictions(
                predictor, examples, written, about, explain=explain, source=file, resume=resume, notes=notes
            )
        else:
            if asked:
                read = [_posed(predictor, posed)]
            elif texts:
                read = predictor.task.from_texts(texts, text_b or None)
            else:
                read = predictor.read(sources, columns=columns, kind=format, notes=notes)
                if written is not None:
                    predictor.task.check_distinct(read)
            predictions = predictor.run(read, notes, explain=explain)
            count = len(predictions)
            if written is not None:
                save_predictions(predictor.task, written, read, predictions)
    display.say(*notes)
    if out is not None:
        display.say(f"{counted(count, 'prediction')}: {out}")
    return Predictions(predictions, predictor.task, out)


def _check_exists(file: str | Path, *, resume: bool) -> None:
    """Raise an error if a text, or the path of no file, is passed as the file of examples, or it is not the same twice.

    Raises:
        UserError: there is no such file, or a run that is resumed reads from standard input or from a pipe.
    """
    if address := address_of(file):
        look_up(Url(address))
        return
    (source,) = as_files(file)
    path, _ = split_part(source)  # the file of a sheet or a table, the directory of a split
    if resume and not (path.is_file() or path.is_dir()) and (str(path) == "-" or path.exists()):
        raise UserError(
            f"{argument('resume', True)}: what is read from here cannot be compared with what was read before",
            file=display_name(path),
            remedy="write it to a file first",
        )
    if str(path) != "-" and not path.exists():
        raise UserError("does not exist", file=source, remedy=f"if it is a text, pass it as {argument('texts')}")


def _check_asked(posed: Mapping[str, Any], texts: Sequence[str], data: Sequence[Any]) -> bool:
    """Return whether a question or a choice is posed; raise an error if it is not complete, or not the only input."""
    names = {name: argument(name) for name in ("texts", "data", *posed)}
    asked = posed["question"] is not None or bool(posed["passage"])
    if sum(map(bool, (texts, data, asked))) != 1:
        asking = f"{names['question']} with {names['passage']}"
        raise UserError(f"give exactly one of: {names['texts']}, {asking}, {argument('data', 'FILE')}")
    if posed["choices"] and (not posed["passage"] or posed["history"] or posed["title"]):
        raise UserError(f"{names['choices']} goes with {names['passage']} and, if there is one, {names['question']}")
    if asked and not posed["choices"] and (posed["question"] is None or not posed["passage"]):
        raise UserError(f"{names['question']} and {names['passage']} must be given together")
    if not asked:
        refuse_idle(
            f"without {names['question']} and {names['passage']}", history=posed["history"], title=posed["title"]
        )
    titles = set(posed["title"])
    if titles and len(titles) != len(posed["passage"]):
        raise UserError(f"{len(titles)} distinct titles of {len(posed['passage'])} passages")
    if len(posed["history"]) % 2:
        raise UserError(
            f"{names['history']} needs an answer after each question", remedy='give "" for an answer that is missing'
        )
    return asked


def _posed(predictor: Predictor, posed: Mapping[str, Any]) -> Any:
    """Return the question or the choice as an example of the model's task."""
    if posed["choices"]:
        return predictor.choices(" ".join(posed["passage"]), posed["choices"], posed["question"] or "")
    history = list(zip(posed["history"][::2], posed["history"][1::2], strict=True))
    passages = posed["passage"]
    if posed["title"]:
        passages = dict(zip(posed["title"], passages, strict=True))
    return predictor.question(posed["question"], passages, history)


def fill(
    model: str | Path,
    texts: Sequence[str],
    *,
    top: int = 5,
    targets: Sequence[str] | None = None,
    allow_pickle: bool = False,
    device: Device = "auto",
    precision: InferencePrecision = "float32",
) -> list[Filling]:
    """Predict the tokens at [MASK] in texts.

    Args:
        model: run directory, Hugging Face model directory or name on the Hub.
        texts: texts with one or more [MASK].
        top: number of candidates per mask.
        targets: tokens to compare, as the vocabulary spells them or as texts of one token each: the candidates are
            among them, with their probabilities over the whole vocabulary; None: all tokens.
        allow_pickle: load pickled weights (pytorch_model.bin), restricted to tensors.
        device: where to compute; mps is the GPU of Apple's processors, auto is cuda if available, or cpu.
        precision: number format of the computation; auto is bf16 where it is faster than float32, and int8
            needs VNNI of AVX-512.

    Raises:
        UserError: the model has no masked-LM head, a text has no mask or is too long, or a target is not a token.
    """
    loaded = load_model(model, allow_pickle=allow_pickle)
    warn_of_new_tokens(loaded, model)
    return Predictor(loaded, choose_inference_machine(device, precision)).fill(texts, top=top, targets=targets)


def bench(model: str | Path, *, sentences: int = 1000, allow_pickle: bool = False) -> Bench:
    """Measure the engines of a model on this machine, and recommend one.

    Args:
        model: run directory or Hugging Face model directory.
        sentences: number of random sentences of mixed lengths, at least 1.
        allow_pickle: load pickled weights (pytorch_model.bin), restricted to tensors.

    Raises:
        UserError: there is no such model, or the number is below 1.
    """
    check_count("sentences", sentences)
    loaded = load_model(model, allow_pickle=allow_pickle)
    warn_of_new_tokens(loaded, model)
    return measure_engines(loaded, sequences=sentences)
