"""Files with a format of their own: TensorBoard, Lightning, DLLogger, Extra-P, MLPerf."""

import json

import pytest

from event_files import event, event_file
from scalewise.analysis.measure.logs import (
    DeviceCount,
    LogOptions,
    NotALog,
    read_log,
    summarize_log,
)
from scalewise.analysis.measure.logs.event_file import masked_crc, read_scalars
from scalewise.analysis.measure.logs.tag_names import tag_meaning

FOUR = DeviceCount(4, "as given")


def run_of(data, **options):
    """Return the run of a file with one log."""
    (log,) = read_log(data if isinstance(data, bytes) else data.encode())
    return summarize_log("a log", log, FOUR, LogOptions(**options))


def mllog(key, value=None, time_ms=0, **metadata):
    event = {"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key,
             "value": value, "metadata": metadata}  # fmt: skip
    return f":::MLLOG {json.dumps(event)}"


def test_the_checksum_is_that_of_the_records():
    """A vector of RFC 3720 (32 bytes of zero), masked as TensorFlow does it."""
    crc = 0x8A9136AA
    assert masked_crc(bytes(32)) == (((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


@pytest.mark.parametrize("tensor", [False, True])
def test_a_throughput_of_an_event_file_is_read_without_its_slow_start(tensor):
    rates = [300.0, 400.0, 402.0, 398.0]
    events = [event("perf/imgs_per_sec", step, rate, tensor=tensor)
              for step, rate in enumerate(rates)]  # fmt: skip
    run = run_of(event_file(*events, event("val/imgs_per_sec", 0, 900.0), event("loss", 0, 2.3)))
    assert run.throughput.value == pytest.approx(400, rel=1e-4)
    assert run.unit == "images"
    assert run.evidence["throughput"].left_out == "first value"
    assert run.throughput.low < 400 < run.throughput.high


def test_epoch_times_of_keras_are_those_between_its_time_stamps():
    events = [event("epoch_loss", epoch, 2.0, 100 + 14.0 * epoch) for epoch in range(5)]
    run = run_of(event_file(*events), samples_per_epoch=50_000)
    assert run.epoch_time.value == pytest.approx(14)
    assert run.throughput.value == pytest.approx(50_000 / 14)


def test_a_damaged_event_file_is_read_up_to_the_damage():
    good = event_file(*(event("throughput", step, 100.0 + step) for step in range(4)))
    assert len(list(read_scalars(good))) == 4
    for data in (good[:-3], good[:-6] + b"\x00" + good[-5:], good + b"\xff" * 40):
        assert 3 <= len(list(read_scalars(data))) <= 4
    with pytest.raises(NotALog):
        read_log(event_file(event("loss", 0, 1.0)))


@pytest.mark.parametrize(
    ("tag", "quantity", "unit", "per_device"),
    [
        ("throughput", "throughput", None, False),
        ("train/train_samples_per_second", "throughput", "samples", False),
        ("train|device/samples_per_sec", "throughput", "samples", True),
        ("throughput/samples_per_sec", "throughput", "samples", False),
        ("throughput/device/samples_per_sec", "throughput", "samples", True),
        ("Speed/img_s", "throughput", "images", False),
        ("train.total_ips", "throughput", "images", False),
        ("perf/tokens_per_second", "throughput", "tokens", False),
        ("epoch_time", "epoch_time", None, False),
        ("timing/step_time", "step_time", None, False),
        ("train/train_runtime", "time", None, False),
        ("epoch_steps_per_second", "steps_per_second", None, False),
        ("train/loss", None, None, None),
        ("validation/throughput", None, None, None),
        ("epoch", None, None, None),
    ],
)
def test_a_tag_has_a_meaning(tag, quantity, unit, per_device):
    meaning = tag_meaning(tag)
    if quantity is None:
        assert meaning is None
    else:
        assert (meaning.quantity, meaning.unit, meaning.per_device) == (quantity, unit, per_device)


def test_a_csv_log_of_lightning_is_read():
    run = run_of(
        "epoch,step,train_loss,train|samples_per_sec,val_samples_per_sec\n"
        "0,9,2.3,200.0,\n0,19,,,900\n1,29,2.1,400.0,\n1,39,2.0,400.0,\n2,49,nan,nan,\n"
    )
    assert run.throughput.value == 400
    assert run.evidence["throughput"].left_out == "first epoch"
    assert run.evidence["throughput"].lines == (4, 5)
    assert run.bad_values == 1


def test_a_csv_log_without_rates_is_refused():
    with pytest.raises(NotALog, match="columns"):
        read_log(b"epoch,step,train_loss\n0,1,2.3\n")


def test_a_title_of_a_csv_log_may_have_a_comma():
    run = run_of('epoch, "loss, total",throughput,lr\n0,2.3,400,0.1\n1,2.1,400,0.1\n')
    assert run.throughput.value == 400
    assert run.evidence["throughput"].source == 'the column "throughput"'
    run = run_of('"time, total","epoch",throughput\n9,0,400\n')
    assert run.throughput.value == 400


def test_the_summary_of_dllogger_counts():
    lines = [
        'DLLL {"type": "LOG", "step": "PARAMETER", "data": {"world_size": 4, "epochs": 2}}',
        'DLLL {"type": "LOG", "step": [0, 10], "data": {"train.total_ips": 900.0}}',
        'DLLL {"type": "LOG", "step": [1], "data": {"train.total_ips": 990.0, "val.total_ips": 2}}',
        'DLLL {"type": "LOG", "step": [], "data": {"train.total_ips": 1000.0}}',
    ]
    (log,) = read_log("\n".join(lines).encode())
    assert [count.devices for count in log.device_counts] == [4]
    assert summarize_log("a log", log, FOUR, LogOptions()).throughput.value == 1000
    (log,) = read_log("\n".join(lines[:-1]).encode())
    assert summarize_log("a log", log, FOUR, LogOptions()).throughput.value == 990


@pytest.mark.parametrize("key", ["gpus", "number_of_ranks"])
def test_json_lines_and_mlperf_logs_name_the_devices_by_the_same_keys(key):
    lines = (json.dumps({key: 8, "throughput": 400}), mllog("throughput", 400, **{key: 8}))
    for line in lines:
        (log,) = read_log(line.encode())
        assert [count.devices for count in log.device_counts] == [8]


def test_json_lines_of_a_program_are_read():
    lines = [json.dumps({"epoch": n, "epoch_time": 20 if n == 0 else 10}) for n in range(4)]
    assert run_of("\n".join(lines)).epoch_time.value == 10


def test_an_mlperf_log_is_read():
    lines = [mllog("global_batch_size", 256), mllog("train_samples", 51_200),
             mllog("number_of_ranks", 4), mllog("run_start", time_ms=1000)]  # fmt: skip
    at = 1000
    for epoch in range(3):
        lines.append(mllog("epoch_start", time_ms=at, epoch_num=epoch))
        at += 20_000 if epoch == 0 else 10_000
        lines.append(mllog("epoch_stop", time_ms=at, epoch_num=epoch))
    lines += [":::MLLOG {cut", mllog("run_stop", time_ms=at, status="success")]
    (log,) = read_log("\n".join(f"0: {line}" for line in lines).encode())
    run = summarize_log("a log", log, FOUR, LogOptions())
    assert [count.devices for count in log.device_counts] == [4]
    assert (run.epoch_time.value, run.time.value) == (10, 40)
    assert run.throughput.value == 5120  # The samples of an epoch in its time.
    assert run.evidence["epoch_time"].left_out == "first epoch"


def test_tracked_stats_of_an_mlperf_log_are_throughputs():
    stats = [mllog("tracked_stats", {"throughput": 14214.5}, step=step) for step in (1, 2)]
    assert run_of("\n".join(stats)).throughput.value == pytest.approx(14214.5)


HUGE = 10**400


@pytest.mark.parametrize(
    "line",
    [
        mllog("throughput", HUGE),
        mllog("throughput", 7, epoch_num=HUGE),
        mllog("epoch_stop", time_ms=HUGE),
        mllog("epoch_stop", time_ms=5000, epoch_count=HUGE),
    ],
)
def test_a_huge_integer_costs_a_line_of_an_mlperf_log(line):
    lines = [mllog("epoch_start", time_ms=1), line, mllog("throughput", 400)]
    assert run_of("\n".join(lines)).throughput.value == 400


@pytest.mark.parametrize(
    "values", [{"throughput": HUGE}, {"throughput": 7, "epoch": HUGE}, {"throughput": -HUGE}]
)
def test_a_huge_integer_costs_a_json_line(values):
    lines = [json.dumps(values), json.dumps({"throughput": 400})]
    assert run_of("\n".join(lines)).throughput.value == 400


def test_a_huge_integer_costs_a_measurement_for_extra_p():
    lines = [json.dumps({"params": {"p": 4}, "metric": "time", "value": value})
             for value in (HUGE, 60)]  # fmt: skip
    assert run_of("\n".join(lines)).time.value == 60


def test_measurements_for_extra_p_are_runs_by_their_parameter():
    lines = [json.dumps({"params": {"p": p}, "metric": "time", "value": 60 / p})
             for p in (1, 2, 4) for _ in range(2)]  # fmt: skip
    logs = read_log("\n".join(lines).encode())
    assert [log.device_counts[0].devices for log in logs] == [1, 1, 2, 2, 4, 4]
    assert [log.observations[0].value for log in logs] == [60, 60, 30, 30, 15, 15]
