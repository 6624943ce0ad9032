"""The training loop: it sees encoders and objectives only as a `Learner`, and data only as a `Source`.

A step takes samples, splits them into micro-batches that fit into memory, and minimizes the weighted sum of the
objectives' means over their targets, taken over all micro-batches of all processes. Dropout is seeded by (seed, step,
process, micro-batch), everything else by the samples' keys, so that only `Progress`, the weights and the optimizer's
moments have to be saved.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

import msgspec
import torch
from torch import Tensor

from unmask.data.batches.batch import Batch, Prepare, Sample, collate
from unmask.data.batches.rng import derive_seed
from unmask.data.batches.sources import Source
from unmask.data.batches.steps import report_lost_workers
from unmask.objectives.flops import cost_of_lengths, forward_flops
from unmask.objectives.learner import Learner, joint_gradients
from unmask.support.environment import SMALLER, check_memory, naming_shortage
from unmask.support.errors import UnmaskError, UserError
from unmask.support.messages import argument
from unmask.training.calibration import BUDGETS, FITTING, UNKNOWN_STEPS, Calibration, check_growth
from unmask.training.carry import CarryTable
from unmask.training.checkpoint import Progress, Saver, State, copied
from unmask.training.connection import LostProcessError
from unmask.training.evaluate import (
    NotFiniteError,
    Patience,
    add_parts,
    as_numbers,
    evaluate,
    is_finite,
    summarize,
)
from unmask.training.interrupt import Interrupt, Interrupted
from unmask.training.machine import KERNELS, Machine, keep_few_kernels
from unmask.training.precision import PROBE, LossScale, name_remedy
from unmask.training.processes import Processes, Sums
from unmask.training.replicas import Replicas, replicate
from unmask.training.restoring import read_newest, rescue
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.display import Display
from unmask.training.settings import EVALUATION_SHARE, FORWARDS_PER_STEP, TrainingSettings
from unmask.training.step_feed import StepFeed

SAVE_SECONDS = 300
"""Maximum time between checkpoints."""
SAVE_PAUSE = 30
"""Minimum time between checkpoints, which are normally written after evaluations."""
TOKEN_BYTES = 16
"""Memory that a token of a step takes at least, before any layer: its ids and positions, for samples and batches."""
MAX_SKIPPED = 10
"""Number of consecutive steps with a loss or gradient that is not finite after which a run stops."""

NORM = "gradient_norm"
CHECKED = 8
"""Number of training samples whose loss is computed at the end of a run that has no held-out ones."""


class Trainer:
    """Trainer of a learner on a source within a budget.

    Args:
        learner: encoder and objectives, on the machine's device.
        source: source of samples.
        prepare: applied to samples before collation (masking, counting targets); a pure function of each.
        heldout: prepared batches to evaluate on; may be empty.
        settings: batch, optimizer, schedule, budget, seed.
        run: directory that metrics and checkpoints are written to.
        machine: device, precision, workers.
        processes: the processes that train together; only the main process writes.
        display: shows the progress.
        evaluation_share: maximum time of evaluations, compared with that of the training.

    Attributes:
        finite: whether the losses of the present weights on the held-out samples are numbers; None: not evaluated.
    """

    def __init__(
        self,
        learner: Learner,
        source: Source,
        *,
        prepare: Prepare,
        heldout: Sequence[Batch],
        settings: TrainingSettings,
        run: RunDirectory,
        machine: Machine,
        display: Display,
        processes: Processes | None = None,
        evaluation_share: float = EVALUATION_SHARE,
    ) -> None:
        self.learner = learner
        self.source = source
        self.prepare = prepare
        self.heldout = heldout
        self.evaluation_share = evaluation_share
        self.settings = settings
        self.run = run
        self.machine = machine
        self.display = display
        self.processes = processes or Processes()
        longest = max(stage.length for stage in source.stages)
        tokens = settings.batch.tokens or (settings.batch.sequences or 0) * longest
        check_memory(TOKEN_BYTES * tokens, f"a step of {tokens:,} tokens", "lower batch.tokens or batch.sequences")
        if tokens > PROBE:
            keep_few_kernels(KERNELS[machine.precision])
        with naming_shortage("for the weights", SMALLER):
            self.replicas = self._distribute(source.streams)
        self.replicas.copy.encoder.recompute = settings.batch.recompute
        cost = None if learner.joint else cost_of_lengths(learner.encoder)
        self.feed = StepFeed(source, settings.batch, prepare, learner.plan, self.processes, machine.workers, cost)
        self.carry = CarryTable(source.streams, self.processes)
        self.saver = Saver(run.checkpoints)
        self.calibration = Calibration(source, settings, machine, self.processes)
        if self.calibration.compiles():
            display.say("compiling the layers, so the first steps take longer")
            self.replicas.copy.compile_layers()
        self.optimizer = settings.optimizer.build(
            self.replicas.trained,
            self.replicas.trained.encoder.layer_groups,
            tokens=self.calibration.plan.tokens,
            dtype=machine.dtype,
            shards=self.replicas.shards,
            copies=self.replicas.copies,
        )
        self.replicas.leave(self.optimizer.copies.values())
        self.patience = Patience(run, settings.budget.patience if heldout else None, self.processes)
        self.progress = Progress(cursor=source.start, threads=torch.get_num_threads())
        self.failures = 0
        self.finite: bool | None = None
        self.digest = 0
        self.scale = LossScale(machine.precision)
        self._sums = [(Sums(self.processes), Sums(self.processes)) for _ in source.stages]  # their names differ

    def complete(self, *, resume: bool) -> None:
        """Start or resume the run and train until it is finished; see `start`, `resume` and `train`.

        Raises:
            NotFiniteError: the weights at the end, or their loss, are not finite: they are no model.
        """
        with report_lost_workers(), closing(self.replicas), closing(self.feed), self.machine.in_training():
            (self.resume if resume else self.start)()
            self.train()
            if (best := self.patience.take_best(self.replicas)) is not None:
                self.finite = None
                self.display.say(f"the held-out loss was lowest at step {best}: using the weights of that step")
            if averaged := self.optimizer.take_means():
                self.replicas.refresh()
                self.display.say(f"using the mean of the weights after each of the last {averaged} steps")
                self._evaluate()
            self._check_finite()
            self.replicas.restore()

    def start(self) -> None:
        """Start the run: check that checkpoints can be written, convert the budget into steps, print the plan."""
        self.replicas.receive()
        self.progress = self.processes.broadcast(self.progress)
        self.save()
        self.progress.micro_tokens = self._fit()
        self._plan()
        self.save()
        self._evaluate()

    def resume(self) -> None:
        """Continue from the newest valid checkpoint; compute the total steps again if the budget has changed.

        Raises:
            UserError: there is no checkpoint, the budget is smaller than before, or it has patience only now.
        """
        adopted = self._restore_newest()
        changed, before = self.run.changed, self.progress.total
        if changed & FITTING or not self.progress.micro_tokens:
            self.progress.micro_tokens = self._fit()
        if changed & BUDGETS or not before:
            self._plan()
            check_growth(before, self.progress.total, self.run, self.display)
        if changed or not before or adopted:
            self.save()
            self.saver.wait()
        self.run.settle()
        self.run.cut_metrics(self.progress.step)
        self.patience.resume(self.replicas, self.progress.step)
        self.display.say(f"resumed at step {self.progress.step} of {self.progress.total}")
        if self.processes.is_main and (versions := self.run.read_provenance().other_versions()):
            self.display.say(f"by other versions, so that rounding may differ: {'; '.join(versions)}")
        if self._last_evaluated() < 0:
            self._evaluate()

    def train(self) -> None:
        """Take all remaining steps.

        Raises:
            Interrupted: a signal was received; the run is saved.
            NotFiniteError: the loss was not finite in too many consecutive steps.
            UnmaskError: a checkpoint could not be written.
        """
        progress, plan = self.progress, self.calibration.plan
        heldout = sum(len(batch.tokens.ids) for batch in self.heldout)
        closely = bool(self.patience.evaluations)

        def evaluation_steps() -> int:
            return plan.evaluate_every(progress.total, heldout, closely=closely, share=self.evaluation_share)

        every = evaluation_steps()
        saved = time.monotonic()
        peak = self.calibration.peak(self.run, progress.total)
        bar = self.display.bar(progress, peak, lambda step: plan.tokens_until(step, progress.total))

        def is_evaluated() -> bool:
            remaining = progress.total - progress.step
            return not remaining or (progress.step % every == 0 and (closely or remaining >= every))

        with Interrupt() as interrupt, bar as advance, self.saver, self._rescuing():
            if progress.step and is_evaluated() and self._last_evaluated() < progress.step:
                self._evaluate()  # another process was lost during this evaluation
            done = progress.step == progress.total or self.patience.is_over()
            while not done:
                metrics = self.step()
                self.run.log({"kind": "train", **metrics})
                if (total := self.calibration.replanned(progress, self.display)) != progress.total:
                    progress.total = total
                    self.feed.close()
                    every = evaluation_steps()
                advance(metrics)
                done = progress.step == progress.total
                evaluated = is_evaluated()
                if evaluated:
                    self._evaluate()
                    done = done or self.patience.is_over()
                late = time.monotonic() - saved > (SAVE_PAUSE if evaluated else SAVE_SECONDS)
                signal, due = self._exchange(interrupt.signal, late)
                if done or signal or due:
                    self.save()
                    saved = time.monotonic()
                if signal:
                    self.saver.wait()
                    self.processes.barrier()
                    raise Interrupted(progress.step, signal)

    def step(self) -> dict[str, float]:
        """Take one optimizer step and return its metrics."""
        progress = self.progress
        self.finite = None
        start = time.perf_counter()
        step = self.feed.next(progress)
        self.digest = step.digest
        weights = {**self.learner.weights, **self.source.stages[step.stage].weights}
        counted, summed = self._sums[step.stage]
        counts = counted.all_reduce(step.counts)
        flops = FORWARDS_PER_STEP * sum(forward_flops(self.learner, batch) for batch in step.micro_batches)
        scale = self.scale.of(progress)
        parts = self._backward(step.micro_batches, counts, weights, scale=scale)
        self.replicas.reduce()
        numbers = as_numbers({**parts, NORM: self.optimizer.clip(scale)})
        norm = numbers.pop(NORM)
        sums = summed.all_reduce({**numbers, "flops": flops})
        metrics = summarize(sums, counts, weights)
        factor = self.settings.schedule.factor(progress.step, progress.total or UNKNOWN_STEPS)
        if math.isfinite(norm) and is_finite(metrics):
            rate = self.optimizer.step(factor)
            self._average()
            self.replicas.refresh(stepped=True)
            self.carry.commit()
            self.failures = 0
            self.scale.update(progress, overflowed=False)
        else:
            rate = 0.0
            self._skip(overflowed=is_finite(metrics))
        seconds = time.perf_counter() - start
        progress.advance(step.tokens, step.cursor, seconds)
        return {
            "step": progress.step,
            "tokens": progress.tokens,
            "seconds": round(progress.seconds, 3),
            "epochs": round(self.source.epochs(step.cursor), 4),
            **metrics,
            "learning_rate": rate,
            NORM: norm,
            **({"loss_scale": scale} if self.scale.active else {}),
            "tokens_per_second": round(step.tokens / seconds, 1),
            "flops_per_second": round(sums["flops"] / seconds),
        }

    def save(self) -> None:
        """Start to write a checkpoint in the background; `saver.wait` waits for it. All processes must call it."""
        model, carry, shards = self.replicas.state_dict(), self.carry.gather(), self.replicas.shards
        size = self.processes.size
        self.run.save_usage(processes=size, gpus=0 if self.machine.device.type == "cpu" else size)
        if self.processes.is_main or shards is not None:
            self.saver.save(State(model, self.optimizer.state(), self.progress, carry, self.patience.best), shards)

    def _backward(
        self,
        micro_batches: Sequence[Batch],
        counts: Mapping[str, float],
        weights: Mapping[str, float],
        *,
        last: bool = True,
        scale: float = 1.0,
    ) -> dict[str, Tensor]:
        """Compute the gradient of this process's share of a step (`last`) or of a trial; return the parts' sums.

        The gradient is that of the loss multiplied by `scale`.
        """
        learner = self.replicas.copy
        if not all(module.training for module in learner.modules()):  # setting all takes most of a millisecond
            learner.train()
        factors = {name: scale * weight / max(1, counts[name]) for name, weight in weights.items() if name in counts}
        spare = self.replicas.rounds(len(micro_batches)) - len(micro_batches)
        sums: dict[str, Tensor] = {}
        joint = None

        def seed_dropout(index: int) -> None:
            step, rank = self.progress.step, self.processes.rank
            self.machine.seed(derive_seed(self.settings.seed, "dropout", step, rank, index))

        if len(micro_batches) > 1 and any(part.joint for part in learner.active(micro_batches[0]).values()):
            with name_remedy(self.progress.micro_tokens):
                moved = [micro_batch.to(self.machine.device) for micro_batch in micro_batches]
                joint = joint_gradients(learner, moved, seed_dropout)
            add_parts(sums, joint.loss)
        for index, micro_batch in enumerate(micro_batches):
            seed_dropout(index)
            with name_remedy(self.progress.micro_tokens):
                batch = self.carry.attach(micro_batch.to(self.machine.device), self.replicas.copy)
                batch = batch if joint is None else joint.attach(batch, index)
                loss = self.replicas.backward(batch, factors, last=last and index == len(micro_batches) - 1)
            self.carry.stage(batch, loss.carry)
            if joint is None:
                add_parts(sums, loss)
        for _ in range(spare):
            with name_remedy(self.progress.micro_tokens):
                shortest = min(micro_batches, key=lambda batch: len(batch.tokens.ids)).to(self.machine.device)
                self.replicas.backward(shortest, dict.fromkeys(factors, 0.0), last=True)
        return sums

    def _average(self) -> None:
        """Include the weights of this step in their means, if it is one of the last ones of the budget."""
        progress, share = self.progress, self.settings.optimizer.average
        if share and progress.step >= (1 - share) * (progress.total or UNKNOWN_STEPS):
            self.optimizer.average()
        else:  # of a smaller budget
            self.optimizer.forget_means()

    def _skip(self, *, overflowed: bool) -> None:
        """Skip a step. Its gradient `overflowed` if the loss is finite: in fp16, a smaller scale may help."""
        self.optimizer.zero_grad()
        self.carry.drop()
        if overflowed and self.scale.update(self.progress, overflowed=True):
            return
        self.progress.skipped += 1
        self.failures += 1
        self.replicas.copy.check()
        self.display.say(f"step {self.progress.step}: the loss or gradient is not finite; the step is skipped")
        if self.failures == MAX_SKIPPED:
            raise NotFiniteError(
                f"the loss or gradient was not finite in {MAX_SKIPPED} consecutive steps; earlier checkpoints are "
                f"intact: lower optimizer.learning_rate, or train with {argument('precision', 'float32')}"
            )

    def _evaluate(self) -> None:
        """Evaluate, show and log; without any step there is no course of the training to show."""
        if self.heldout and self.progress.total:
            metrics = self._evaluated(self.heldout)
            self.finite = is_finite(metrics)
            self.run.log({"kind": "heldout", "step": self.progress.step, "tokens": self.progress.tokens, **metrics})
            self.display.show_evaluation(self.progress, metrics)
            self.patience.update(self.replicas)

    def _check_finite(self) -> None:
        """Check that the weights, and their loss on held-out samples or else on the first ones, are numbers.

        Raises:
            NotFiniteError: they are not.
        """
        if self.finite is None:  # the weights were not evaluated
            batches = self.heldout[:1]
            if not batches:
                limits = self.settings.batch
                samples, _ = self.source.take(self.source.start, tokens=limits.tokens, sequences=limits.sequences)
                batches = [collate(self.prepare(samples[:CHECKED]))]
            self.finite = is_finite(self._evaluated(batches))
        weights = self.replicas.state_dict()  # what this process has of them
        finite = self.finite and all(bool(one.isfinite().all()) for one in weights.values())
        if self.processes.all_reduce_max([not finite])[0]:
            raise NotFiniteError(
                "the loss or the weights are not finite at the end, so no model is written; the run and its log are "
                "kept: lower optimizer.learning_rate, and start again in an empty directory"
            )

    def _evaluated(self, batches: Sequence[Batch]) -> dict[str, float]:
        """Return what `evaluate` does for the current weights."""
        sharded = self.replicas.shards is not None
        return evaluate(self.replicas.copy, batches, self.machine, self.processes, sharded=sharded)

    def _distribute(self, streams: int) -> Replicas:
        """Return the replicas of the learner; the weights of a single process are not divided."""
        how, learner = self.settings.batch.distribute, self.learner
        if how == "replicate" or self.processes.size == 1:
            return replicate(learner, self.machine, self.processes)
        from unmask.training.sharded_replicas import shard  # imports a second's worth of torch

        return shard(learner, self.machine, self.processes, how, streams)

    def _restore_newest(self) -> bool:
        """Restore the newest valid checkpoint, and the number of threads that the run was started with.

        Returns:
            Whether another process than the main one had it.
        """
        path, state, source = read_newest(self.run, self.processes, self.display, self.replicas.part)
        try:
            self.replicas.load_state_dict(state.model)
        except RuntimeError as error:  # other names or shapes
            raise UserError(
                "the weights are those of another version of this program",
                file=path,
                remedy="start the run again in an empty directory",
            ) from error
        self.optimizer.load(state.optimizer)
        self.progress = state.progress
        self.carry.load(state.carry, self.machine.device)
        self.patience.best = state.best
        self.failures = 0
        self.feed.close()
        if self.progress.threads != torch.get_num_threads():
            self.display.say(f"computing with {self.progress.threads} threads, as at the start of the run")
            torch.set_num_threads(self.progress.threads)
        return source > 0

    def _last_evaluated(self) -> int:
        """Return the last step that was evaluated on held-out samples; -1 if there is none."""
        lines = self.run.read_metrics("heldout") if self.processes.is_main else []
        return self.processes.broadcast(int(lines[-1]["step"]) if lines else -1)

    def _exchange(self, signal: int, late: bool) -> tuple[int, bool]:
        """Return the signal that a process has received, or 0, and whether one of them is late with a checkpoint.

        Raises:
            UnmaskError: the processes are at different positions in the order of samples.
        """
        position = zlib.crc32(msgspec.json.encode([self.progress.step, self.progress.cursor, self.digest]))
        received, due, last, first = self.processes.all_reduce_max([signal, late, position, -position])
        if last != -first:
            raise UnmaskError(f"the processes have read different samples in step {self.progress.step}")
        return int(received), bool(due)

    @contextmanager
    def _rescuing(self) -> Iterator[None]:
        """Save the last whole step when another process is lost.

        Raises:
            LostProcessError: the same with what was saved.
        """
        try:
            yield
        except LostProcessError as error:
            model = self.replicas.learner.state_dict()
            state = State(model, self.optimizer.state(), self.progress, best=self.patience.best)
            carries = bool(self.carry.rows) or self.replicas.shards is not None
            saved = rescue(self.run, self.saver, state, self.machine, self.processes, error.missing, carries=carries)
            raise LostProcessError(f"{error.message}; {saved}", error.missing) from error

    def _fit(self) -> int:
        """Return the number of tokens of a micro-batch; see `Calibration.micro_tokens`."""

        def learn(micro_batch: list[Sample]) -> None:
            batch = self.learner.plan(collate(self.prepare(micro_batch)))
            self._backward([batch], batch.counts, self.learner.weights, last=False)
            self.replicas.drop()
            self.carry.drop()

        self.saver.wait()  # its copies of the weights would be attributed to the micro-batch
        parameters = sum(value.numel() for value in self.replicas.parameters().values())
        return self.calibration.micro_tokens(learn, parameters, joint=self.learner.joint)

    def _plan(self) -> None:
        """Convert the budget into steps and print the plan."""
        planned = self.calibration.total(self.progress, self._seconds_per_step, self.display)
        self.progress.total, self.progress.timing = planned
        self.feed.close()

    def _seconds_per_step(self, stage: int = 0) -> float:
        """Time actual steps of a stage, and put back copies of all that they change."""
        model, optimizer = copied(self.replicas.state_dict()), copied(self.optimizer.state())
        carry, progress = copied(self.carry.rows), msgspec.structs.replace(self.progress)
        self.progress.total = 0  # unknown: the stage is then the one that the cursor is in
        self.progress.cursor = self.source.enter(self.progress.cursor, stage)
        self.feed.close()
        seconds = self.calibration.time(self.step)
        self.replicas.load_state_dict(model)
        self.optimizer.load(optimizer)
        self.carry.rows = {name: rows.to(self.machine.device) for name, rows in carry.items()}
        self.progress, self.failures = progress, 0
        return seconds
