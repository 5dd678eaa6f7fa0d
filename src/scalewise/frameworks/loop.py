"""The one training loop. Engines plug into it; none brings its own.

    for each epoch:
        train     step, step, step …        one span, settled at both edges
        validate  over all ranks            another
    save, if asked for

A run with a budget of steps is one long epoch: the session starts new passes
over the data by itself.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scalewise.frameworks import Quality, Session
from scalewise.probe import Probe
from scalewise.spec import RunSpec

LOSSES = 1000
"""Losses kept per epoch at most; more are thinned evenly."""


def train(spec: RunSpec, session: Session, probe: Probe, folder: Path, log: "Log | None") -> None:
    """Train as ``spec`` asks; ``log`` is for the one rank that speaks."""
    outline = session.outline
    probe.note(outline=asdict(outline))
    probe.steps_planned = outline.steps * (outline.epochs or 1)
    if log:
        log.outline(spec, session)
    for epoch in range(outline.epochs or 1):
        with probe.span("train", epoch=epoch) as trained:
            trained["samples"] = train_epoch(session, probe, epoch)
        with probe.span("validate", epoch=epoch) as validated:
            losses = session.losses()
            quality = session.validate()
        if log:
            probe.note(**_epoch(epoch, losses, quality))
            log.epoch(epoch, losses, quality, _length(trained), _length(validated))
    if spec.save:
        with probe.span("checkpoint"):
            session.save(folder / "weights.pt")


def train_epoch(session: Session, probe: Probe, epoch: int) -> int:
    """Do the steps of one epoch; return the samples this rank trained on."""
    samples = 0
    probe.start()
    session.begin(epoch)
    for _ in range(session.outline.steps):
        done = session.step(probe)
        probe.step(done)
        samples += done
    session.settle()
    probe.flush()
    return samples


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
        self._seconds: list[float] = []
        self._world = 1
        self._unit = "samples"
        self._seen = 0

    def outline(self, spec: RunSpec, session: Session) -> None:
        """Tell what is about to happen."""
        outline = session.outline
        self._world, self._unit, self._seen = spec.replicas, outline.unit, outline.seen
        told = {key: value for key, value in spec.to_dict().items() if value not in (None, {})}
        say("configuration  " + "  ".join(f"{key}={value}" for key, value in told.items()))
        if outline.parameters is not None:
            say(f"parameters     {outline.parameters:,}")
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

    def epoch(
        self, epoch: int, losses: list[float], quality: Quality | None, spent: float, checked: float
    ) -> None:
        """Tell how an epoch went."""
        self._seconds.append(spent)
        rate = self._seen * self._world / spent
        parts = [f"epoch {epoch + 1}", f"{rate:,.1f} {self._unit}/s", f"{spent:.3f} s"]
        if losses:
            parts.append(f"loss {sum(losses) / len(losses):.4f}")
        if quality:
            parts.append(f"validation accuracy {quality.accuracy:.4f}, loss {quality.loss:.4f}")
            parts.append(f"{quality.samples / checked:,.1f} {self._unit}/s")
        say("  ".join(parts))

    def end(self, memory: int | None) -> None:
        """Tell the sum of it."""
        steady = self._seconds[1:] or self._seconds
        rate = self._seen * self._world * len(steady) / sum(steady)
        left_out = "without the first epoch" if len(self._seconds) > 1 else "first epoch included"
        say(f"average        {rate:,.1f} {self._unit}/s, {left_out}")
        say(f"complete time  {self._probe.wall() - self._launched:.2f} s so far, shutdown to come")
        if memory is not None:
            say(f"peak memory    {memory / 2**20:,.1f} MiB on this rank")


def say(line: str) -> None:
    """Print one line of the log at once."""
    print(line, flush=True)
