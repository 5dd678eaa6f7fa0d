"""The lines that rank 0 prints to ``log.txt``."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from scalewise.frameworks import Quality, Session
from scalewise.probe import Probe
from scalewise.spec import RunSpec


class Log:
    """Prints the configuration, the epochs and a summary of a run."""

    def __init__(self, probe: Probe, launched: float) -> None:
        self._probe = probe
        self._launched = launched
        self._epochs: list[tuple[int, float]] = []
        """This rank's samples and seconds in each epoch."""
        self._ratio = 1.0
        """Samples of all ranks per sample of this rank."""
        self._unit = "samples"

    def print_outline(self, spec: RunSpec, session: Session, done: int) -> None:
        """Print the run's configuration and size; a checkpoint with ``done`` steps was restored."""
        outline = session.outline
        self._unit = outline.unit
        # Right if all ranks see equally many samples; ranks of one replica see the same samples.
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

    def print_epoch(
        self,
        epoch: int,
        losses: list[float],
        quality: Quality | None,
        samples_and_seconds: tuple[int, float],
        validation_seconds: float,
    ) -> None:
        """Print an epoch's result; this rank's samples are 0 if there is no single throughput."""
        samples, seconds = samples_and_seconds
        parts = [f"epoch {epoch + 1}"]
        if samples:
            self._epochs.append(samples_and_seconds)
            parts += [f"{samples * self._ratio / seconds:,.1f} {self._unit}/s", f"{seconds:.3f} s"]
        if losses:
            parts.append(f"loss {sum(losses) / len(losses):.4f}")
        if quality:
            parts.append(f"validation accuracy {quality.accuracy:.4f}, loss {quality.loss:.4f}")
            parts.append(f"{quality.samples / validation_seconds:,.1f} {self._unit}/s")
        say("  ".join(parts))

    def print_end(self, memory: int | None, exchange: Mapping[str, Any], stopped_at: int) -> None:
        """Print a summary; ``stopped_at`` is the last step if a stop was requested, else 0."""
        if stopped_at:
            say(f"stop requested stopped after step {stopped_at:,}, with a checkpoint")
        if steady := self._epochs[1:] or self._epochs:
            samples, seconds = map(sum, zip(*steady))
            scope = "without the first epoch" if len(self._epochs) > 1 else "first epoch included"
            say(f"average        {self._ratio * samples / seconds:,.1f} {self._unit}/s, {scope}")
        say(f"complete time  {self._probe.wall() - self._launched:.2f} s so far, before shutdown")
        if memory is not None:
            say(f"peak memory    {memory / 2**20:,.1f} MiB on this rank")
        if compression := exchange.get("compression"):
            say(f"compression    {_describe_compression(compression)}")
        if noise := exchange.get("noise"):
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
        return f"unknown: {estimates} estimates are too few, or too imprecise"
    return f"{scale:,.0f} samples ({low:,.0f} to {high:,.0f}), {estimates} estimates"


def say(line: str) -> None:
    """Print one line of the log at once; a log that cannot be written does not end the training."""
    with suppress(OSError):
        print(line, flush=True)
