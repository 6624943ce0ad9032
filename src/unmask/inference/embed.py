"""Vectors and hidden states of texts, of a model by its directory: embed and write_features.

The texts are in files or in memory, and so is the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.labelled.columns import as_columns
from unmask.data.labelled.table import Data, as_sources
from unmask.inference.features import FILE, check_target, write_vectors
from unmask.inference.load import open_predictor
from unmask.support.choices import (
    ColumnNames,
    Device,
    InferenceEngine,
    InferencePrecision,
    PoolingKind,
    PromptName,
    TextFormat,
    check_choice,
)
from unmask.support.durable import new_directory, only_writer, refuse_filled
from unmask.support.errors import UserError, counted, refuse_idle
from unmask.support.messages import argument
from unmask.tasks.unlabelled import read_unlabeled
from unmask.training.machine import choose_inference_machine
from unmask.training.runs.display import Display


def write_features(
    model: str | Path,
    data: Data,
    layers: Sequence[int],
    out: str | Path,
    *,
    columns: ColumnNames | None = None,
    format: TextFormat | None = None,
    encoding: str | None = None,
    tokenizer: str | Path | None = None,
    allow_pickle: bool = False,
    device: Device = "auto",
    precision: InferencePrecision = "float32",
    quiet: bool = False,
) -> Path:
    """Write an encoder's hidden states for each token of texts, as features for other models.

    Args:
        model: run directory, Hugging Face model directory or name on the Hub, directory of AllenNLP's ELMo, an exported
            model with its last layer, or random:RECIPE, an untrained model.
        data: .tsv, .csv or .jsonl file with columns of texts or pairs, or .txt file with one text per line; in Python
            also examples in memory.
        layers: layers to write: 0 is the embeddings, -1 the last layer; several as -4 -3 -2 -1 or -4,-3,-2,-1.
        out: new directory for features.safetensors.
        columns: names of the columns to read, or their numbers from 0 for a file without a header.
        format: file format; by default that of the file's suffix.
        encoding: encoding of the files; by default UTF-8, or what a byte-order mark declares.
        tokenizer: directory of a tokenizer, or of a model or run that has one, or name of a model on the Hub; for
            random:RECIPE.
        allow_pickle: load pickled weights (pytorch_model.bin), restricted to tensors.
        device: where to compute; mps is the GPU of Apple's processors, auto is cuda if available, or cpu.
        precision: number format of the computation; auto is bf16 where it is faster than float32, and int8
            needs VNNI of AVX-512.
        quiet: print only results and errors.

    Returns:
        The file; see `unmask.inference.features`.

    Raises:
        UserError: the directory is not empty, the data is malformed, there is none, or the model has no such layer.
    """
    folder, notes, display = Path(out), list[str](), Display(quiet=quiet)
    machine = choose_inference_machine(device, precision)
    refuse_filled(folder)
    rows = read_unlabeled(as_sources(data, encoding), columns=as_columns(columns), kind=format, notes=notes)
    if not rows:
        raise UserError(f"{argument('data')} has no texts")
    predictor = open_predictor(model, machine, display, tokenizer=tokenizer, allow_pickle=allow_pickle)
    with new_directory(folder) as aside:
        tokens, own_notes = predictor.write_features(rows, layers, aside / FILE)
    total = f"{counted(tokens, 'token')} of {counted(len(rows), 'text')}: {folder / FILE}"
    display.say(*notes, *own_notes, total)
    return folder / FILE


def embed(
    model: str | Path,
    data: Data,
    *,
    out: str | Path | None,
    columns: ColumnNames | None = None,
    format: TextFormat | None = None,
    encoding: str | None = None,
    pooling: PoolingKind | None = None,
    normalize: bool | None = None,
    dimensions: int | None = None,
    prompt_name: PromptName | None = None,
    allow_pickle: bool = False,
    device: Device = "auto",
    precision: InferencePrecision = "float32",
    engine: InferenceEngine = "torch",
    quiet: bool = False,
) -> np.ndarray | list[np.ndarray]:
    """Write one vector per text, or per token for late interaction, for search and similarity.

    Args:
        model: run directory, Hugging Face model directory or name on the Hub, or an exported model.
        data: .tsv, .csv or .jsonl file with a column of texts, or .txt file with one text per line; in Python also
            texts in memory.
        out: new .npy or .safetensors file; in Python None: the vectors are only returned.
        columns: names of the columns to read, or their numbers from 0 for a file without a header.
        format: file format; by default that of the file's suffix.
        encoding: encoding of the files; by default UTF-8, or what a byte-order mark declares.
        pooling: mean of all tokens, the first one (cls), the maximum, the mean weighted by position, the last one, or
            the sum divided by the square root of their number; by default the model's own.
        normalize: divide vectors by their norm; by default as the model specifies, otherwise yes.
        dimensions: cut vectors to so many first dimensions, before they are normalized; by default as the model
            specifies, otherwise all.
        prompt_name: what the texts are, query or document, if the model has prompts for these; by default its default
            prompt, and for late interaction document.
        allow_pickle: load pickled weights (pytorch_model.bin), restricted to tensors.
        device: where to compute; mps is the GPU of Apple's processors, auto is cuda if available, or cpu.
        precision: number format of the computation; auto is bf16 where it is faster than float32, and int8
            needs VNNI of AVX-512.
        engine: auto is the fastest that is installed, which is measured by the first call, and stored in the directory
            of the model.
        quiet: print only results and errors.

    Returns:
        The vectors, (texts, width) float32, of a model of late interaction those of each text, (tokens, width); see
        docs/embeddings.md.

    Raises:
        UserError: the file exists, the data is malformed, or there is none; or a parameter has no effect on the model.
    """
    written = None if out is None else Path(out)
    if written is not None:
        check_target(written)
    if pooling is not None:
        check_choice("pooling", pooling, PoolingKind)
    notes, display = list[str](), Display(quiet=quiet)
    rows = read_unlabeled(as_sources(data, encoding), columns=as_columns(columns), kind=format, notes=notes)
    if not rows:
        raise UserError(f"{argument('data')} has no texts")
    if "text_b" in rows[0].values:
        raise UserError(
            "vectors are of single texts, but these are pairs", remedy=f"pass {argument('columns', {'text': 'NAME'})}"
        )
    machine = choose_inference_machine(device, precision)
    predictor = open_predictor(model, machine, display, allow_pickle=allow_pickle, engine=engine)
    texts, task = [row.values["text"] for row in rows], predictor.model.task
    of_tokens = task is not None and task.vectors.tokens is not None
    if of_tokens:
        reason = ": this model makes vectors of tokens"
        refuse_idle(reason, pooling=pooling, normalize=normalize is not None, dimensions=dimensions is not None)
        if written is not None and written.suffix == ".npy":
            raise UserError("texts have different numbers of vectors of tokens", file=out, remedy="use .safetensors")
    vectors: np.ndarray | list[np.ndarray]
    with only_writer(written):
        if of_tokens:
            vectors = predictor.embed_tokens(texts, prompt_name=prompt_name or "document", notes=notes)
        else:
            given: Any = {"pooling": pooling, "normalize": normalize, "dimensions": dimensions}
            vectors, own_notes = predictor.vectors(texts, prompt_name=prompt_name, **given)
            notes += own_notes
        if written is not None:
            check_target(written)  # by a program that has ended meanwhile
            write_vectors(written, vectors, predictor.fingerprint())
    if out is not None:
        number = sum(map(len, vectors)) if of_tokens else len(vectors)
        notes.append(f"{counted(number, 'vector')} of {vectors[0].shape[-1]} numbers: {out}")
    display.say(*notes)
    return vectors
