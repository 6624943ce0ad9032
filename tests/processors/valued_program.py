"""Program that computes on a device that does not exist, with values: `valued_program.py FOLDER`.

Its tensors are on the device for torch and for unmask, and have their numbers on the CPU. So all that unmask does for a
device is computed, and compared with what it does for a CPU: other kernels of attention, look-ups, products, norms and
sums, and copies. What mixes devices is an error, as on a GPU.

A line of the input is a run as JSON: `name`, `call` (a function of unmask that trains), its `arguments`, and the
`attention` on the device ("varlen", "padded" or, as on Apple's GPUs, "plain"); perhaps `data`, the examples to predict,
and one of `FAULTS`, to show that it is seen. The run is made on the CPU and on the device, in float32. A line of the
output has the losses and norms of gradients of both, or the error, and the predictions of both by the model that the
CPU has trained.

There is no FlashAttention: `flash` computes what its arguments say.
"""

import json
import sys
import warnings
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from unittest import mock

import msgspec
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import unmask
from unmask.data.batches.batch import Batch
from unmask.nn.layers import block, fused_attention
from unmask.training import machine

NAME = "gpu"
"""torch's name for the device."""
_setup_privateuseone_for_python_backend(NAME)
DEVICE = torch.device(NAME, 0)
COPIES = ("_to_copy", "copy_")
"""Operators whose tensors may be on different devices."""


class Valued(torch.Tensor):
    """A tensor of the device, whose numbers are in `values`, a tensor of the CPU."""

    is_cuda = True

    @staticmethod
    def __new__(cls, values):
        where = {"strides": values.stride(), "storage_offset": values.storage_offset(), "device": DEVICE}
        return torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=values.dtype, **where)

    def __init__(self, values):
        self.values_here = values

    def tolist(self):
        """Return the numbers, as tensors of a GPU do."""
        return self.values_here.tolist()

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return compute(function, args, kwargs or {})


class Here(TorchDispatchMode):
    """Computes with tensors of the device, and makes them where they are asked for."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return compute(function, args, kwargs or {})


def compute(function, args, kwargs):
    """Compute an operator on the CPU; its results are on the device if its inputs are, or if it is asked for."""
    name, asked = function.overloadpacket.__name__, kwargs.get("device")
    tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
    valued = [value for value in tensors if isinstance(value, Valued)]
    if valued and name not in COPIES and any(value.ndim and not isinstance(value, Valued) for value in tensors):
        raise RuntimeError(f"{name} mixes devices")
    there = bool(valued) if asked is None else torch.device(asked).type == NAME
    if asked is not None and there:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    plain = tree_map(lambda value: value.values_here if isinstance(value, Valued) else value, (args, kwargs))
    result = function(*plain[0], **plain[1])
    if name == "copy_":
        there = isinstance(args[0], Valued)
    if not there:
        return result
    known = {id(value.values_here): value for value in valued}  # of operators in place
    return tree_map(lambda value: known[id(value)] if id(value) in known else _valued(value), result)


def _valued(value):
    return Valued(value) if isinstance(value, torch.Tensor) else value


def flash(query, key, value, offsets, offsets_of_keys, longest, longest_key, dropout, **options):
    """Stand in for torch's variable-length FlashAttention, (tokens, heads, width) each."""
    left, right, causal = options["window_size_left"], options["window_size_right"], options["is_causal"]
    outputs = []
    for start, stop in pairwise(offsets.tolist()):
        places = torch.arange(stop - start, device=query.device)
        distance = places[:, None] - places  # (queries, keys)
        attended = distance >= (0 if causal else -(right if right is not None else longest))
        attended = attended & (distance <= (left if left is not None else longest))
        rows = (x[start:stop].transpose(0, 1) for x in (query, key, value))  # (heads, length, width) each
        outputs.append(scaled_dot_product_attention(*rows, attended, dropout).transpose(0, 1))
    return (torch.cat(outputs),)


def moved_in_part(batch, device):
    """Stand in for `Batch.to`, and leave positions on the CPU."""
    return replace(batch.map(lambda tensor: tensor.to(device)), positions=batch.positions)


FAULTS = {
    "mixed": lambda: mock.patch.object(Batch, "to", moved_in_part),
    "unmasked": lambda: mock.patch.object(fused_attention, "_mask", lambda group, spec, like: None),
}
"""Faults that can be planted: tensors that stay behind, and padding that is attended to."""


@contextmanager
def on_device(run):
    """Let unmask compute on the device."""
    flashes = run["attention"] == "varlen"
    modes = {True: torch.no_grad, False: nullcontext}  # tensors of inference have no version
    with (
        FAULTS[run["fault"]]() if "fault" in run else nullcontext(),
        mock.patch.object(machine, "_device", lambda name: DEVICE),
        mock.patch.object(torch, "inference_mode", lambda mode=True: modes[mode]()),
        mock.patch.object(Valued, "is_cuda", run["attention"] != "plain"),
        mock.patch.object(block, "flash_supports", lambda qkv, heads: flashes),
        mock.patch.object(fused_attention, "_flash", lambda: flash),
        Here(),
    ):
        yield


def numbers(out):
    """Return the losses and the norms of gradients of a run."""
    lines = map(json.loads, (out / "metrics.jsonl").read_text(encoding="utf8").splitlines())
    return [[line.get(name) for name in ("loss", "gradient_norm")] for line in lines if "loss" in line]


def predicted(model, data):
    """Return the predictions of a model for a file of examples, as JSON."""
    predictor = unmask.load(model)
    return json.loads(msgspec.json.encode(predictor.run(predictor.read(data))))


def compare(run, folder):
    """Make a run on both, and return what was found."""
    found, model = {"name": run["name"]}, None
    for place in ("cpu", "device"):
        out, options = folder / run["name"] / place, {"precision": "float32", "workers": 0, "quiet": True}
        with on_device(run) if place == "device" else nullcontext():
            try:
                trained = getattr(unmask, run["call"])(**run["arguments"], out=out, **options)
            except RuntimeError as error:
                found["error"] = str(error)
                continue
            found[place] = numbers(out)
            model = model or trained
            if "data" in run:
                found[f"predicted on {place}"] = predicted(model, run["data"])
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.gpu.get_amp_supported_dtype = list  # asked for by torch.utils.checkpoint
    warnings.filterwarnings("ignore")
    for line in sys.stdin:
        print(json.dumps(compare(json.loads(line), Path(sys.argv[1]))), flush=True)
