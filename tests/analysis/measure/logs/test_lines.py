"""Every line format, by a line as its program prints it; and lines that give nothing."""

from pathlib import Path

import pytest

from scalewise.analysis.measure.logs import (
    DeviceCount,
    LogOptions,
    NotALog,
    read_log,
    summarize_log,
)
from scalewise.analysis.measure.logs.device_count import device_count_of_name, device_counts
from scalewise.analysis.measure.logs.line_formats import LINE_FORMATS

LINES = [
    tuple(part.strip(" \n") for part in line.split(" | ", 2))
    for line in (Path(__file__).parent / "lines.txt").read_text().splitlines()
    if not line.startswith("#")
]


@pytest.mark.parametrize(("name", "value", "line"), LINES, ids=[line[0] for line in LINES])
def test_a_line_is_read(name, value, line):
    (log,) = read_log(line.replace("\\t", "\t").replace("\\r", "\r").encode())
    values = [o.value for o in log.observations if o.source == name]
    assert pytest.approx(float(value)) in values, log.observations


def test_every_format_has_a_line():
    assert {name for name, _, _ in LINES} == {line_format.name for line_format in LINE_FORMATS}


@pytest.mark.parametrize(
    "line",
    [
        "Test: [ 0/79]  img/s: 800.1  time: 0.3",
        "val throughput: 812.3 imgs/s",
        "{'eval_loss': 1.0, 'eval_runtime': 0.49, 'eval_samples_per_second': 576.2}",
        "Epoch 1: nan imgs/s",
        "Epoch 1: -5 imgs/s",
        "throughput: 12.5 TFLOP/s",
        "throughput per GPU (TFLOP/s/GPU): 30.1",
        "network: 12.5 GB/s",
        "Epoch [1/5], Step [100/600], Loss: 0.3, time 0.5s",
        " 50%|██  | 50/100 [00:05<00:05,  9.8it/s]",
        "12/25 [====>.........] - ETA: 5s - loss: 1.2",
        "learning rate 0.1",
    ],
)
def test_a_line_that_is_no_measurement_of_the_training_gives_nothing(line):
    with pytest.raises(NotALog):
        read_log(line.encode())


@pytest.mark.parametrize(
    ("lines", "rate", "unused"),
    [
        (["1000 images/s", "250 images/s per gpu"], 1000, ["rate line (images/s per device)"]),
        (["250 images/s per gpu", "1000 images/s"], 1000, ["rate line (images/s)"]),
        (["1000 images/s", "200000 tokens/s"], 1000, ["rate line (tokens/s)"]),
        (["200000 tokens/s", "1000 images/s"], 200_000, ["rate line (images/s)"]),
        (["1000 images/s", "1000 images/s"], 1000, []),
    ],
)
def test_rates_of_different_units_or_devices_are_not_averaged(lines, rate, unused):
    (log,) = read_log("\n".join(2 * lines).encode())
    run = summarize_log("a log", log, DeviceCount(4, "as given"), LogOptions())
    assert run.throughput.value == pytest.approx(rate)
    assert list(run.unused) == unused


@pytest.mark.parametrize(
    ("line", "rate"),
    [
        ("step 1: 251 samples/s (total throughput 1004 samples/s)", 4 * 251),
        ("step 1: 251 samples/s, total throughput on 4 GPUs: 1004", 4 * 251),
        ("total throughput 12.5 GB/s, 251 samples/s", 4 * 251),
        ("global throughput: 1004 (samples/s: 251)", 4 * 251),
        ("step 1: total throughput 1004 samples/s (251 samples/s)", 1004),
        ("Total img/sec on 4 GPU(s): 400", 400),
        ("aggregate throughput over 4 x H100-80GB: 1004 img/s", 1004),
        ('"step": 1, "total_samples_per_second": 1004', 1004),
        ("step 1: 1004 samples/s (total throughput), loss 0.2", 1004),
    ],
)
def test_only_a_rate_labelled_total_is_not_multiplied_with_per_device(line, rate):
    (log,) = read_log(line.encode())
    run = summarize_log("a log", log, DeviceCount(4, "as given"), LogOptions(per_device=True))
    assert run.throughput.value == pytest.approx(rate)


@pytest.mark.parametrize(
    ("line", "devices"),
    [
        ("world size: 4", 4),
        ("Namespace(batch=32, world_size=8, rank=0)", 8),
        ("Number of devices: 2", 2),
        ("Number of GPUs: 4", 4),
        ("Total img/sec on 8 GPU(s): 14281.2 +-25.0", 8),
        ("gpus: 4", 4),
        ("INFO:tensorflow:Using MirroredStrategy with devices ('/job:localhost/replica:0/task:0/"
         "device:GPU:0', '/job:localhost/replica:0/task:0/device:GPU:1')", 2),
        ("Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/4", 4),
        ("All distributed processes registered. Starting with 4 processes", 4),
        ("Training in distributed mode with multiple processes, 1 device per process. Process 0, "
         "total 4, device cuda:0.", 4),
        ("training on 8 devices (GPUs/TPUs)", 8),
        ("using world size: 16, data-parallel size: 16", 16),
        ("Num processes: 2", 2),
    ],
)  # fmt: skip
def test_a_line_gives_the_number_of_devices(line, devices):
    assert [count.devices for count in device_counts(f"first\n{line}\n")] == [devices]
    assert device_counts(f"first\n{line}\n")[0].where == "line 2"


@pytest.mark.parametrize(
    ("name", "devices"),
    [
        ("run_4gpu.log", 4), ("n8.out", 8), ("resnet50-2gpus-bs256.txt", 2), ("np16.log", 16),
        ("train_gpus_4.log", 4), ("2x4.log", 8), ("vit_2n4g.log", 8), ("4/train_world8.log", 8),
        ("logs/8gpus/train.log", 8), ("train.log", None), ("slurm-123456.out", None),
        ("rank3.log", None), ("gpu0.log", None), ("resnet50.log", None), ("2gpu_4gpu.log", None),
        ("epoch10.log", None),
    ],
)  # fmt: skip
def test_the_name_of_a_file_gives_the_number_of_devices(name, devices):
    count = device_count_of_name(Path(name))
    assert (count and count.devices) == devices
