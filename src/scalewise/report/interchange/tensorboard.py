"""TensorBoard event files: a run folder for each curve, and one for each run of it.

Only TensorBoard's protocol buffers and its record writer are used, which need no TensorFlow.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from scalewise.report.escape import escape_markdown
from scalewise.report.interchange.contents import (
    ExportedCurve,
    ExportedRun,
    Scalar,
    curve_scalars,
    folder_names,
    run_scalars,
)

FILE_NAME = "events.out.tfevents.0000000000.scalewise"
"""The same each time: a second export overwrites the first; else TensorBoard would show both."""


def write(curves: Sequence[ExportedCurve], folder: Path) -> None:
    """Write an event file per curve and per run."""
    for curve, name in zip(curves, folder_names(curve.name for curve in curves)):
        events = chain(_scalar_events(curve_scalars(curve)), _text_events(curve, 0.0))
        _write_events(folder / name / "scaling", events)
        for run, run_name in zip(curve.runs, folder_names(run.name for run in curve.runs)):
            _write_events(folder / name / run_name, _run_events(curve, run))


def _write_events(folder: Path, events: Iterable[Any]) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / FILE_NAME).open("wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(file_version="brain.Event:2").SerializeToString())
        for event in events:
            writer.write(event.SerializeToString())


def _run_events(curve: ExportedCurve, run: ExportedRun) -> Iterator[Any]:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb

    settings = hparams_pb(dict(run.settings), trial_id=run.id, start_time_secs=run.started)
    yield Event(wall_time=run.started, summary=settings)
    yield from _scalar_events(run_scalars(run))
    yield from _text_events(curve, run.ended)


def _scalar_events(scalars: Iterable[Scalar]) -> Iterator[Any]:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    for scalar in scalars:
        value = Summary.Value(tag=scalar.tag, simple_value=scalar.value)
        yield Event(wall_time=scalar.at, step=scalar.step, summary=Summary(value=[value]))


def _text_events(curve: ExportedCurve, at: float) -> Iterator[Any]:
    """Return events of the text plugin, which shows Markdown."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING

    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    texts = {"unit": escape_markdown(curve.unit), "doubts": curve.doubt_text}
    for tag, text in texts.items():
        if text:
            tensor = TensorProto(dtype=DT_STRING, string_val=[text.encode()], tensor_shape={})
            value = Summary.Value(tag=tag, metadata=metadata, tensor=tensor)
            yield Event(wall_time=at, summary=Summary(value=[value]))
