"""The fastest engine that is installed for a model on this machine, found by measuring: `engine="auto"`.

Input: a model and the directory that it is in. Output: a `Backend` that computes each head by torch, or by a program of
ONNX Runtime or OpenVINO in the same precision (inference/export.py) where that is faster. A text alone and several
texts are measured apart and may have different engines: torch's batches have no padding, and its calls cost more.

Exporting and measuring take seconds, so they are done once, when a head is first computed, and stored with the model:

    MODEL/.engines/KEY/choice.json          what was measured, and on what
    MODEL/.engines/KEY/FORMAT-PRECISION     a program that was chosen, as `unmask export` writes it

KEY stands for the machine, its number of threads, the precision and the head. What was measured with another version of
a library, or another model, is measured again, and so is a program that can no longer be loaded. One process measures
while others wait. Where nothing can be written, each process measures for itself.

No engine is measured with texts of more than `LONGEST` tokens, so torch computes those. An engine that cannot be loaded
is left out, and one that fails later is replaced by torch, with a note.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
import numpy as np
import torch

from unmask.data.batches.batch import Sample
from unmask.inference.backend import TorchBackend
from unmask.inference.bench import (
    CLOSE,
    LIBRARIES,
    LONGEST,
    PROGRAMS,
    exported_backends,
    mixed_lengths,
    time_backend,
)
from unmask.inference.export import difference
from unmask.inference.exported import ExportedBackend, load_exported
from unmask.inference.program import FEATURES, ProgramSignature, signature_of
from unmask.model.model import Model
from unmask.nn.encoders.encoder import Encoder
from unmask.support import panels
from unmask.support.durable import only_writer, read_json, replace_file, replaced_directory
from unmask.support.errors import UserError
from unmask.support.fingerprint import fingerprint_values, versions
from unmask.support.messages import rendered
from unmask.support.notices import note
from unmask.training.machine import Machine, choose_machine, processor
from unmask.training.runs.display import Display

FOLDER, CHOICE = ".engines", "choice.json"
"""Where choices are, in the directory of a model, and the file of each."""
EngineName = Literal["torch", "onnx", "openvino"]
TORCH: EngineName = "torch"
FASTER = 1.1
"""Ratio of times from which on a program is preferred to torch: smaller ones may differ from trial to trial."""
SEQUENCES, ALONE, ROUNDS = 64, 10, 3
"""Number of sequences that are computed together, of those that are computed alone, and of rounds, in turns."""


class Choice(msgspec.Struct, frozen=True):
    """Which engines compute a head.

    Attributes:
        basis: what the choice depends on: machine, model, precision, head and versions.
        alone: the engine of a text alone.
        together: that of several texts.
        milliseconds: of each engine, for a text alone (the median of several) and among others, in the fastest round.
        left_out: programs that cannot be made or computed here, and why.
    """

    basis: dict[str, str]
    alone: EngineName
    together: EngineName
    milliseconds: dict[str, tuple[float, float]]
    left_out: list[str]

    def __str__(self) -> str:
        described = []
        for index, (what, chosen) in enumerate((("a text alone", self.alone), ("several", self.together))):
            times = (f"{name} {taken[index]:.3g}" for name, taken in self.milliseconds.items())
            described.append(f"{chosen} for {what}" + (f" ({', '.join(times)} ms a text)" if self.milliseconds else ""))
        return "; ".join([*described, *self.left_out])


@dataclass
class Engines:
    """A choice, and the programs that it names; without any, torch computes."""

    choice: Choice
    programs: Mapping[str, ExportedBackend] = field(default_factory=dict)

    def of(self, number: int) -> ExportedBackend | None:
        """Return the program for a number of texts; None: torch."""
        return self.programs.get(self.choice.alone if number == 1 else self.choice.together)


class FastestBackend(TorchBackend):
    """`Backend` on the CPU that computes each head by the fastest engine; see the module.

    Args:
        model, machine, display, encoder: see `TorchBackend`.
        directory: the directory of the model.
    """

    def __init__(
        self,
        model: Model,
        machine: Machine,
        directory: Path,
        display: Display | None = None,
        *,
        encoder: Encoder | None = None,
    ) -> None:
        super().__init__(model, machine, display, encoder=encoder)
        self.directory = directory
        self._engines: dict[str, Engines] = {}
        self._choosing = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.model, self.machine, self.directory)

    def over(self, model: Model, encoder: Encoder) -> FastestBackend:
        """See `TorchBackend`."""
        return FastestBackend(model, self.machine, self.directory, self.display, encoder=encoder)

    def logits(self, head: str, samples: Sequence[Sample]) -> list[np.ndarray]:
        """See `Backend`."""
        program = self._program(head, samples)
        if program is None:
            return super().logits(head, samples)
        try:
            return program.logits(head, samples)
        except UserError as error:
            rows = super().logits(head, samples)  # raises the error, if it is due to the model
            self._give_up(head, error)
            return rows

    def layers(
        self, samples: Sequence[Sample], layers: Sequence[int], *, at: str | None = None, pooled: bool = False
    ) -> Iterator[tuple[int, np.ndarray]]:
        """See `Backend`."""
        last = not pooled and list(layers) == [self.encoder.num_layers]
        program = self._program(FEATURES, samples) if last else None
        remaining = dict.fromkeys(range(len(samples)))
        if program is not None:
            try:
                for number, rows in program.layers(samples, layers, at=at):
                    del remaining[number]
                    yield number, rows
            except UserError as error:
                self._give_up(FEATURES, error)
        numbers = list(remaining)
        some = samples if len(numbers) == len(samples) else [samples[number] for number in numbers]
        for index, rows in super().layers(some, layers, at=at, pooled=pooled):
            yield numbers[index], rows

    @property
    def identity(self) -> str:
        """What computes several texts by the head of the task, such as "onnxruntime 1.32.0": others round otherwise."""
        task = self.model.task
        choice = self.engines("masked_lm" if task is None else task.part).choice
        library = LIBRARIES.get(choice.together, TORCH)
        return f"{library} {choice.basis.get(library, '')}"

    def engines(self, head: str) -> Engines:
        """Return the engines of a head, which are chosen now if they are not yet.

        Raises:
            UserError: the model has no such head, or it is damaged.
        """
        with self._choosing:
            if head not in self._engines:
                self._engines[head] = choose_engines(self, head, self.directory)
            return self._engines[head]

    def _program(self, head: str, samples: Sequence[Sample]) -> ExportedBackend | None:
        """Return the program that computes some samples; None: torch does."""
        return self.engines(head).of(len(samples)) if samples and all(map(_fits, samples)) else None

    def _give_up(self, head: str, error: UserError) -> None:
        """Let torch compute a head from now on."""
        self._engines[head].programs = {}
        note(f"an engine has failed, and torch computes {_words(head)} in its place ({error.message})")


def choose_engines(backend: TorchBackend, head: str, directory: Path) -> Engines:
    """Return the fastest engines of a head: those that are stored in the directory of its model, or measured now.

    Args:
        backend: computes with torch on the CPU.
        head: name of the head, or `FEATURES`.
        directory: the directory of the model.

    Raises:
        UserError: the model has no such head, or it is damaged.

    Warns:
        InputNote: there is no other engine than torch, or the choice cannot be stored.
    """
    precision = backend.precision
    libraries = [LIBRARIES[format] for format, other in PROGRAMS if other == precision]
    installed = [library for library in libraries if find_spec(library) is not None]
    machine = {
        "processor": processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        "precision": precision,
        "head": head,
    }
    if not installed:
        note(f"there is no faster engine than torch to choose in {precision}: install {' or '.join(libraries)}")
        return Engines(Choice(machine, TORCH, TORCH, {}, []))
    libraries_used = {library: _version(library) for library in installed}
    own = {"panels": str(panels.registers()), "model": backend.model.fingerprint()}  # a compiler makes torch faster
    basis = {**machine, **own, **versions(["torch"]), **libraries_used}
    place = directory / FOLDER / fingerprint_values(machine)[:16]
    chosen = _read(place, basis, backend.display)
    try:
        if chosen is None:
            place.parent.mkdir(exist_ok=True)
            with only_writer(place, wait=True):
                chosen = _read(place, basis, backend.display, again=True)  # another process may have measured
                if chosen is None:
                    with replaced_directory(place) as aside:
                        chosen = _measure(backend, head, basis, aside)
    except OSError as error:
        reason = error.strerror or str(error)
        note(f"{place.parent}: which engine is the fastest is not stored, and measured each time ({reason})")
    if chosen is None:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            chosen = _measure(backend, head, basis, Path(folder))
    return chosen


def _read(place: Path, basis: Mapping[str, str], display: Display, *, again: bool = False) -> Engines | None:
    """Return the engines that are stored in a directory; None: there are none, or not of this basis.

    A note says why stored ones cannot be used, unless they are read `again`.
    """
    try:
        choice = read_json(place / CHOICE, Choice, "")
        if choice.basis != basis:
            return None
        folders = {name: place / f"{name}-{basis['precision']}" for name in {choice.alone, choice.together} - {TORCH}}
        return Engines(choice, {name: load_exported(folder, display)[1] for name, folder in folders.items()})
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (UserError, OSError) as error:
        reason = error.message if isinstance(error, UserError) else f"{place}: {error.strerror or error}"
        if not again:
            note(f"a stored engine cannot be used, and the engines are measured again ({reason})")
        return None


def _measure(backend: TorchBackend, head: str, basis: dict[str, str], folder: Path) -> Engines:
    """Export a head, measure its engines in turns, and write the choice and the programs that it names to a folder.

    Raises:
        UserError: the model has no such head, or it is damaged.
        OSError: the choice cannot be written.
    """
    model, left_out, precision = backend.model, list[str](), basis["precision"]
    original = TorchBackend(model, backend.machine, encoder=backend.encoder)
    signature = signature_of(original, head)
    exact = TorchBackend(model, choose_machine("cpu", "float32"))
    wanted = [(format, other) for format, other in PROGRAMS if other == precision and LIBRARIES[format] in basis]
    engines: dict[str, TorchBackend | ExportedBackend] = {TORCH: original}
    for name, _, program in exported_backends(model, exact, head, wanted, folder, left_out):
        try:
            worst, scale = difference(exact, program, model, signature)
        except UserError as error:
            left_out.append(f"{name} {precision}: {error.message}")
            continue
        if worst <= CLOSE[precision] * scale:
            engines[name] = replace(program, display=backend.display)
        else:
            left_out.append(f"{name} {precision}: its outputs differ by {worst:.2g} of {scale:.3g}")
    milliseconds = _time_in_turns(engines, model, signature, left_out)
    alone, together = (_fastest({name: times[index] for name, times in milliseconds.items()}) for index in range(2))
    choice = Choice(basis, alone, together, milliseconds, [rendered(line) for line in left_out])
    chosen = {
        str(name): made
        for name, made in engines.items()
        if isinstance(made, ExportedBackend) and name in (alone, together)
    }
    kept = [folder / f"{name}-{precision}" for name in chosen]
    for path in [path for path in folder.iterdir() if path not in kept]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    replace_file(folder / CHOICE, msgspec.json.format(msgspec.json.encode(choice)) + b"\n")
    backend.display.say(f"engine of {_words(head)}: {choice}")
    return Engines(choice, chosen)


def _time_in_turns(
    engines: dict[str, TorchBackend | ExportedBackend], model: Model, signature: ProgramSignature, left_out: list[str]
) -> dict[str, tuple[float, float]]:
    """Return the milliseconds of each engine, see `Choice`; those that fail are removed, and added to `left_out`.

    The fastest round counts, as other programs may slow down the others. Nothing is measured if there is only torch.
    """
    samples = mixed_lengths(model, signature, SEQUENCES)
    alone, together = defaultdict[str, list[list[float]]](list), defaultdict[str, list[float]](list)
    for _ in range(ROUNDS):
        for name, engine in list(engines.items()) if len(engines) > 1 else ():
            try:
                speed, seconds = time_backend(engine, model, signature, samples, ALONE)
            except UserError as error:
                if name == TORCH:
                    raise
                left_out.append(f"{name}: {error.message}")
                del engines[name]
            else:
                alone[name].append(seconds)
                together[name].append(1 / speed)
    return {
        name: (1e3 * float(np.median(np.min(alone[name], 0))), 1e3 * min(together[name]))
        for name in engines
        if alone[name]
    }


def _fastest(milliseconds: Mapping[str, float]) -> EngineName:
    """Return the fastest engine by name; torch, unless another one is clearly faster."""
    name = cast(EngineName, min(milliseconds, key=milliseconds.__getitem__, default=TORCH))
    return name if name != TORCH and FASTER * milliseconds[name] < milliseconds[TORCH] else TORCH


def _version(library: str) -> str:
    """Return the version of an installed library, whose package may have another name, such as onnxruntime-gpu."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return str(getattr(import_module(library), "__version__", ""))


def _fits(sample: Sample) -> bool:
    """Return whether programs compute a sample: a single sequence that is no longer than those that were measured."""
    plain = sample.reading.order is None and sample.reading.backward is None and not sample.parts
    return plain and len(sample) <= LONGEST


def _words(head: str) -> str:
    return "the last layer" if head == FEATURES else head.replace("_", " ")
