"""Program that takes a training step on a device that is neither a CPU nor CUDA: `device_program.py CORPUS RECIPE…`.

Its tensors have shapes but no values (torch's FakeTensorMode), so that the device need not exist: what mixes devices,
needs a number of the device on the host, or computes in float64, which Apple's GPUs lack, is found all the same. Prints
a line for each recipe: its name, and what went wrong, or "ok" and how often the step copied something to the host.
"""

import copy
import sys
from collections import Counter

import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from unmask.data.batches.batch import collate
from unmask.data.corpus.corpus import open_corpus
from unmask.objectives import bidirectional_lm
from unmask.recipes.recipe import read_recipe
from unmask.training import evaluate, kernels
from unmask.training.carry import CarryTable
from unmask.training.evaluate import add_parts
from unmask.training.machine import Machine
from unmask.training.precision import Working
from unmask.training.processes import Processes
from unmask.training.replicas import Replicas
from unmask.workflows.pretraining.checks import build_curriculum
from unmask.workflows.pretraining.start import build_learner

NAME = "other"
SMALL = {"encoder.layers": 2}


class Watch(TorchDispatchMode):
    """Counts copies to the host, and refuses float64 on the device."""

    def __init__(self):
        super().__init__()
        self.to_host = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            if result.device.type == NAME and result.dtype == torch.float64:
                raise TypeError(f"{function} computes in float64")
            moved = function is torch.ops.aten._to_copy.default and args[0].device.type == NAME
            self.to_host[str(function)] += moved and result.device.type == "cpu"
        return result


def move(module, mode, device, dtype):
    """Replace the tensors of a module by ones without values on a device."""
    known = {}
    for part in module.modules():
        for table in (part._parameters, part._buffers):
            for name, value in table.items():
                if value is not None and id(value) not in known:
                    kind = dtype if value.is_floating_point() else value.dtype
                    fake = mode.from_tensor(value.detach()).to(device, kind)
                    parameter = isinstance(value, nn.Parameter)
                    known[id(value)] = nn.Parameter(fake, value.requires_grad) if parameter else fake
                if value is not None:
                    table[name] = known[id(value)]
    return module


def replicas_of(learner, working):
    """Return the replicas of a learner whose working copy is given, as `Replicas` builds them."""
    made = Replicas.__new__(Replicas)
    made.learner, made.processes = learner, Processes()
    made.working = Working.__new__(Working)
    made.working.learner, made.working.copy, made.working.gradients = learner, working, {}
    made.working.pairs = list(zip(learner.parameters(), working.parameters(), strict=True))
    made.copy = working
    return made


def step(recipe, corpus, precision, device):
    """Take a step as the trainer does, and return how often something was copied to the host."""
    learner, _ = build_learner(recipe, corpus.tokenizer.size, None)
    curriculum = build_curriculum(recipe, corpus.tokenizer, learner)
    source, prepare = curriculum.source(corpus.train), curriculum.prepare()
    cursor = source.enter(source.start, len(source.stages) - 1)
    samples, _ = source.take(cursor, sequences=source.streams or 8)
    batch = collate([prepare(sample.at(0.5)) for sample in samples])
    machine = Machine(device, precision)
    fakes = FakeTensorMode(allow_non_fake_inputs=True)
    with fakes as mode, torch.autograd.set_multithreading_enabled(False), Watch() as watch:
        working = move(copy.deepcopy(learner), mode, device, machine.dtype) if precision == "bf16" else learner
        move(learner, mode, device, torch.float32)
        replicas = replicas_of(learner, working)
        replicas.copy.train()
        groups = learner.encoder.layer_groups
        optimizer = recipe.optimizer.build(learner, groups, tokens=4096.0, dtype=machine.dtype)
        there = batch.map(mode.from_tensor).to(device)
        table = CarryTable(source.streams)
        there = table.attach(there, replicas.copy)
        counts = batch.counts
        factors = {name: weight / max(1, counts[name]) for name, weight in learner.weights.items() if name in counts}
        watch.to_host.clear()
        loss = replicas.backward(there, factors, last=True)
        add_parts({}, loss)
        table.stage(there, loss.carry)
        table.commit()
        optimizer.gradients()
        optimizer._excess = torch.ones((), device=device)
        optimizer.step(1.0)
        replicas.refresh()
    return sum(watch.to_host.values())


def recipe_of(name):
    """Return a small recipe: "bert-mini", or "bert-mini:roformer" with another body."""
    recipe, _, kind = name.partition(":")
    return read_recipe(recipe, SMALL | ({"encoder.kind": kind} if kind else {}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    _setup_privateuseone_for_python_backend(NAME)
    torch.__future__.set_swap_module_params_on_conversion(False)
    torch.Tensor.unique = lambda tensor, *args, **options: tensor  # its length is a value, which these tensors lack
    exact = torch.float64 if "--fault" in sys.argv else torch.float32
    for module in (kernels, evaluate, bidirectional_lm):
        module.widest_float = lambda device: exact if device.type == NAME else torch.float64
    corpus = open_corpus(sys.argv[1])
    for name in filter(lambda word: not word.startswith("-"), sys.argv[2:]):
        for precision in ("float32", "bf16"):
            try:
                found = f"ok, {step(recipe_of(name), corpus, precision, torch.device(NAME, 0))} copies"
            except (DynamicOutputShapeException, DataDependentOutputException, RuntimeError, TypeError) as error:
                found = str(error).splitlines()[0]
            print(f"{name} {precision}: {found}", flush=True)
