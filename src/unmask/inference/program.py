"""A model with one of its heads as a single function of padded tensors, for export, and in int8.

Input: token ids, a mask of real tokens and, if the tokenizer gives them, segment ids, (batch, length) int64 each, as in
transformers. Output: logits of whole texts, (batch, classes), or of tokens, (batch, length, classes); without a head,
the last layer.

Its outputs have the names that Optimum gives them and transformers.js looks for: `logits`, `last_hidden_state`, and of
answers `start_logits` and `end_logits`, (batch, length) each.

In int8, ONNX Runtime quantizes weights in advance, per channel, and activations while computing; OpenVINO (by NNCF)
quantizes both in advance, with scales that real inputs determine.

Processors without VNNI or AMX add products of unsigned activations and signed weights in 16 bits, where sums of two can
saturate: a program is then silently off by as much as int8 itself costs. So by default the weights of ONNX programs are
unsigned, which every processor multiplies exactly (inference/engines.py makes them as fast), and those of OpenVINO
programs have half of the range, so that no sum saturates.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from unmask.data.batches.batch import TARGETS, Batch, Sample
from unmask.data.batches.frame import Frame
from unmask.inference.backend import TorchBackend
from unmask.inference.engines import need
from unmask.nn.encoders.encoder import CARRY, TWO_LMS, Encoder
from unmask.nn.encoders.stored import padded_tokens
from unmask.objectives.objective import Objective
from unmask.support.errors import UserError
from unmask.support.messages import argument
from unmask.tasks.regression import RegressionHead

if TYPE_CHECKING:
    from unmask.model.model import Model

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""Names of the inputs; the last one is that of models whose tokenizer gives segment ids."""
SUMMARY = "summary"
FEATURES = "features"
"""Name of the output without a head."""
OUTPUTS = {FEATURES: ("last_hidden_state",), "question_answering": ("start_logits", "end_logits")}
"""Names of the outputs of a program by its head; of other heads `logits`."""
LENGTHS = (3, 4, 7, 12, 20, 33, 60, 128)
"""Lengths of the random sequences that an exported model is checked with; of each there are two."""
CALIBRATION = 128
"""Maximum number of texts that OpenVINO's scales are determined by."""


class Program(nn.Module):
    """See the module.

    Args:
        body: the encoder, or the downstream model on it.
        head: the head; None: the last layer is returned.
        parts: number of outputs, each a column of the head's.
        segments: whether segment ids are an input; otherwise they are 0.
    """

    def __init__(self, body: Encoder, head: Objective | None, parts: int = 1, *, segments: bool = True) -> None:
        super().__init__()
        self.body = body
        self.inputs = INPUTS if segments else INPUTS[:-1]
        self.head = head
        self.parts = parts

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor | tuple[Tensor, ...]:
        """See the module; padding is at the end of each row."""
        batch, length = input_ids.shape
        tokens = padded_tokens(input_ids, attention_mask != 0, token_type_ids)
        if self.head is None:
            return self.body(tokens).last.view(batch, length, -1)
        starts = torch.arange(batch, device=input_ids.device) * length
        summary = starts if self.body.head.summary == "first" else starts + attention_mask.sum(1) - 1
        every = torch.arange(batch * length, device=input_ids.device)
        positions = {self.head.at: every, SUMMARY: summary}
        encoded = self.body(tokens, self.head.keep)
        logits = self.head.predict(self.body, encoded, Batch((), tokens, positions, {}, {}))
        if self.head.at == SUMMARY:
            return logits
        logits = logits.view(batch, length, -1)
        return logits if self.parts == 1 else logits.unbind(-1)


class ProgramSignature(msgspec.Struct, frozen=True):
    """What a program computes.

    Attributes:
        head: name of the head; `FEATURES` without one.
        at: name of the positions that have a row of output each; "" without a head: all tokens.
        outputs: names of its outputs; several are the columns of one.
        activation: what is applied to them when they are read, "sigmoid" or "" for nothing: programs return logits.
            Those that were exported before this was stated have applied it themselves, and are refused.
    """

    head: str
    at: str
    outputs: tuple[str, ...] = ("output",)
    activation: str = ""

    @property
    def per_text(self) -> bool:
        """Whether there is one row per text."""
        return self.at == SUMMARY


def build_program(model: Model, backend: TorchBackend, head: str) -> tuple[Program, ProgramSignature]:
    """Return a model as a program, which shares the tensors of a backend in float32.

    Args:
        model: the model.
        backend: its backend.
        head: name of the head, or `FEATURES`.

    Raises:
        UserError: this model or head cannot be a program; the message says why.
    """
    if TWO_LMS in model.encoder.provides:
        raise UserError(
            "a recurrent model such as ELMo cannot be exported: its loop over the tokens depends on their number",
            remedy=f"for AllenNLP, pass {argument('format', 'allennlp')}",
        )
    if model.task is not None and head == model.task.part:
        model.task.check("export")
    if CARRY in model.encoder.provides:
        raise UserError("an XLNet with memory cannot be exported: its loop over windows depends on their number")
    signature = signature_of(backend, head)
    if head == FEATURES:
        return Program(backend.encoder, None, segments=model.marks_pairs).eval(), signature
    if model.downstream is not None and model.downstream.kind == "rnn":
        raise UserError(
            "a downstream model of the kind rnn cannot be exported: its loop over the tokens depends on their number",
            remedy=f"export the hidden states: {argument('head', 'features')}",
        )
    learner = backend.learner(head)
    objective = learner.parts[head]
    if objective.at == TARGETS:
        raise UserError(
            "this head predicts tokens by queries beside the text, which an exported program does not have",
            remedy=f"export the hidden states: {argument('head', 'features')}",
        )
    parts = len(signature.outputs)
    return Program(learner.encoder, objective, parts, segments=model.marks_pairs).eval(), signature


def signature_of(backend: TorchBackend, head: str) -> ProgramSignature:
    """Return what a program of a head computes, whether or not the model can be one.

    Args:
        backend: that of the model.
        head: name of the head, or `FEATURES`.
    """
    if head == FEATURES:
        return ProgramSignature(FEATURES, "", OUTPUTS[FEATURES])
    objective = backend.learner(head).parts[head]
    activation = "sigmoid" if isinstance(objective, RegressionHead) and objective.is_probability else ""
    return ProgramSignature(head, objective.at, OUTPUTS.get(head, ("logits",)), activation)


def default_head(model: Model) -> str:
    """Return the head to export: that of the task, else the masked-LM head, else `FEATURES`, also for vectors of texts.

    These are pooled from the last layer, as the files beside the program state.
    """
    if model.task is not None:
        return model.task.part if model.task.vectors.pooling is None else FEATURES
    return "masked_lm" if "masked_lm" in model.heads else FEATURES


def probes(model: Model, signature: ProgramSignature) -> list[Sample]:
    """Return random texts and pairs to compare two backends of a model with, with an output at every token or text."""
    rng, frame, longest = np.random.default_rng(0), Frame.of(model.tokenizer), model.encoder.longest
    made = list[Sample]()
    for length, texts in ((min(length, longest), texts) for texts in (1, 2) for length in LENGTHS):
        ids = rng.integers(model.tokenizer.size, size=max(texts, frame.capacity(length, texts)))
        sample = frame.wrap(*np.array_split(ids, texts))
        every = {} if signature.at in ("", SUMMARY) else {signature.at: np.arange(len(sample))}
        made.append(sample.add(positions=every).named((len(made),)))
    return made


def quantize_onnx(path: Path, out: Path, *, signed: bool = False) -> None:
    """Write a program with int8 weights.

    Args:
        path: the program in float32.
        out: the file to write.
        signed: whether the weights are signed: faster where a processor multiplies them exactly, and off elsewhere.
    """
    onnx, quantization = need("onnx", "onnx"), need("onnxruntime.quantization", "onnx")
    program = onnx.load(str(path))
    del program.graph.value_info[:]  # shapes that the exporter wrote contradict those that the quantizer infers
    kind = quantization.QuantType.QInt8 if signed else quantization.QuantType.QUInt8
    quantization.quantize_dynamic(program, str(out), weight_type=kind, per_channel=True)


def quantize_openvino(program: Any, samples: Sequence[Sample], *, signed: bool = False) -> Any:
    """Return an OpenVINO program with int8 weights and activations.

    Args:
        program: the program in float32; it is changed.
        samples: real inputs.
        signed: whether the weights have the whole range of signed bytes: closer to float32 where a processor
            multiplies them exactly, and off elsewhere.
    """
    os.environ["NNCF_CI"] = "1"  # otherwise it reports its use to its makers
    nncf = need("nncf", "openvino")
    wanted = [program_input.get_any_name() for program_input in program.inputs]

    def inputs(sample: Sample) -> dict[str, np.ndarray]:
        ids = np.asarray(sample.ids, np.int64)
        segments = np.zeros_like(ids) if sample.segments is None else np.asarray(sample.segments, np.int64)
        arrays = dict(zip(INPUTS, (ids[None], np.ones_like(ids)[None], segments[None]), strict=True))
        return {name: arrays[name] for name in wanted}

    data = nncf.Dataset(list(samples), inputs)
    fix = nncf.OverflowFix.DISABLE if signed else nncf.OverflowFix.ENABLE
    return nncf.quantize(
        program,
        data,
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(samples),
        advanced_parameters=nncf.AdvancedQuantizationParameters(overflow_fix=fix),
    )


@contextmanager
def quiet_logging() -> Iterator[None]:
    """Silence what the libraries log below errors, such as hints about packages that are not needed."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
