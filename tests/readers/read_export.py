"""Read what ``report --as`` wrote with the tool's own reader, and print it as JSON.

python read_export.py FORMAT PATH, in an environment of tests/readers.
"""

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def read_tensorboard(path: Path) -> Any:
    """Return the scalars, texts and settings of each folder of events."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata as hparams

    runs = {}
    for file in sorted(path.rglob("events.out.tfevents.*")):
        events = EventAccumulator(str(file.parent), size_guidance={"scalars": 0, "tensors": 0})
        events.Reload()
        tags = events.Tags()
        run: dict[str, Any] = {"texts": {}, "settings": {}}
        run["scalars"] = {
            tag: [[event.step, event.value] for event in events.Scalars(tag)]
            for tag in tags["scalars"]
        }
        for tag in tags["tensors"]:
            plugin = events.SummaryMetadata(tag).plugin_data
            if plugin.plugin_name == "text":
                run["texts"][tag] = events.Tensors(tag)[0].tensor_proto.string_val[0].decode()
            else:
                start = hparams.parse_session_start_info_plugin_data(plugin.content)
                run["settings"] = {
                    name: getattr(value, value.WhichOneof("kind"))
                    for name, value in start.hparams.items()
                }
        runs[str(file.parent.relative_to(path))] = run
    return runs


def read_mlflow(path: Path) -> Any:
    """Return the runs of each experiment with all values of their metrics."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=path.resolve().as_uri())
    return {
        experiment.name: [
            {
                "name": run.info.run_name,
                "status": run.info.status,
                "start": run.info.start_time,
                "tags": run.data.tags,
                "settings": run.data.params,
                "scalars": {
                    key: [
                        [m.step, m.value] for m in client.get_metric_history(run.info.run_id, key)
                    ]
                    for key in run.data.metrics
                },
            }
            for run in client.search_runs([experiment.experiment_id])
        ]
        for experiment in client.search_experiments()
    }


def read_wandb(path: Path) -> Any:
    """Return the runs; wandb has no reader, only its record's type."""
    from wandb.proto.wandb_internal_pb2 import Record

    runs = []
    for file in sorted(path.glob("wandb/offline-run-*/*.wandb")):
        run: dict[str, Any] = {"rows": []}
        for content in _leveldb_records(file.read_bytes()):
            record = Record()
            record.ParseFromString(content)
            if record.HasField("run"):
                stored = record.run
                run |= {"name": stored.display_name, "project": stored.project}
                run |= {"group": stored.run_group, "tags": list(stored.tags), "notes": stored.notes}
                run["settings"] = {
                    item.key: json.loads(item.value_json) for item in stored.config.update
                }
            if record.HasField("history"):
                items = record.history.item
                run["rows"].append(
                    {(i.key or "/".join(i.nested_key)): json.loads(i.value_json) for i in items}
                )
        runs.append(run)
    return runs


def _leveldb_records(content: bytes) -> Iterator[bytes]:
    """Return the records of a log in LevelDB's format: blocks of 32 KiB with pieces of records."""
    position, whole = 7, b""  # After wandb's header.
    while position + 7 <= len(content):
        if 32768 - position % 32768 < 7:  # The rest of a block is too short for a piece.
            position += 32768 - position % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", content, position)
        piece = content[position + 7 : position + 7 + length]
        position += 7 + length
        whole = piece if kind in (1, 2) else whole + piece
        if kind in (1, 4):  # A whole record, or the last piece of one.
            yield whole


def read_openmetrics(path: Path) -> Any:
    """Return all samples, after Prometheus' older parser has read the file too."""
    from prometheus_client import parser
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    text = path.read_text()
    assert len(list(parser.text_string_to_metric_families(text))) > 1
    families = text_string_to_metric_families(text)
    return [[s.name, s.labels, s.value] for family in families for s in family.samples]


def read_mllog(path: Path) -> Any:
    """Return key, value and metadata of each line, after MLPerf's parser found no error."""
    from mlperf_logging.compliance_checker.mlp_parser import parse_file

    lines, errors = parse_file(str(path), ruleset="5.1.0")
    assert not errors, errors
    return [[line.key, line.value["value"], line.value["metadata"]] for line in lines]


def read_extrap(path: Path) -> Any:
    """Return the mean of each metric by call path and devices, and the models Extra-P fits."""
    from extrap.fileio.file_reader.jsonlines_file_reader import read_jsonlines_file
    from extrap.modelers.model_generator import ModelGenerator

    experiment = read_jsonlines_file(str(path))
    generator = ModelGenerator(experiment)
    generator.model_all()
    return {
        "parameters": [parameter.name for parameter in experiment.parameters],
        "values": [
            [callpath.name, metric.name, measurement.coordinate[0], float(measurement.mean)]
            for (callpath, metric), measurements in experiment.measurements.items()
            for measurement in measurements
        ],
        "models": {
            f"{callpath.name} {metric.name}": model.hypothesis.function.to_string(
                *experiment.parameters
            )
            for (callpath, metric), model in generator.models.items()
        },
    }


if __name__ == "__main__":
    reader = globals()[f"read_{sys.argv[1]}"]
    print(json.dumps(reader(Path(sys.argv[2]))))
