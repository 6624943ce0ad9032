"""Evaluation of a model by its directory: on labeled examples if it is fine-tuned, otherwise on text, or by a suite."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from unmask.data.labelled.minimal_pairs import read_pairs
from unmask.data.labelled.retrieval_files import CORPUS, LAYOUT, collection_files, find_collection, no_collection
from unmask.data.labelled.table import Data, ExampleTable, as_sources
from unmask.data.text.documents import TextOptions
from unmask.inference.backend import TorchBackend
from unmask.inference.evaluation.language_models import (
    evaluate_bits,
    evaluate_pairs,
    likelihood_of_bits,
    read_texts,
)
from unmask.inference.evaluation.likelihood import Likelihood
from unmask.inference.evaluation.retrieval import BM25, evaluate_retrieval, is_run
from unmask.inference.evaluation.scoring import evaluate_encoder, evaluate_task
from unmask.inference.load import open_predictor
from unmask.inference.predictor import Predictor
from unmask.inference.stream import refuse_input
from unmask.support.choices import (
    ColumnNames,
    Device,
    Documents,
    Format,
    InferencePrecision,
    PllKind,
    Suite,
    as_texts,
    check_choice,
)
from unmask.support.durable import check_file, only_writer
from unmask.support.errors import UserError, check_count, refuse_idle
from unmask.support.messages import argument, rendered
from unmask.tasks.tuning import describe_effect
from unmask.training.machine import choose_inference_machine
from unmask.training.runs.display import Display


def evaluate(
    model: str | Path,
    data: Data,
    *,
    columns: ColumnNames | None = None,
    format: Format | None = None,
    encoding: str | None = None,
    against: str | Path | None = None,
    errors: str | Path | None = None,
    trained_on: Data = (),
    metrics: str | Sequence[str] = (),
    suite: Suite | None = None,
    limit: int | None = None,
    pll: PllKind | None = None,
    first_stage: str | Path | None = None,
    fuse_with: str | Path | None = None,
    depth: int | None = None,
    run_file: str | Path | None = None,
    dimensions: int | None = None,
    allow_pickle: bool = False,
    field: str = "text",
    documents: Documents = "auto",
    strict: bool = False,
    device: Device = "auto",
    precision: InferencePrecision = "float32",
    quiet: bool = False,
) -> dict[str, Any]:
    """Score a fine-tuned model on labeled examples, a pretrained model on text, or a search on a collection.

    Args:
        model: run directory, Hugging Face model directory or name on the Hub, directory of AllenNLP's ELMo, or an
            exported model. For a search also bm25, or a run file of trec_eval.
        data: labeled examples for a fine-tuned model, raw text for a pretrained one; several files form one set. In
            Python also examples in memory. For a search a directory in BEIR's layout, maybe with #SPLIT.
        columns: names of the columns to read, or their numbers from 0 for a file without a header.
        format: file format; by default that of the file's suffix.
        encoding: encoding of the files; by default UTF-8, or what a byte-order mark declares.
        against: score a second model too, and test whether the differences are significant (paired bootstrap).
        errors: write a page that shows the worst errors, FILE.html.
        trained_on: the labeled examples that the model was trained on; the scores without those of the data that are
            among them, or nearly equal one, are added.
        metrics: names of further metrics, which installed packages provide (`unmask.metrics`).
        suite: score a language model by its probabilities instead: blimp, by BLiMP's pairs of sentences (.jsonl files
            or their directory); bits, by bits per character of text.
        limit: with a suite, read only the first N pairs of each paradigm, or the first N documents.
        pll: with a suite, what is masked for a masked language model to predict a token: original, this token (the
            default of blimp); word-l2r, also the rest of its word (of bits).
        first_stage: what finds the documents that a cross-encoder ranks: bm25, a run file, or a model that makes
            vectors.
        fuse_with: for a search, a second system (bm25, a run file, or a model) whose ranking is fused with that of the
            first one, by reciprocal ranks.
        depth: for a search, number of documents that are ranked for each query; by default 1000, of a cross-encoder
            100.
        run_file: for a search, file to write the ranked documents to, as a run of trec_eval.
        dimensions: for models that make vectors of texts, number of first dimensions that are compared; by default all,
            or as the model specifies.
        allow_pickle: load pickled weights (pytorch_model.bin), restricted to tensors.
        field: field of JSON Lines that holds the text; a.b is b in the object a.
        documents: what counts as a document in plain text: a whole file, a block between blank lines, or a line; auto
            is blank-line for a single file, file for several.
        strict: stop at the first unreadable document instead of skipping it.
        device: where to compute; mps is the GPU of Apple's processors, auto is cuda if available, or cpu.
        precision: number format of the computation; auto is bf16 where it is faster than float32, and int8
            needs VNNI of AVX-512.
        quiet: print only results and errors.

    Returns:
        `{task, metrics, intervals, examples, …}`; see `evaluate_task`, `evaluate_encoder`, `evaluate_pairs`,
        `evaluate_bits` and `evaluate_retrieval`.

    Raises:
        UserError: model and data do not fit, or a parameter has no effect.
    """
    start = time.perf_counter()
    options, sources = TextOptions(field, documents, strict, encoding), as_sources(data, encoding)
    files = [source for source in sources if not isinstance(source, ExampleTable)]
    if errors is not None:
        _check_page(Path(errors), files)
    labelled = {
        "columns": columns,
        "format": format,
        "against": against,
        "errors": errors,
        "trained_on": trained_on,
        "metrics": metrics,
    }
    if suite is None:
        refuse_idle(f"without {argument('suite')}", limit=limit is not None, pll=pll)
    else:
        check_choice("suite", suite, Suite)
        refuse_idle(f": {argument('suite', suite)} scores a language model", **labelled)
    machine = choose_inference_machine(device, precision)
    display = Display(quiet=quiet)
    collection = next((source for source in files if suite is None and find_collection(source)), None)
    load = partial(open_predictor, machine=machine, display=display, allow_pickle=allow_pickle)
    systems = [str(system) for system in (model, against, first_stage, fuse_with) if system]
    if collection is None and suite is None and any(system == BM25 or is_run(system) for system in systems):
        raise no_collection(files[0]) if files else UserError("a search is evaluated on a collection", remedy=LAYOUT)
    if collection is not None:
        if len(sources) > 1:
            raise UserError("a search is evaluated on one collection at a time", file=collection)
        reason = ": this is a collection for search, not labeled examples or text"
        refuse_idle(reason, **labelled | {"against": None} | options.changed())
        if run_file is not None:
            check_file(Path(run_file), "run_file")
            refuse_input(Path(run_file), collection_files(collection), "run_file")
            read = {"model": model, "against": against, "first_stage": first_stage, "fuse_with": fuse_with}
            for name, system in read.items():
                refuse_input(Path(run_file), [system] if system else [], "run_file", name)
        with only_writer(None if run_file is None else Path(run_file), "run_file"):
            result = evaluate_retrieval(
                model,
                collection,
                load=load,
                against=against,
                first_stage=first_stage,
                fuse_with=fuse_with,
                depth=depth,
                run_file=run_file,
                dimensions=dimensions,
            )
        return _finished(result, start, display)
    reason = f": {argument('data')} is no directory with {CORPUS}"
    refuse_idle(reason, first_stage=first_stage, fuse_with=fuse_with, depth=depth, run_file=run_file)
    predictor = load(model).with_dimensions(dimensions)
    if predictor.model.task is None:
        refuse_idle(": the model is not fine-tuned, and the data is no collection for search", dimensions=dimensions)
    if suite is not None:
        result = _evaluate_suite(predictor, files, suite, limit, pll, options, display)
    elif predictor.model.task is not None:
        refuse_idle(": the model is fine-tuned, so the data is labeled", **options.changed() | {"encoding": None})
        with only_writer(None if errors is None else Path(errors), "errors"):
            result = evaluate_task(
                predictor,
                sources,
                columns=columns,
                kind=format,
                against=load(against).with_dimensions(dimensions) if against else None,
                errors=errors,
                trained_on=as_sources(trained_on, encoding),
                metrics=as_texts(metrics),
                names=(str(model), str(against or "")),
            )
    else:
        refuse_idle(": the model is not fine-tuned, so the data is plain text", **labelled)
        if not files:
            raise UserError("a pretrained encoder is evaluated on files of text", remedy="pass paths")
        result = evaluate_encoder(predictor.model, files, options=options, machine=machine, display=display)
    return _finished(result, start, display)


def _finished(result: dict[str, Any], start: float, display: Display) -> dict[str, Any]:
    """Show the notes and warnings of a result, and return it, with these as shown and the seconds since `start`."""
    result = result | {kind: [*map(rendered, result[kind])] for kind in ("notes", "warnings") if kind in result}
    display.say(*result.get("notes", ()))
    display.warn(*result.get("warnings", ()))
    if compared := result.get("thresholds"):
        display.say(describe_effect(compared))
    return result | {"seconds": round(time.perf_counter() - start, 3)}


def _evaluate_suite(
    predictor: Predictor,
    files: Sequence[str | Path],
    suite: Suite,
    limit: int | None,
    pll: PllKind | None,
    options: TextOptions,
    display: Display,
) -> dict[str, Any]:
    """Return the scores of a language model; see `evaluate`."""
    check_count("limit", limit)
    if pll is not None:
        check_choice("pll", pll, PllKind)
    if not files:
        raise UserError(f"{argument('suite', suite)} reads files", remedy="pass paths")
    if not isinstance(predictor.backend, TorchBackend):
        raise UserError("an exported model gives no probabilities of tokens", remedy="use the model it was made from")
    likelihood = (Likelihood if suite == "blimp" else likelihood_of_bits)(predictor.backend, pll)
    unit = "pairs of each paradigm" if suite == "blimp" else "documents"
    first = [] if limit is None else [f"at most the first {limit:,} {unit}"]
    if suite == "blimp":
        refuse_idle(": BLiMP is JSON Lines in UTF-8", **options.changed())
        result, notes = evaluate_pairs(likelihood, read_pairs(files, limit=limit), display), first
    else:
        texts, skipped = read_texts(files, options, limit)
        result, notes = evaluate_bits(likelihood, texts, display), [*first, *skipped]
    return result | {"scored_by": likelihood.description, "notes": [likelihood.description, *notes, *result["notes"]]}


def _check_page(path: Path, files: Sequence[str | Path]) -> None:
    """Raise an error, before anything is computed, if the page of errors cannot be written or is not named as HTML."""
    if path.suffix != ".html":
        raise UserError("the page of errors is HTML", file=path, remedy="name it FILE.html")
    check_file(path, "errors")
    refuse_input(path, files, "errors")
