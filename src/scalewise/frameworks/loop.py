"""The one training loop, for all frameworks.

    for each epoch:
        train       step, step, step …        waits for the device at the end
        checkpoint  every ``checkpoint_every`` steps, between two stretches of training
        validate    over all ranks
    save the weights, if the run sets ``save``

Each of these is recorded as a span: a name, a start and an end. A run without epochs, which has a
number of steps or samples, is one epoch here: its session repeats the data as often as needed.
A run with a checkpoint in its folder continues from that checkpoint.
"""

import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scalewise.frameworks import Session
from scalewise.frameworks.train_log import Log, say
from scalewise.probe import Laps, Probe
from scalewise.record.checkpoints import FOLDER, LEAVE
from scalewise.spec import RunSpec

POLL_SECONDS = 1.0
"""Approximate time between two checks for a requested stop."""
MAX_LOSSES = 1000
"""Maximum number of losses recorded per epoch; if there are more, every n-th is recorded."""


class Training:
    """The training that ``spec`` describes; ``log`` is None on all ranks but one."""

    def __init__(
        self, spec: RunSpec, session: Session, probe: Probe, folder: Path, log: Log | None
    ) -> None:
        self._spec, self._session, self._probe, self._log = spec, session, probe, log
        self._folder, self._checkpoints = folder, folder / FOLDER
        self._outline = session.outline
        self._total_steps = self._outline.steps * (self._outline.epochs or 1)
        self._steps_done = 0
        """Optimizer steps done, including those before a restart."""
        self._store_begun = False
        """Whether this attempt has begun to write a checkpoint; it may not be complete."""
        self._preemption: Preemption | None = None

    def run(self) -> int:
        """Train; return 0 at the normal end, or the steps done if it was asked to stop earlier."""
        outline = self._outline
        self._probe.note(outline=asdict(outline))
        self._restore()
        if self._spec.checkpoint_every and not self._probe.clock.simulated:
            self._preemption = Preemption(self._folder, self._session)
        # A resumed run may still have to validate an epoch whose steps are all done.
        for epoch in range(max(0, self._steps_done - 1) // outline.steps, outline.epochs or 1):
            seconds, samples = 0.0, 0
            while self._steps_done < (epoch + 1) * outline.steps:
                span, stop_requested = self._train_stretch(epoch)
                seconds, samples = seconds + span["end"] - span["start"], samples + span["samples"]
                if self._store_if_due(stop_requested):
                    return self._steps_done
            self._validate(epoch, samples, seconds)
        self._finish()
        return 0

    def _restore(self) -> None:
        """Continue from the newest complete checkpoint, if there is one."""
        session, probe = self._session, self._probe
        damaged: list[str] = []
        if self._spec.checkpoint_every or self._spec.resume:
            with probe.span("restore"):
                self._steps_done = session.restore(self._checkpoints, probe.tick)
            damaged = list(session.damaged())
        probe.steps_planned = self._total_steps - self._steps_done
        if self._steps_done:
            probe.note(resumed=self._steps_done)
        if damaged:
            probe.note(damaged=damaged)
        if self._log:
            self._log.print_outline(self._spec, session, self._steps_done)
            for sentence in damaged:
                say(f"damaged        {sentence}")

    def _train_stretch(self, epoch: int) -> tuple[Mapping[str, Any], bool]:
        """Train to the next checkpoint, stop or epoch's end; return span and ``stop_requested``."""
        session, probe = self._session, self._probe
        start, stop_requested, every = self._steps_done, False, self._spec.checkpoint_every
        end = (epoch + 1) * self._outline.steps
        if every:
            end = min(end, (start // every + 1) * every)
        with probe.span("train", epoch=epoch) as span:
            span["samples"] = 0
            probe.start()
            if start == epoch * self._outline.steps:
                session.begin(epoch)
            while self._steps_done < end and not stop_requested:
                samples = session.step(probe)
                if self._preemption:
                    stop_requested = self._preemption.after_step(probe)
                probe.step(samples)
                span["samples"] += samples
                self._steps_done += 1
            session.settle()
            probe.flush()
            span["taken"] = self._steps_done - start
        return span, stop_requested

    def _store_if_due(self, stop_requested: bool) -> bool:
        """Begin a checkpoint if due; return whether to stop now, with a complete checkpoint."""
        every = self._spec.checkpoint_every
        due = every and (self._steps_done % every == 0 or self._steps_done == self._total_steps)
        if due or stop_requested:
            with self._probe.span("checkpoint", step=self._steps_done):
                self._report_problem(self._session.store(self._checkpoints))
            self._store_begun = True
        if stop_requested and self._steps_done < self._total_steps:  # Else the run is complete.
            with self._probe.span("checkpoint"):
                problem = self._session.wait_stored()
            self._report_problem(problem)
            return not problem
        return False

    def _validate(self, epoch: int, samples: int, seconds: float) -> None:
        """Validate if it is due; record and print the epoch's losses and result."""
        quality = None
        with self._probe.span("validate", epoch=epoch) as span:
            losses = self._session.losses()
            if self._spec.validates(epoch):
                quality = self._session.validate()
        if not self._log:
            return
        line: dict[str, Any] = {"epoch": epoch}
        if losses:
            every = -(-len(losses) // MAX_LOSSES)  # Rounded up.
            line |= {"loss": sum(losses) / len(losses), "losses": losses[::every], "every": every}
        if quality:
            line["validation"] = asdict(quality)
        self._probe.note(**line)
        # A new outline means that ranks were lost: the epoch has no single throughput.
        has_all_ranks = self._session.outline is self._outline
        samples_and_seconds = (samples if has_all_ranks else 0, seconds)
        validation_seconds = span["end"] - span["start"]
        self._log.print_epoch(epoch, losses, quality, samples_and_seconds, validation_seconds)

    def _finish(self) -> None:
        """Complete the last checkpoint, and save the weights."""
        spec, session = self._spec, self._session
        span = self._probe.span("checkpoint") if spec.checkpoint_every or spec.save else None
        with span or nullcontext():
            if spec.checkpoint_every and not self._store_begun:
                # All steps were done in the run that this one resumes: store its state here too.
                self._report_problem(session.store(self._checkpoints), "training is done")
            self._report_problem(session.wait_stored(), "training is done")
            if spec.save:
                session.save(self._folder / "weights.pt")

    def _report_problem(self, problem: str, consequence: str = "training continues") -> None:
        """Log ``problem``, the reason why a checkpoint failed; it is empty if none failed."""
        if problem and self._log:
            say(f"{problem}; {consequence}")


class Preemption:
    """Makes all ranks stop after the same step; looks for a request about once a second.

    A launcher asks ranks to stop by creating the file ``LEAVE`` in the run's folder, for example
    shortly before a job's time limit.
    """

    def __init__(self, folder: Path, session: Session) -> None:
        self._path, self._session = folder / LEAVE, session
        self._steps_since_poll, self._last_poll = 0, time.monotonic()
        self._steps_between_polls = 1
        """The same on all ranks: polling is an exchange in which all take part."""

    def after_step(self, probe: Laps) -> bool:
        """Count a step, poll if it is time, and return whether all ranks stop now."""
        self._steps_since_poll += 1
        if self._steps_since_poll < self._steps_between_polls:
            return False
        seconds = time.monotonic() - self._last_poll
        steps = max(1, int(self._steps_since_poll * POLL_SECONDS / max(seconds, 1e-6)))
        # The fewest steps of any rank are minus the maximum of -steps: one exchange is enough.
        stop, minus_fewest = self._session.max_over_ranks([int(self._path.exists()), -steps])
        self._steps_between_polls = -minus_fewest
        self._steps_since_poll, self._last_poll = 0, time.monotonic()
        probe.lap("other")
        return bool(stop)
