"""Models written in the formats of other programs: `unmask.export`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.data.batches.batch import Sample
from unmask.data.labelled.columns import as_columns
from unmask.data.labelled.table import Data, Source, as_sources
from unmask.families.checkpoints.allennlp import write
from unmask.families.checkpoints.check import write_checksums
from unmask.inference.evaluation.scoring import evaluate_task
from unmask.inference.export import Export, export_model
from unmask.inference.load import load, warn_of_new_tokens
from unmask.inference.program import CALIBRATION
from unmask.model.directory import models_of_tasks, write_tasks
from unmask.model.model import Model, load_model, save_model
from unmask.support.choices import ColumnNames, ProgramPrecision, Target, check_choice
from unmask.support.durable import new_directory, refuse_filled
from unmask.support.errors import UserError, nearest, refuse_idle
from unmask.support.fingerprint import fingerprint
from unmask.support.messages import argument
from unmask.support.model_card import Origin, model_card
from unmask.tasks.rows import frame_rows
from unmask.tasks.unlabelled import read_unlabeled
from unmask.training.runs.display import Display
from unmask.workflows import EXPORTERS, PROGRAMS

SIGNIFICANT = 0.05
"""Probability below which a loss of the paired bootstrap is not taken for chance."""


def export(
    model: str | Path,
    out: str | Path,
    format: str,
    *,
    precision: ProgramPrecision = "float32",
    head: str | None = None,
    data: Data = (),
    columns: ColumnNames | None = None,
    encoding: str | None = None,
    target: Target = "any",
    allow_pickle: bool = False,
    quiet: bool = False,
) -> dict[str, Any] | None:
    """Write a model in the format of another program.

    Args:
        model: run directory, Hugging Face model directory or name on the Hub, or directory of AllenNLP's ELMo; of a run
            on several tasks, the models of all of them.
        out: new directory.
        format: onnx (ONNX Runtime) or openvino: a program with its tokenizer, which predict, evaluate and load also
            read; huggingface: a directory for transformers; allennlp: options.json and weights.hdf5 of an ELMo; static:
            a vector for each token, for StaticEmbedding of sentence-transformers, which embed, evaluate on a
            collection, and load also read; or one of an installed package (`unmask.exporters`).
        precision: number format; bf16 for openvino, int8 for onnx and openvino.
        head: head to export; by default the task's, or masked_lm, or features.
        data: labeled examples: calibrate int8 by them (openvino), and refuse it if it is significantly worse on them;
            for int8 (openvino) of a model that was not fine-tuned, texts.
        columns: names of the columns of data, as for evaluate.
        encoding: encoding of the files of data; by default UTF-8, or what a byte-order mark declares.
        target: processors that int8 is made for: any, or the closest on this one, which other programs may compute
            wrongly elsewhere.
        allow_pickle: load pickled weights (pytorch_model.bin), restricted to tensors.
        quiet: print only results and errors.

    Returns:
        With data, how the exported model differs from the original: `{metric, difference, interval, p, examples}`.

    Raises:
        UserError: the directory is not empty, the model cannot be written in this format, or it is significantly worse.
    """
    folder, display, sources = Path(out), Display(quiet=quiet), as_sources(data, encoding)
    named = as_columns(columns)
    check_choice("precision", precision, ProgramPrecision)
    check_choice("target", target, Target)
    refuse_filled(folder)
    if not sources:
        refuse_idle(f"without {argument('data')}", columns=columns, encoding=encoding)
    if format not in EXPORTERS:
        raise UserError(f"{argument('format', format)}: unknown", remedy=nearest(format, EXPORTERS))
    if format not in PROGRAMS:
        chosen = argument("format", format)
        if precision != "float32":
            raise UserError(f"{chosen} is written in float32", remedy=f"omit {argument('precision')}")
        refuse_idle(f"with {chosen}", head=head, data=sources, target=target != "any")
    if tasks := models_of_tasks(model):
        if head or sources:
            raise UserError(
                f"{argument('head')} and {argument('data')} belong to one model, and this run has several",
                file=model,
                remedy=f"name one of them, such as {next(iter(tasks.values()))}",
            )
        with new_directory(folder) as aside:
            for name, source in tasks.items():
                path = aside / name
                export(source, path, format, precision=precision, target=target, allow_pickle=allow_pickle, quiet=True)
            write_tasks(aside, tasks)
        display.say(f"{format}, {precision}, a model for each of the tasks {', '.join(tasks)}: {folder}")
        return None
    loaded = load_model(model, allow_pickle=allow_pickle)
    warn_of_new_tokens(loaded, model)
    if format not in PROGRAMS:
        with new_directory(folder) as aside:
            notes = EXPORTERS[format](loaded, aside)
        display.say(*notes)
        display.say(f"{format}: {folder}")
        return None
    wanted, examples, samples = Export(format, precision, head, target), list[Any](), list[Sample]()
    if loaded.task is None and wanted.calibrated and sources:
        texts = read_unlabeled(sources, columns=named, kind=None, notes=[])[:CALIBRATION]
        samples = frame_rows(loaded.tokenizer, texts, loaded.encoder.longest).samples
    else:
        examples = _examples(loaded, sources, named)
    if loaded.task is not None and examples:
        samples = loaded.task.frame(loaded.tokenizer, examples[:CALIBRATION], loaded.labels, gold=False).samples
    with new_directory(folder) as aside:
        manifest = export_model(loaded, wanted, aside, samples)
        display.say(f"largest difference from the original: {manifest.difference:.2g} of {manifest.scale:.3g}")
        compared = _compare(loaded, aside, sources, named, precision, (str(out), str(model))) if examples else None
    made = f"{manifest.precision}, {manifest.signature.head}"
    display.say(f"{made}, for {manifest.target} processor, checked on {manifest.processor}: {folder}")
    return compared


def write_huggingface(model: Model, folder: Path) -> Sequence[str]:
    """Write a directory for transformers.

    Raises:
        UserError: what was written differs from the model.
    """
    card = model.card or model_card("A model", "Written by `unmask export`.", origin=Origin(base=model.as_base))
    save_model(folder, model, card)
    if fingerprint(load_model(folder).weights()) != fingerprint(model.weights()):
        raise UserError("what was written differs from the model", file=folder)
    return ["the same weights, read again"]


def write_allennlp(model: Model, folder: Path) -> Sequence[str]:
    """Write the files of an ELMo of AllenNLP; heads are left out.

    Raises:
        UserError: the model is no ELMo.
    """
    write(folder, model.encoder, model.tokenizer.tokens(range(model.tokenizer.size)))
    write_checksums(folder)
    return [f"not in this format, and left out: {', '.join(sorted(model.heads))}"] if model.heads else []


def _examples(model: Model, sources: Sequence[Source], columns: Mapping[str, str]) -> list[Any]:
    """Return the labeled examples; empty if there are none."""
    if not sources:
        return []
    if model.task is None:
        raise UserError(f"{argument('data')}: this model was not fine-tuned, so that no metric tells what was lost")
    return model.task.read(sources, columns=columns)


def _compare(
    model: Model,
    out: Path,
    sources: Sequence[Source],
    columns: Mapping[str, str],
    precision: str,
    names: tuple[str, str],
) -> dict[str, Any]:
    """Compare the exported model with the original on labeled data.

    Args:
        model: the original.
        out: the directory of the exported one.
        sources, columns: labeled examples.
        precision: that of the exported one.
        names: names of the exported model and of the original, in messages.

    Raises:
        UserError: the exported one is significantly worse.
    """
    assert model.task is not None
    metric = model.task.metric
    result = evaluate_task(load(out), sources, columns=columns, against=model, names=names)
    compared = {"metric": metric, "examples": result["examples"], **result["against"]["differences"][metric]}
    if precision != "float32" and compared["difference"] < 0 and compared["p"] < SIGNIFICANT:
        raise UserError(
            f"{precision} loses {-compared['difference']:.3g} of {metric} on these examples (p = {compared['p']:.2g}): "
            "nothing was written",
            file=", ".join(map(str, sources)),
            remedy=f"choose another {argument('precision')} or {argument('format')}",
        )
    return compared
