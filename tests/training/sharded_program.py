"""Program that trains in several processes, each case from the start or from a checkpoint: `sharded_program.py OUT`.

Standard input has a case per line, as JSON: its `name`, which is the folder in OUT, the `recipe`, and the `corpus`; and
maybe `local`, the number of processes on each supposed host, the `precision`, `resume`, `stop`, the step after which
the run is saved and left, `killed`, that in which all but the main process are killed, and `divisor`, a number by which
gradients are wrongly divided. Of a run that is refused, the error is written. The main process writes metrics and
checkpoints, and at the end of a run the weights. Each process also writes the bytes of its weights and moments and its
peak memory, and at last the names of its threads.
"""

import json
import os
import signal
import sys
from pathlib import Path

import msgspec
import safetensors.torch
import torch
from remembering import thread_names
from torch.distributed.fsdp import FSDPModule

from unmask.data.corpus.corpus import open_corpus
from unmask.recipes.recipe import Recipe
from unmask.support.errors import UserError
from unmask.support.settings import write
from unmask.training import settings
from unmask.training.interrupt import Interrupted
from unmask.training.loop import Trainer
from unmask.training.machine import Machine
from unmask.training.processes import Processes
from unmask.training.restoring import open_run
from unmask.training.runs.display import Display
from unmask.workflows.pretraining.checks import build_curriculum
from unmask.workflows.pretraining.start import build_learner


def held(trainer):
    """Return the bytes of the weights and moments that a process has."""
    parts = [*trainer.replicas.state_dict().values(), *trainer.optimizer.state().values()]
    return sum(part.numel() * part.element_size() for part in parts)


def stop_after(trainer, step, number):
    """Let this process receive a signal in a step; after SIGTERM the run is saved."""
    take = trainer.step

    def stopping():
        metrics = take()
        if trainer.progress.step == step:
            os.kill(os.getpid(), number)
        return metrics

    trainer.step = stopping


def train(out, case, processes):
    """Train a case."""
    os.environ["LOCAL_WORLD_SIZE"] = str(case.get("local", processes.size))
    recipe = msgspec.toml.decode(case["recipe"], type=Recipe)
    corpus = open_corpus(case["corpus"])
    machine = Machine(torch.device("cpu"), case.get("precision", "float32"))
    learner, _ = build_learner(recipe, corpus.tokenizer.size, None)
    if processes.rank:  # whose weights do not count
        with torch.no_grad():
            learner.encoder.words.weight.add_(1)
    curriculum = build_curriculum(recipe, corpus.tokenizer, learner)
    resume = case.get("resume", False)
    with open_run(out / case["name"], write(recipe), {}, machine, processes, resume=resume) as run:
        trainer = Trainer(
            learner,
            curriculum.source(corpus.train),
            prepare=curriculum.prepare(),
            heldout=curriculum.heldout(corpus.heldout, 200),
            settings=recipe,
            run=run,
            machine=machine,
            display=Display(quiet=True),
            processes=processes,
        )
        if "divisor" in case:
            for module in trainer.replicas.copy.modules():
                if isinstance(module, FSDPModule):
                    module.set_gradient_divide_factor(case["divisor"])
        if "stop" in case:
            stop_after(trainer, case["stop"], signal.SIGTERM)
        if "killed" in case and processes.rank:
            stop_after(trainer, case["killed"], signal.SIGKILL)
        try:
            trainer.complete(resume=resume)
        except Interrupted:
            return
    (out / f"{case['name']}-{processes.rank}.json").write_text(json.dumps([held(trainer), machine.memory()]))
    if processes.is_main:
        safetensors.torch.save_file(learner.state_dict(), out / f"{case['name']}.safetensors")


def main(out):
    """Train all cases."""
    with Processes.launched() as processes:
        for line in sys.stdin:
            case = json.loads(line)
            try:
                train(out, case, processes)
            except UserError as error:
                (out / f"{case['name']}-{processes.rank}.txt").write_text(str(error))
    (out / f"threads-{processes.rank}.json").write_text(json.dumps(thread_names()))


if __name__ == "__main__":
    settings.COUNTED_STEPS = 2
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
