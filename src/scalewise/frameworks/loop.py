"""The one training loop. Engines plug into it; none brings its own.

    for each epoch:
        train       step, step, step …      one span, settled at both edges
        checkpoint  every so many steps     another, between two of training
        validate    over all ranks          another
    save, if asked for

A run with a budget of steps is one long epoch: the session starts new passes
over the data by itself. A run that has a checkpoint goes on from there.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scalewise.frameworks import Quality, Session
from scalewise.frameworks.preemption import Leaving
from scalewise.probe import Probe
from scalewise.record.checkpoints import FOLDER
from scalewise.spec import RunSpec

LOSSES = 1000
"""Losses kept per epoch at most; more are thinned evenly."""


def train(spec: RunSpec, session: Session, probe: Probe, folder: Path, log: "Log | None") -> int:
    """Train as ``spec`` asks; ``log`` is for the one rank that speaks.

    Return 0, or after how many steps the job was told to go: there is a checkpoint then.
    """
    outline, home = session.outline, folder / FOLDER
    probe.note(outline=asdict(outline))
    total = outline.steps * (outline.epochs or 1)
    done, damaged = 0, []
    if spec.checkpoint_every or spec.resume:
        with probe.span("restore"):
            done = session.restore(home, probe.tick)
        damaged = list(session.damaged())
    probe.steps_planned = total - done
    if done:
        probe.note(resumed=done)
    if damaged:
        probe.note(damaged=damaged)
    if log:
        log.outline(spec, session, done)
        log.damaged(damaged)
    kept = 0
    leaving = Leaving(folder, session) if spec.checkpoint_every else None
    for epoch in range(max(0, done - 1) // outline.steps, outline.epochs or 1):
        spent, samples = 0.0, 0
        end = (epoch + 1) * outline.steps
        while done < end:
            stop = _next_stop(done, end, spec.checkpoint_every)
            with probe.span("train", epoch=epoch) as trained:
                begin = epoch if done == epoch * outline.steps else None
                steps = Stretch(stop - done, begin, leaving)
                trained["samples"] = steps.take(session, probe)
                trained["taken"] = steps.taken
            spent, samples = spent + _length(trained), samples + trained["samples"]
            done += steps.taken
            due = spec.checkpoint_every and (done % spec.checkpoint_every == 0 or done == total)
            if due or steps.told_to_go:
                with probe.span("checkpoint", step=done):
                    _say_problem(session.store(home), log)
                kept = done
            if steps.told_to_go and done < total:
                with probe.span("checkpoint"):
                    problem = session.stored()
                if not problem:
                    return done
                _say_problem(problem, log)
        quality = None
        with probe.span("validate", epoch=epoch) as validated:
            losses = session.losses()
            if spec.validates(epoch):
                quality = session.validate()
        if log:
            probe.note(**_epoch(epoch, losses, quality))
            same = session.outline is outline  # Else ranks were lost, and there is no one rate.
            rate = (samples if same else 0, spent)
            log.epoch(epoch, losses, quality, rate, _length(validated))
    with probe.span("checkpoint") if spec.checkpoint_every or spec.save else nullcontext():
        if spec.checkpoint_every and not kept:
            _say_problem(session.store(home), log)  # Of another run, with nothing left to do.
        _say_problem(session.stored(), log)
        if spec.save:
            session.save(folder / "weights.pt")
    return 0


def _next_stop(done: int, end: int, every: int | None) -> int:
    """Return where training pauses next on the way from ``done`` to ``end`` steps.

    >>> _next_stop(5, 22, 10), _next_stop(10, 22, 10), _next_stop(20, 22, 10)
    (10, 20, 22)
    """
    return min(end, (done // every + 1) * every) if every else end


@dataclass(slots=True)
class Stretch:
    """Some steps in a row."""

    count: int
    epoch: int | None = None
    """Of a new epoch, if one is named."""
    leaving: Leaving | None = None
    """Who knows whether the job is told to go meanwhile."""
    taken: int = 0
    told_to_go: bool = False

    def take(self, session: Session, probe: Probe) -> int:
        """Do the steps; return the samples this rank trained on."""
        samples = 0
        probe.start()
        if self.epoch is not None:
            session.begin(self.epoch)
        while self.taken < self.count and not self.told_to_go:
            done = session.step(probe)
            if self.leaving:
                self.told_to_go = self.leaving.after_step(probe)
            probe.step(done)
            samples += done
            self.taken += 1
        session.settle()
        probe.flush()
        return samples


def _say_problem(problem: str, log: "Log | None") -> None:
    """Tell of a checkpoint that failed: the one before is whole, and training goes on."""
    if problem and log:
        say(f"{problem}; training goes on")


def _length(span: Mapping[str, Any]) -> float:
    return float(span["end"] - span["start"])


def _epoch(epoch: int, losses: list[float], quality: Quality | None) -> dict[str, object]:
    line: dict[str, object] = {"epoch": epoch}
    if losses:
        thin = -(-len(losses) // LOSSES)
        line |= {"loss": sum(losses) / len(losses), "losses": losses[::thin], "every": thin}
    if quality:
        line["validation"] = {
            "accuracy": quality.accuracy,
            "loss": quality.loss,
            "samples": quality.samples,
        }
    return line


class Log:
    """What rank 0 tells the reader of ``log.txt``, in plain lines."""

    def __init__(self, probe: Probe, launched: float) -> None:
        self._probe = probe
        self._launched = launched
        self._trained: list[tuple[int, float]] = []
        """Samples and seconds of each epoch."""
        self._ratio = 1.0
        """Samples of all ranks for each of this one's."""
        self._unit = "samples"

    def outline(self, spec: RunSpec, session: Session, done: int) -> None:
        """Tell what is about to happen."""
        outline = session.outline
        self._unit = outline.unit
        self._ratio = min(spec.replicas, spec.ranks)
        if outline.together and outline.seen:
            self._ratio = outline.together / outline.seen
        told = {key: value for key, value in spec.to_dict().items() if value not in (None, {})}
        say("configuration  " + "  ".join(f"{key}={value}" for key, value in told.items()))
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
        each = "per epoch" if outline.epochs else "in total"
        say(
            f"per rank       {outline.seen:,} {self._unit} and "
            f"{outline.steps * spec.accumulate:,} batches {each}"
        )
        say(f"global batch   {spec.global_batch:,} {self._unit}")
        if outline.rates:
            rule = f" ({spec.lr_rule} rule: x {spec.lr_factor:g})" if spec.base_batch else ""
            say(f"learning rate  {outline.rates}{rule}")
        if done:
            say(f"goes on        from the checkpoint after step {done:,}")

    def damaged(self, sentences: Sequence[str]) -> None:
        """Tell of damaged checkpoints that were passed over."""
        for sentence in sentences:
            say(f"damaged        {sentence}")

    def epoch(
        self,
        epoch: int,
        losses: list[float],
        quality: Quality | None,
        trained: tuple[int, float],
        checked: float,
    ) -> None:
        """Tell how an epoch went; ``trained`` are this rank's samples, and seconds."""
        samples, spent = trained
        parts = [f"epoch {epoch + 1}"]
        if samples:
            self._trained.append(trained)
            parts += [f"{samples * self._ratio / spent:,.1f} {self._unit}/s", f"{spent:.3f} s"]
        if losses:
            parts.append(f"loss {sum(losses) / len(losses):.4f}")
        if quality:
            parts.append(f"validation accuracy {quality.accuracy:.4f}, loss {quality.loss:.4f}")
            parts.append(f"{quality.samples / checked:,.1f} {self._unit}/s")
        say("  ".join(parts))

    def end(self, memory: int | None, exchanged: Mapping[str, Any], left: int) -> None:
        """Tell the sum of it."""
        if left:
            say(f"told to go     left after step {left:,}, with a checkpoint")
        if steady := self._trained[1:] or self._trained:
            rate = self._ratio * sum(each for each, _ in steady) / sum(each for _, each in steady)
            more = len(self._trained) > 1
            first = "without the first epoch" if more else "first epoch included"
            say(f"average        {rate:,.1f} {self._unit}/s, {first}")
        say(f"complete time  {self._probe.wall() - self._launched:.2f} s so far, shutdown to come")
        if memory is not None:
            say(f"peak memory    {memory / 2**20:,.1f} MiB on this rank")
        if packed := exchanged.get("compression"):
            say(f"compression    {_packed(**packed)}")
        if noise := exchanged.get("noise"):
            say(f"gradient noise {_noise(**noise)}")


def _packed(kind: str, sent: int, whole: int, error: float | None) -> str:
    """Return what compression did, in words.

    >>> _packed("powersgd rank 1", 3, 100, 0.42)
    'powersgd rank 1: 0.03 of the bytes, error 0.42 of the gradient'
    """
    off = "unknown" if error is None else f"{error:.2g} of the gradient"
    return f"{kind}: {sent / whole:.2g} of the bytes, error {off}"


def _noise(scale: float | None, low: float | None, high: float | None, estimates: int) -> str:
    """Return the noise of gradients, in words.

    >>> _noise(1234.5, 987.0, 1543.2, 36)
    '1,234 samples (987 to 1,543), 36 estimates'
    """
    if scale is None:
        return f"not known: {estimates} estimates are too few, or too rough"
    return f"{scale:,.0f} samples ({low:,.0f} to {high:,.0f}), {estimates} estimates"


def say(line: str) -> None:
    """Print one line of the log at once."""
    print(line, flush=True)
