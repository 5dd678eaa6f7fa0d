"""The one training loop, for all frameworks.

    for each epoch:
        train       step, step, step …      one span, synchronized at its end
        checkpoint  every so many steps     a span between two of training
        validate    over all ranks          a span
    save the weights, if the run says so

A run with a budget of steps is one long epoch: the session starts new passes over the data by
itself. A run with a checkpoint in its folder continues from there.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scalewise.frameworks import Quality, Session
from scalewise.frameworks.preemption import Preemption
from scalewise.probe import Probe
from scalewise.record.checkpoints import FOLDER
from scalewise.spec import RunSpec

MAX_LOSSES = 1000
"""Losses recorded per epoch; of more, every n-th is recorded."""


def train(spec: RunSpec, session: Session, probe: Probe, folder: Path, log: "Log | None") -> int:
    """Train as ``spec`` says; only one rank has a ``log``.

    Return 0, or the number of steps after which a stop was requested: then there is a checkpoint.
    """
    return _Training(spec, session, probe, folder, log).run()


class _Training:
    """The state of the loop."""

    def __init__(
        self, spec: RunSpec, session: Session, probe: Probe, folder: Path, log: "Log | None"
    ) -> None:
        self._spec, self._session, self._probe, self._log = spec, session, probe, log
        self._folder, self._checkpoints = folder, folder / FOLDER
        self._outline = session.outline
        self._total = self._outline.steps * (self._outline.epochs or 1)
        self._done = 0
        """Optimizer steps done, those before a restart included."""
        self._stored = False
        """Whether this attempt has begun to write a checkpoint."""
        self._preemption = Preemption(folder, session) if spec.checkpoint_every else None

    def run(self) -> int:
        outline = self._outline
        self._probe.note(outline=asdict(outline))
        self._restore()
        # An epoch whose last step is done may still lack its validation.
        for epoch in range(max(0, self._done - 1) // outline.steps, outline.epochs or 1):
            seconds, samples = 0.0, 0
            while self._done < (epoch + 1) * outline.steps:
                span, stop_requested = self._train_stretch(epoch)
                seconds, samples = seconds + _duration(span), samples + span["samples"]
                if self._store_if_due(stop_requested):
                    return self._done
            self._validate(epoch, samples, seconds)
        self._finish()
        return 0

    def _restore(self) -> None:
        """Continue from the newest complete checkpoint, if there is one."""
        session, probe = self._session, self._probe
        damaged: list[str] = []
        if self._spec.checkpoint_every or self._spec.resume:
            with probe.span("restore"):
                self._done = session.restore(self._checkpoints, probe.tick)
            damaged = list(session.damaged())
        probe.steps_planned = self._total - self._done
        if self._done:
            probe.note(resumed=self._done)
        if damaged:
            probe.note(damaged=damaged)
        if self._log:
            self._log.outline(self._spec, session, self._done)
            self._log.damaged(damaged)

    def _train_stretch(self, epoch: int) -> tuple[Mapping[str, Any], bool]:
        """Train until the epoch ends, a checkpoint is due, or a stop is requested.

        Return the span, and whether a stop was requested.
        """
        first = epoch * self._outline.steps
        stop = _next_stop(self._done, first + self._outline.steps, self._spec.checkpoint_every)
        with self._probe.span("train", epoch=epoch) as span:
            start_epoch = epoch if self._done == first else None
            stretch = Stretch(stop - self._done, start_epoch, self._preemption)
            span["samples"] = stretch.run(self._session, self._probe)
            span["taken"] = stretch.steps_done
        self._done += stretch.steps_done
        return span, stretch.stop_requested

    def _store_if_due(self, stop_requested: bool) -> bool:
        """Begin a checkpoint if one is due; return whether to stop now, with it complete."""
        every = self._spec.checkpoint_every
        due = every and (self._done % every == 0 or self._done == self._total)
        if due or stop_requested:
            with self._probe.span("checkpoint", step=self._done):
                self._report(self._session.store(self._checkpoints))
            self._stored = True
        if stop_requested and self._done < self._total:
            with self._probe.span("checkpoint"):
                problem = self._session.stored()
            self._report(problem)
            return not problem
        return False

    def _validate(self, epoch: int, samples: int, seconds: float) -> None:
        quality = None
        with self._probe.span("validate", epoch=epoch) as span:
            losses = self._session.losses()
            if self._spec.validates(epoch):
                quality = self._session.validate()
        if self._log:
            self._probe.note(**_epoch_line(epoch, losses, quality))
            # A new outline means that ranks were lost: the epoch has no single throughput.
            same = self._session.outline is self._outline
            rate = (samples if same else 0, seconds)
            self._log.epoch(epoch, losses, quality, rate, _duration(span))

    def _finish(self) -> None:
        """Complete the last checkpoint, and save the weights."""
        spec, session = self._spec, self._session
        span = self._probe.span("checkpoint") if spec.checkpoint_every or spec.save else None
        with span or nullcontext():
            if spec.checkpoint_every and not self._stored:
                # All steps were done in the run that this one resumes: store its state here too.
                self._report(session.store(self._checkpoints))
            self._report(session.stored())
            if spec.save:
                session.save(self._folder / "weights.pt")

    def _report(self, problem: str) -> None:
        """Log a failed checkpoint: the previous one is complete, and training continues."""
        if problem and self._log:
            say(f"{problem}; training continues")


def _next_stop(done: int, end: int, every: int | None) -> int:
    """Return the step of the next pause on the way from ``done`` to ``end`` steps.

    >>> _next_stop(5, 22, 10), _next_stop(10, 22, 10), _next_stop(20, 22, 10)
    (10, 20, 22)
    """
    return min(end, (done // every + 1) * every) if every else end


@dataclass(slots=True)
class Stretch:
    """Consecutive steps without a pause."""

    steps: int
    epoch: int | None = None
    """The epoch that starts with the first step; None in the middle of one."""
    preemption: Preemption | None = None
    steps_done: int = 0
    stop_requested: bool = False

    def run(self, session: Session, probe: Probe) -> int:
        """Do the steps; return the samples this rank trained on."""
        samples = 0
        probe.start()
        if self.epoch is not None:
            session.begin(self.epoch)
        while self.steps_done < self.steps and not self.stop_requested:
            step_samples = session.step(probe)
            if self.preemption:
                self.stop_requested = self.preemption.after_step(probe)
            probe.step(step_samples)
            samples += step_samples
            self.steps_done += 1
        session.settle()
        probe.flush()
        return samples


def _duration(span: Mapping[str, Any]) -> float:
    return float(span["end"] - span["start"])


def _epoch_line(epoch: int, losses: list[float], quality: Quality | None) -> dict[str, object]:
    line: dict[str, object] = {"epoch": epoch}
    if losses:
        every = -(-len(losses) // MAX_LOSSES)
        line |= {"loss": sum(losses) / len(losses), "losses": losses[::every], "every": every}
    if quality:
        line["validation"] = {
            "accuracy": quality.accuracy,
            "loss": quality.loss,
            "samples": quality.samples,
        }
    return line


class Log:
    """The lines that rank 0 prints to ``log.txt``."""

    def __init__(self, probe: Probe, launched: float) -> None:
        self._probe = probe
        self._launched = launched
        self._epochs: list[tuple[int, float]] = []
        """This rank's samples and seconds in each epoch."""
        self._ratio = 1.0
        """Samples of all ranks per sample of this rank."""
        self._unit = "samples"

    def outline(self, spec: RunSpec, session: Session, done: int) -> None:
        """Print the configuration and the size of the run."""
        outline = session.outline
        self._unit = outline.unit
        self._ratio = min(spec.replicas, spec.ranks)
        if outline.together and outline.seen:
            self._ratio = outline.together / outline.seen
        fields = {key: value for key, value in spec.to_dict().items() if value not in (None, {})}
        say("configuration  " + "  ".join(f"{key}={value}" for key, value in fields.items()))
        if outline.parameters is not None:
            say(f"parameters     {outline.parameters:,}")
        if outline.flops is not None:
            say(f"operations     {outline.flops:,} per sample, forward and backward")
        elif outline.uncounted:
            say(f"operations     not counted: {outline.uncounted}")
        say(
            f"data           {outline.samples:,} {self._unit} to train on, "
            f"{outline.validation:,} to validate on"
        )
        period = "per epoch" if outline.epochs else "in total"
        say(
            f"per rank       {outline.seen:,} {self._unit} and "
            f"{outline.steps * spec.accumulate:,} batches {period}"
        )
        say(f"global batch   {spec.global_batch:,} {self._unit}")
        if outline.rates:
            rule = f" ({spec.lr_rule} rule: x {spec.lr_factor:g})" if spec.base_batch else ""
            say(f"learning rate  {outline.rates}{rule}")
        if done:
            say(f"resumed        from the checkpoint after step {done:,}")

    def damaged(self, sentences: Sequence[str]) -> None:
        """Print a line for each damaged checkpoint that was skipped."""
        for sentence in sentences:
            say(f"damaged        {sentence}")

    def epoch(
        self,
        epoch: int,
        losses: list[float],
        quality: Quality | None,
        trained: tuple[int, float],
        validation_seconds: float,
    ) -> None:
        """Print the result of an epoch; ``trained`` is this rank's samples and seconds."""
        samples, seconds = trained
        parts = [f"epoch {epoch + 1}"]
        if samples:
            self._epochs.append(trained)
            parts += [f"{samples * self._ratio / seconds:,.1f} {self._unit}/s", f"{seconds:.3f} s"]
        if losses:
            parts.append(f"loss {sum(losses) / len(losses):.4f}")
        if quality:
            parts.append(f"validation accuracy {quality.accuracy:.4f}, loss {quality.loss:.4f}")
            parts.append(f"{quality.samples / validation_seconds:,.1f} {self._unit}/s")
        say("  ".join(parts))

    def end(self, memory: int | None, exchanged: Mapping[str, Any], stopped: int) -> None:
        """Print a summary; ``stopped`` is the last step if a stop was requested, else 0."""
        if stopped:
            say(f"told to stop   stopped after step {stopped:,}, with a checkpoint")
        if steady := self._epochs[1:] or self._epochs:
            samples, seconds = map(sum, zip(*steady))
            scope = "without the first epoch" if len(self._epochs) > 1 else "first epoch included"
            say(f"average        {self._ratio * samples / seconds:,.1f} {self._unit}/s, {scope}")
        say(f"complete time  {self._probe.wall() - self._launched:.2f} s so far, shutdown to come")
        if memory is not None:
            say(f"peak memory    {memory / 2**20:,.1f} MiB on this rank")
        if compression := exchanged.get("compression"):
            say(f"compression    {_describe_compression(compression)}")
        if noise := exchanged.get("noise"):
            say(f"gradient noise {_describe_noise(**noise)}")


def _describe_compression(record: Mapping[str, Any]) -> str:
    """Describe the gradient compression of a run.

    >>> _describe_compression({"kind": "powersgd rank 1", "sent": 3, "whole": 100, "error": 0.42})
    'powersgd rank 1: 0.03 of the bytes, error 0.42 of the gradient'
    """
    share, error = record["sent"] / record["whole"], record["error"]
    error_text = "unknown" if error is None else f"{error:.2g} of the gradient"
    return f"{record['kind']}: {share:.2g} of the bytes, error {error_text}"


def _describe_noise(
    scale: float | None, low: float | None, high: float | None, estimates: int
) -> str:
    """Describe the gradient noise scale.

    >>> _describe_noise(1234.5, 987.0, 1543.2, 36)
    '1,234 samples (987 to 1,543), 36 estimates'
    """
    if scale is None:
        return f"unknown: {estimates} estimates are too few, or too rough"
    return f"{scale:,.0f} samples ({low:,.0f} to {high:,.0f}), {estimates} estimates"


def say(line: str) -> None:
    """Print one line of the log at once."""
    print(line, flush=True)
