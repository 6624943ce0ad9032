"""Export of a model to ONNX or OpenVINO, with its tokenizer, checked against the original.

Input: a model. Output: a directory with the program (`onnx/model.onnx`, in int8 `onnx/model_quantized.onnx`; or
`model.xml` and `model.bin`), the manifest `export.json`, `config.json`, the tokenizer and a card, which `load` reads.
It is complete or not there: it is written beside its place and renamed after the check.

Names of files and outputs are those of Optimum, so that transformers.js loads a directory of ONNX. A program is a
single file, unless its weights exceed what a protobuf message holds: these are then beside it, in `model.onnx_data`.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
import numpy as np
import torch
from torch.export import Dim

from unmask.data.batches.batch import Sample
from unmask.families.checkpoints.check import write_checksums
from unmask.families.checkpoints.hub import MANIFEST
from unmask.families.checkpoints.huggingface import write_config
from unmask.families.checkpoints.sentence_modules import DENSE, write_pooling
from unmask.inference.backend import Backend, TorchBackend
from unmask.inference.engines import multiplies_signed_bytes, need, openvino_computes_bf16, program_file
from unmask.inference.exported import ExportManifest, open_exported, outputs, write_check
from unmask.inference.program import (
    CALIBRATION,
    FEATURES,
    Program,
    ProgramSignature,
    build_program,
    default_head,
    probes,
    quantize_onnx,
    quantize_openvino,
    quiet_logging,
)
from unmask.model.model import Model
from unmask.support.durable import full_disk, named, new_directory, refuse_filled, replace_file
from unmask.support.errors import UserError
from unmask.support.messages import argument
from unmask.support.model_card import NAME, Origin, model_card
from unmask.training.machine import choose_machine, processor

if TYPE_CHECKING:
    from unmask.tasks import AnyTask

LARGEST_FILE = 1 << 30
"""Number of bytes of weights up to which a program is a single file; a protobuf message has at most twice as many."""
BOUNDS = {"float32": 1e-3, "bf16": 0.1, "int8": 0.5}
"""Largest difference from the original that is accepted, as a share of its largest absolute output."""
WHERE = {
    "any": "It was made for any processor: what it computes does not depend on which instructions there are.",
    "this": "It was made for this processor (target: this): in other programs it may be off on processors without "
    "VNNI or AMX, where sums of signed bytes saturate. `unmask` checks that when it loads it.",
}
ABOUT = """Exported by `unmask export` in {precision}; its output: {head}. Made and checked on {processor}: the largest
difference from the original was {difference:.2g}, its largest output {scale:.3g}. {where}

`unmask.predict` and `unmask.load` compute it, and compare its outputs with those that it had where it
was made (`check.safetensors`), on every machine.
"""


@dataclass(frozen=True)
class Export:
    """What to write.

    Attributes:
        format: "onnx" or "openvino".
        precision: "float32"; "int8"; "bf16", for openvino only.
        head: name of the head, "features" for the last layer; None: see `default_head`.
        target: processors to export for, in int8: "any", or "this", whose program may be off on others.
    """

    format: str
    precision: str = "float32"
    head: str | None = None
    target: str = "any"

    @property
    def calibrated(self) -> bool:
        """Whether real inputs determine scales of the program."""
        return self.format == "openvino" and self.precision == "int8"


def export_model(
    model: Model, wanted: Export, out: Path, samples: Sequence[Sample] = (), traced: Path | None = None
) -> ExportManifest:
    """Write a model as a directory that `load` reads.

    Args:
        model: the model; it is not changed.
        wanted: format, precision and head.
        out: the new directory.
        samples: real inputs by which OpenVINO's int8 is calibrated; see `CALIBRATION`.
        traced: the program that `trace` has written already; None: it is traced now.

    Returns:
        The manifest, with the largest difference from the original.

    Raises:
        UserError: the model cannot be exported in this way, or the result differs too much from the original; nothing
            is left then.
    """
    refuse_filled(out)
    _refuse(wanted, samples)
    head = wanted.head or default_head(model)
    for library in ("onnx", "onnxscript", "onnxruntime" if wanted.format == "onnx" else "openvino"):
        need(library, wanted.format)
    if wanted.precision == "bf16" and not openvino_computes_bf16():
        raise UserError("OpenVINO does not compute in bf16 on this processor", remedy="export in float32")
    backend = TorchBackend(model, choose_machine("cpu", "float32"))
    program, signature = build_program(model, backend, head)
    with named(out), new_directory(out) as folder:
        if traced is None:
            trace(program, traced := folder / "model.onnx", signature.outputs)
        manifest = ExportManifest(
            wanted.format,
            wanted.precision,
            signature,
            model.encoder.vocabulary,
            model.labels,
            cast("AnyTask | None", model.task),
            target=wanted.target,
            processor=processor(),
        )
        tried, *others = _weights(wanted)
        made = _make(backend, manifest, traced, folder, tried, samples)
        for signed in others:
            with suppress(UserError):  # too far from the original: the first one is kept
                other = _make(backend, manifest, traced, folder, signed, samples)
                made = min(made, other, key=lambda attempt: attempt[1].difference)
        for path in [path for path in folder.iterdir() if path != made[0]]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in made[0].iterdir():
            path.rename(folder / path.name)
        made[0].rmdir()
    return made[1]


def _refuse(wanted: Export, samples: Sequence[Sample]) -> None:
    """Raise an error for what no engine computes, or what has no effect."""
    if wanted.format == "onnx" and wanted.precision == "bf16":
        raise UserError(
            "ONNX Runtime does not compute in bf16 on CPUs",
            remedy=f"pass {argument('format', 'openvino')}, or another {argument('precision')}",
        )
    if wanted.target == "this" and wanted.precision != "int8":
        raise UserError(
            f"the target has no effect in {wanted.precision}: its program is the same for all processors",
            remedy=f"omit {argument('target')}",
        )
    if wanted.calibrated and not samples:
        raise UserError("int8 of OpenVINO is calibrated by real texts", remedy=f"pass {argument('data', 'FILE')}")


def _weights(wanted: Export) -> list[bool]:
    """Return which weights to try, signed or not, the safe ones first; see inference/engines.py."""
    if wanted.precision != "int8" or wanted.target == "any":
        return [False]
    return [False, True] if wanted.format == "openvino" else [multiplies_signed_bytes()]


def _make(
    original: TorchBackend,
    manifest: ExportManifest,
    traced: Path,
    folder: Path,
    signed: bool,
    samples: Sequence[Sample],
) -> tuple[Path, ExportManifest]:
    """Convert a traced program, check it, and return its directory, in `folder`, and its complete manifest.

    Raises:
        UserError: it differs too much from the original.
    """
    made = folder / f"made-{'signed' if signed else 'unsigned'}"
    made.mkdir()
    _convert(manifest, traced, made, signed, samples[:CALIBRATION])
    _describe(original.model, manifest, made)
    _, written = open_exported(made, manifest)
    manifest = _checked(original, written, manifest)
    write_check(made, original.model, written)
    _describe(original.model, manifest, made)
    return made, manifest


def trace(program: Program, path: Path, outputs: Sequence[str]) -> None:
    """Write a program as ONNX, for batches of any size and length.

    Args:
        program: the program.
        path: the file to write.
        outputs: names of its outputs.

    Raises:
        UserError: it depends on its input in a way that cannot be exported.
    """
    inputs = tuple(torch.ones(3, 7, dtype=torch.int64) for _ in program.inputs)
    axes = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    size = sum(weight.numel() * weight.element_size() for weight in program.parameters())
    try:
        with warnings.catch_warnings(), torch.no_grad(), quiet_logging():
            warnings.simplefilter("ignore")  # deprecations inside of the exporter
            torch.onnx.export(
                program,
                inputs,
                str(path),
                input_names=program.inputs,
                output_names=list(outputs),
                dynamic_shapes=(axes,) * len(inputs),
                dynamo=True,
                external_data=size > LARGEST_FILE,
                verbose=False,
            )
    except Exception as error:  # the exporter's errors have no common class
        if full := full_disk(error):
            raise full from None
        reason = str(error.__cause__ or error).strip().splitlines() or [type(error).__name__]
        raise UserError(
            f"this model and head cannot be exported ({reason[0]})",
            remedy=f"export the hidden states: {argument('head', 'features')}",
        ) from error


def _convert(manifest: ExportManifest, traced: Path, made: Path, signed: bool, samples: Sequence[Sample]) -> None:
    """Write a traced program to `made`, in the format and precision of the manifest."""
    file = program_file(made, manifest.format, manifest.precision)
    file.parent.mkdir(exist_ok=True)
    if manifest.format == "onnx":
        if manifest.precision == "int8":
            with quiet_logging():
                quantize_onnx(traced, file, signed=signed)
        else:
            _copy(traced, file)
        return
    library = need("openvino", "openvino")
    converted = library.Core().read_model(str(traced))  # `convert_model` would report its use to the library's makers
    if manifest.precision == "int8":
        with quiet_logging():
            converted = quantize_openvino(converted, samples, signed=signed)
    library.save_model(converted, str(file), compress_to_fp16=False)


def _copy(traced: Path, file: Path) -> None:
    """Copy a traced program, with the weights that are beside it under the name that transformers.js looks for."""
    weights = traced.with_name(f"{traced.name}.data")
    if not weights.is_file():
        shutil.copyfile(traced, file)
        return
    onnx = need("onnx", "onnx")
    program = onnx.load(str(traced), load_external_data=False)
    for tensor in program.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = f"{file.name}_data"
    shutil.copyfile(weights, file.with_name(f"{file.name}_data"))
    file.write_bytes(program.SerializeToString())


def _describe(model: Model, manifest: ExportManifest, made: Path) -> None:
    """Write the files beside the program: the manifest, the settings, the tokenizer, the checksums."""
    task, shape = manifest.task, model.encoder.settings
    file = program_file(made, manifest.format, manifest.precision)
    heads = () if manifest.signature.head == FEATURES else (manifest.signature.head,)
    settings = None if task is None else msgspec.to_builtins(task)
    write_config(made, model.encoder, heads, model.labels, settings, model.tokenizer.pad, model.tokens)
    length = task.length if task else model.encoder.longest
    model.tokenizer.save(made, length=length, summary=shape.summary, segments=shape.segments > 1, pads_end=True)
    if model.pooling is not None:
        write_pooling(made, model.pooling, model.encoder.width, shape.summary, model.heads.get(DENSE))
    replace_file(made / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
    replace_file(made / NAME, _card(model, manifest).encode())
    if file.with_name(f"{file.name}_data").is_file():
        config = msgspec.json.decode((made / "config.json").read_bytes())
        config["transformers.js_config"] = {"use_external_data_format": {file.name: 1}}
        replace_file(made / "config.json", msgspec.json.format(msgspec.json.encode(config)) + b"\n")
    write_checksums(made)


def _checked(original: TorchBackend, written: Backend, manifest: ExportManifest) -> ExportManifest:
    """Return the manifest with the largest difference from the original on random sequences of many lengths.

    Raises:
        UserError: it is above the bound.
    """
    worst, scale = difference(original, written, original.model, manifest.signature)
    if not worst <= BOUNDS[manifest.precision] * scale:  # also if it is not a number
        raise UserError(
            f"the exported model differs from the original by {worst:.3g} (its largest output: {scale:.3g}), "
            f"more than rounding in {manifest.precision} explains",
            remedy=f"choose another {argument('precision')} or {argument('format')}",
        )
    return msgspec.structs.replace(manifest, difference=worst, scale=scale)


def difference(original: Backend, other: Backend, model: Model, signature: ProgramSignature) -> tuple[float, float]:
    """Return the largest difference of two backends on random sequences, and the largest output of the first."""
    samples = probes(model, signature)
    pairs = list(zip(*(outputs(backend, model, signature, samples) for backend in (original, other)), strict=True))
    scale = max(float(np.abs(exact).max()) for exact, _ in pairs)
    return max(float(np.abs(exact - rounded).max()) for exact, rounded in pairs), scale


def _card(model: Model, manifest: ExportManifest) -> str:
    """Return the card of an exported model."""
    engine = {"onnx": "ONNX Runtime", "openvino": "OpenVINO"}[manifest.format]
    where = WHERE[manifest.target] if manifest.precision == "int8" else WHERE["any"]
    about = ABOUT.format(
        precision=manifest.precision,
        head=manifest.signature.head.replace("_", " "),
        processor=manifest.processor,
        difference=manifest.difference,
        scale=manifest.scale,
        where=where,
    ).rstrip()
    own = "" if model.task is None else model.task.card.pipeline
    pipeline = {FEATURES: "feature-extraction", "masked_lm": "fill-mask"}.get(manifest.signature.head, own)
    origin = Origin(
        base=model.as_base,
        library={"onnx": "transformers.js", "openvino": "openvino"}[manifest.format] if pipeline else "unmask",
        pipeline=pipeline,
        tags=(manifest.format,),
        relation="quantized" if manifest.precision == "int8" else "",
    )
    return model_card(f"A program for {engine}", about, origin=origin)
