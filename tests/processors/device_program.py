"""Program that trains on a device that does not exist: `device_program.py FOLDER`, with a list of runs on its input.

Its tensors have shapes but no values (torch's FakeTensorMode). So what mixes devices, makes the host wait for the
device, or computes in float64 where the device lacks it, is found without one. Each run begins by the function that a
user calls, and is stopped where it would train: learner and batches are moved to the device, and two steps are taken.

A line of the input is a run as JSON: `name`, `call` ("pretrain", "finetune" or "distill"), `arguments`, `device`
("cuda", or "mps" for Apple's GPUs), `precision`, and perhaps one of `FAULTS`, to show that it is seen. A line of the
output is what was found, as JSON: the number of operations of each phase of the second step (views and allocations do
not count), how often it reads numbers of the device, and where it waits for the device otherwise, or goes wrong.

A GPU starts at least one kernel for each operation. One over lists of tensors (`_foreach_copy_`, `_fused_adamw_`)
starts few, but as many as there are tensors if torch's conditions for its fast route are not met; it is counted as that
many.
"""

import json
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from unittest import mock

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import unmask
from unmask.data.batches.batch import Batch
from unmask.nn.encoders import transformer, two_streams
from unmask.nn.layers import fused_attention, relative_kernels, rotary
from unmask.objectives import bidirectional_lm
from unmask.objectives.learner import Learner
from unmask.support import gpus, transfer
from unmask.tasks import spans
from unmask.training import evaluate
from unmask.training.loop import Trainer
from unmask.training.machine import Machine
from unmask.training.optimizer import Optimizer
from unmask.training.precision import Working
from unmask.training.replicas import Replicas

NAME = "gpu"
"""torch's name for the device: a build without CUDA refuses tensors on "cuda", even those without values."""
MICRO_TOKENS = 1 << 20
STEPS = 2
"""The first step creates the moments of the optimizer and what is cached; the second one counts."""
TOTAL = 100
VIEWS = (
    *("view", "reshape", "transpose", "t", "unbind", "select", "slice", "expand", "detach", "unsqueeze", "squeeze"),
    *("alias", "split", "split_with_sizes", "permute", "as_strided", "empty", "empty_like", "new_empty"),
    *(
        "_unsafe_view",
        "empty_strided",
        "unfold",
        "device",
        "is_pinned",
        "lift_fresh",
        "_reshape_alias",
        "diagonal",
        "chunk",
    ),
)
"""Operators that launch nothing on a device."""
LISTS = ("_foreach_", "_fused_")
"""Beginnings of the names of operators over lists of tensors."""
PHASES = {
    "forward": ((Learner, "forward"),),
    "backward": ((torch.Tensor, "backward"),),
    "copies": ((Working, "gather"), (Working, "refresh")),
    "optimizer": ((Optimizer, "clip"), (Optimizer, "step")),
}
"""The methods whose operations are counted as those of a phase of a step; the phase of others is "other"."""
SOURCE = str(Path(unmask.__file__).parent)


class Stopped(Exception):
    """The run has been looked at."""


class Waits(Exception):
    """An operation whose result has a shape that depends on values."""


def place():
    """Return the line of unmask's source that is executed."""
    frames = [frame for frame in traceback.extract_stack() if frame.filename.startswith(SOURCE)]
    frame = frames[-1]
    return f"{frame.filename[len(SOURCE) + 1 :]}:{frame.lineno}"


class Watch(TorchDispatchMode):
    """Counts operations, and notes where the host waits for the device."""

    def __init__(self, device):
        super().__init__()
        self.device = device
        self.fakes = FakeTensorMode(allow_non_fake_inputs=True)
        self.operations, self.waits = Counter(), Counter()
        self.phase, self.phases = "other", Counter()

    def note(self, what):
        """Note that the host waits here."""
        self.waits[f"{place()} {what}"] += 1

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, function.overloadpacket.__name__
        tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
        there = any(value.device.type == NAME for value in tensors)
        if name == "_local_scalar_dense" and there:
            self.note(name)
            return 1
        if there and name in ("nonzero", "unique_dim", "_unique2", "unique_consecutive", "masked_select", "bincount"):
            self.note(name)
            raise Waits(name)
        if there and name in ("index", "index_put", "index_put_", "_index_put_impl_"):
            self._check_indices(name, args)
        made_there = torch.device(kwargs.get("device") or "cpu").type == NAME
        if there or made_there:
            args, kwargs = tree_map(self._without_value, (args, kwargs))
            with self.fakes:
                result = function(*args, **kwargs)
        else:  # on the host, where tensors have values
            result = function(*args, **kwargs)
        if there or made_there:
            number = count_launches(name, args)
            self.operations[name] += number
            self.phases[self.phase] += number * (name not in VIEWS)
        if name == "_to_copy" and result.device != args[0].device:
            self._check_copy(args[0], result, kwargs.get("non_blocking", False))
        elif name == "copy_" and args[0].device != args[1].device:
            self._check_copy(args[1], args[0], bool(kwargs.get("non_blocking", args[2:])))
        lacks = isinstance(result, torch.Tensor) and result.device.type == NAME and self.device == "mps"
        if lacks and result.dtype == torch.float64:
            self.note(f"{name} in float64, which the device lacks,")
        return result

    def _without_value(self, value):
        real = isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor)
        return self.fakes.from_tensor(value) if real else value

    def _check_indices(self, name, args):
        for index in args[1]:
            if index is None:
                continue
            if index.dtype in (torch.bool, torch.uint8) and (name == "index" or args[2].numel() != 1):
                self.note(f"{name} by a mask")
                raise Waits(name)
            if index.device != args[0].device:
                self.note(f"{name} by an index on the other device")

    def _check_copy(self, source, result, non_blocking):
        if source.device.type == NAME or not non_blocking:
            self.note(f"copy to {'the host' if source.device.type == NAME else 'the device'}")


def count_launches(name, args):
    """Return 1, or the number of tensors if an operator over lists cannot take torch's fast route (ForeachUtils.h)."""
    lists = [value for value in args if isinstance(value, list | tuple) and value]
    if not name.startswith(LISTS) or not lists or not isinstance(lists[0][0], torch.Tensor):
        return 1
    mixes_dtypes = any(len({value.dtype for value in values}) > 1 for values in lists)
    if name != "_foreach_copy_":  # which converts
        mixes_dtypes |= len({values[0].dtype for values in lists}) > 1
    alike = all(
        size == 1 or first == other
        for values in lists[1:]
        for value, another in zip(lists[0], values, strict=True)
        if value.ndim == another.ndim  # steps of the fused optimizer are numbers
        for size, first, other in zip(value.shape, value.stride(), another.stride(), strict=True)
    )
    return 1 if alike and not mixes_dtypes else len(lists[0])


@contextmanager
def in_phases(watch):
    """Let a watch know the phase of a step."""

    def within(phase, method):
        def called(*args, **options):
            before, watch.phase = watch.phase, phase
            try:
                return method(*args, **options)
            finally:
                watch.phase = before

        return called

    with ExitStack() as stack:
        for phase, methods in PHASES.items():
            for owner, name in methods:
                stack.enter_context(mock.patch.object(owner, name, within(phase, getattr(owner, name))))
        yield


def move(module, mode, device):
    """Replace the tensors of a module by ones without values on a device."""
    known = {}
    for part in module.modules():
        for table in (part._parameters, part._buffers):
            for name, value in table.items():
                if value is not None and id(value) not in known:
                    fake = mode.from_tensor(value.detach()).to(device, non_blocking=True)
                    parameter = isinstance(value, nn.Parameter)
                    known[id(value)] = nn.Parameter(fake, value.requires_grad) if parameter else fake
                if value is not None:
                    table[name] = known[id(value)]


def teachers(learner):
    """Return the learners that objectives learn from."""
    found = [getattr(part, "teacher", None) for part in learner.modules()]
    return [teacher.learner for teacher in {id(one): one for one in found if one is not None}.values()]


def observe(trainer, run):
    """Take steps of a trainer on the device, and return what was found."""
    device = torch.device(NAME, 0)
    machine = Machine(device, run["precision"])
    found = {"name": run["name"]}
    replicas = Replicas(trainer.learner, Machine(torch.device("cpu"), run["precision"]), trainer.processes)
    replicas.copy.encoder.recompute = trainer.settings.batch.recompute
    for teacher in teachers(trainer.learner):
        teacher.to(machine.dtype)
    with ExitStack() as stack:
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        stack.enter_context(stand_ins(run["device"]))
        stack.enter_context(planted(run))
        ones = mock.patch.object(transfer, "to_host", side_effect=lambda values: [1.0] * len(values))
        reads = stack.enter_context(ones)
        watch = stack.enter_context(Watch(run["device"]))
        stack.enter_context(in_phases(watch))
        for learner in {trainer.learner, replicas.copy, *teachers(trainer.learner)}:
            move(learner, watch.fakes, device)
        replicas.working.pairs = list(zip(trainer.learner.parameters(), replicas.copy.parameters(), strict=True))
        trainer.machine, trainer.replicas = machine, replicas
        trainer.optimizer = trainer.settings.optimizer.build(
            trainer.learner,
            trainer.learner.encoder.layer_groups,
            tokens=trainer.calibration.plan.tokens,
            dtype=machine.dtype,
        )
        trainer.progress.total, trainer.progress.step = TOTAL, TOTAL - STEPS - 1  # in the last stage
        trainer.progress.micro_tokens = MICRO_TOKENS
        cursor = trainer.source.enter(trainer.source.start, len(trainer.source.stages) - 1)
        try:
            for _ in range(STEPS):
                trainer.progress.cursor = cursor  # shapes that torch has seen take less time
                watch.operations.clear()
                watch.phases.clear()
                watch.waits.clear()
                reads.reset_mock()
                trainer.step()
        except Waits:
            pass
        except Exception as error:
            frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(SOURCE)]
            at = f"{frames[-1].filename[len(SOURCE) + 1 :]}:{frames[-1].lineno}" if frames else "?"
            found["error"] = f"{at} {type(error).__name__}: {str(error).splitlines()[0][:200]}"
            if "--trace" in sys.argv:
                traceback.print_exc()
    found |= {"phases": dict(watch.phases), "reads": reads.call_count, "waits": dict(watch.waits)}
    if "--operations" in sys.argv:
        counted = watch.operations.most_common()
        found["counted"] = {name: count for name, count in counted if name not in VIEWS and count}
    return found


def computed_once(function, *args, use_reentrant, preserve_rng_state=True, **options):
    """Stand in for `checkpoint`, which computes the function again in the backward pass."""
    return function(*args, **options)


@contextmanager
def stand_ins(device):
    """Stand in for what a device that does not exist cannot do, and let tensors say that they are on it."""
    exact = torch.float32 if device == "mps" else torch.float64

    def wide(where):
        return exact if where.type == NAME else torch.float64

    def keep(shape, rate, dtype, seed, device=None):
        return torch.empty(shape, dtype=dtype, device=device).bernoulli_(1 - rate)

    on_cuda = property(lambda x: device == "cuda" and x.device.type == NAME)
    adding = evaluate, bidirectional_lm, transfer
    patches = [
        mock.patch.object(FakeTensor, "is_cuda", on_cuda, create=True),
        mock.patch.object(gpus, "describe", lambda device: gpus.GPUS[0][1]),
        *(mock.patch.object(module, "widest_float", wide) for module in adding),
        *(mock.patch.object(module, "keep", keep) for module in (fused_attention, relative_kernels)),
        # torch computes again on threads of the device
        *(mock.patch.object(module, "checkpoint", computed_once) for module in (spans, transformer, two_streams)),
    ]
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        rotary._cached_tables.cache_clear()
        yield
    rotary._cached_tables.cache_clear()


FAULTS = {
    "unplanned": lambda: mock.patch.object(Learner, "plan", lambda learner, batch: batch),
    "float64": lambda: mock.patch.object(evaluate, "widest_float", lambda device: torch.float64),
    "left behind": lambda: mock.patch.object(Batch, "to", left_behind),
    "read": lambda: mock.patch.object(Learner, "forward", reading(Learner.forward)),
}
"""Faults that can be planted: indices made on the device, float64, tensors that stay, a number that is read."""


def planted(run):
    """Return a context with the fault of a run, if it names one."""
    return FAULTS[run["fault"]]() if "fault" in run else nullcontext()


def left_behind(batch, device):
    """Stand in for `Batch.to`, and leave positions on the host."""
    moved = batch.map(lambda tensor: tensor.to(device, non_blocking=True))
    return replace(moved, positions=batch.positions)


def reading(forward):
    """Return a forward pass that reads its loss."""

    def read(learner, batch):
        loss = forward(learner, batch)
        float(next(iter(loss.values())).sum)
        return loss

    return read


def look(run, folder):
    """Begin a run, and return what was found where it would train."""
    found = {}

    def complete(trainer, *, resume):
        found.update(observe(trainer, run))
        raise Stopped

    with planted(run), mock.patch.object(Trainer, "complete", complete), tempfile.TemporaryDirectory(dir=folder) as out:
        options = {"device": "cpu", "precision": "float32", "quiet": True}
        with suppress(Stopped):
            getattr(unmask, run["call"])(**run["arguments"], out=Path(out) / "run", **options)
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    _setup_privateuseone_for_python_backend(NAME)
    warnings.filterwarnings("ignore", "Accessing the data pointer")
    for line in sys.stdin:
        print(json.dumps(look(json.loads(line), Path(sys.argv[1]))), flush=True)
