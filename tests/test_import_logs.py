"""Logs become tables: the published results, written as logs, give the published tables."""

import json
from pathlib import Path

import pytest

from event_files import event, event_file
from scalewise import results
from scalewise.analysis.measure import Estimate

VIT = {1: 240, 2: 464, 4: 892, 8: 1668, 16: 3075, 32: 5205}
VIT_SECONDS = {1: 556, 2: 439, 4: 380, 8: 347, 16: 330, 32: 328}
RESNET50V2 = {1: 14, 2: 8, 4: 5}
RESNET50 = {1: 400, 4: 1300, 8: 2600}


def keras_line(seconds):
    return f"25/25 - {seconds}s - loss: 1.2 - accuracy: 0.3 - {seconds}s/epoch - 540ms/step"


def keras_bar(seconds):
    states = [f"{step}/25 [==>...] - ETA: 5s - loss: 1.3" for step in (1, 12, 24)]
    final = f"25/25 [==========] - {seconds}s 540ms/step - loss: 1.2 - val_loss: 1.4"
    return "\r".join([*states, final])


def keras_3(seconds):
    return f"\x1b[1m25/25\x1b[0m \x1b[32m━━━━━━\x1b[0m \x1b[1m{seconds}s\x1b[0m 540ms/step"


def keras_log(devices, seconds, line, first=10):
    lines = [f"Number of devices: {devices}"]
    for epoch in range(1, 6):
        lines += [f"Epoch {epoch}/5", line(seconds + (first if epoch == 1 else 0))]
    return "\n".join([*lines, "10/10 - 1s - 3ms/step - loss: 1.3"])


def rate_log(rate, line, seconds=None, header=""):
    lines = [header, *(line.format(epoch=epoch, rate=rate if epoch else rate / 2)
                       for epoch in range(5))]  # fmt: skip
    if seconds:
        lines.append(f"Total time: {seconds} s")
    return "\n".join(lines)


def imported(scalewise, *words):
    """Return the curve of the table that ``import`` writes, and what it says."""
    code, out, err = scalewise("import", *words, "-o", "study.csv")
    assert (code, err) == (0, ""), err
    (curve,) = results.curves([Path("study.csv")])
    return curve, out


def write(folder, logs):
    for name, text in logs.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(logs)


@pytest.mark.parametrize("line", [keras_line, keras_bar, keras_3])
def test_keras_logs_give_the_published_table(scalewise, tmp_path, line):
    names = write(tmp_path, {f"r{n}.log": keras_log(n, s, line) for n, s in RESNET50V2.items()})
    curve, said = imported(scalewise, *names)
    assert [p.epoch_time.value for p in curve.points] == [14, 8, 5]
    assert [p.speedup_time.value / p.devices for p in curve.points] == pytest.approx(
        [1, 0.875, 0.7]
    )
    assert "4 values of Keras, lines 5 to 11, without the first epoch, which is slower" in said
    assert "without the first epoch" in "".join(curve.read_as.imported)


@pytest.mark.parametrize(
    "line",
    [
        "Epoch {epoch}: {rate} imgs/s",
        "epoch {epoch} throughput: {rate:,} samples/sec",
        "Epoch [{epoch}/5] loss 0.2 img/s {rate}",
        "Train: {epoch} [  50/73 ( 70%)]  Loss: 6.77 (6.83)  Time: 0.320s,  {rate}/s  (0.4s, 2/s)",
    ],
)
def test_lines_of_rates_give_the_published_table(scalewise, tmp_path, line):
    names = write(
        tmp_path,
        {f"vit_{n}gpu.log": rate_log(r, line, VIT_SECONDS[n]) for n, r in VIT.items()},
    )
    curve, _ = imported(scalewise, *names)
    assert [p.throughput.value for p in curve.points] == pytest.approx([*VIT.values()])
    assert [p.time.value for p in curve.points] == [*VIT_SECONDS.values()]
    shares = [round(100 * p.efficiency.value, 1) for p in curve.points]
    assert shares == pytest.approx([100, 96.7, 92.9, 86.9, 80.1, 67.8], abs=0.06)


def test_horovod_logs_give_the_published_table(scalewise, tmp_path):
    names = write(
        tmp_path,
        {f"{n}.log": f"Total img/sec on {n} GPU(s): {rate}.0 +-4.0\n"
         for n, rate in RESNET50.items()},
    )  # fmt: skip
    curve, _ = imported(scalewise, *names)
    assert [p.throughput.value for p in curve.points] == [400, 1300, 2600]
    assert curve.unit == "images"
    assert [p.throughput.low for p in curve.points] == [396, 1296, 2596]


def test_the_times_of_a_table_are_those_of_each_format(scalewise, tmp_path):
    """ResNet-50: 120, 35 and 18 s per epoch, as courses print it; rates by the samples."""
    lines = "Epoch [{0}/3], Loss: 0.3, time {1}s"
    names = write(tmp_path, {
        f"{n}.log": "\n".join([f"world_size={n}", *(lines.format(e, s) for e in (1, 2, 3))])
        for n, s in {1: 120, 4: 35, 8: 18}.items()
    })  # fmt: skip
    curve, _ = imported(scalewise, *names)
    assert [p.time.value for p in curve.points] == [120, 35, 18]
    curve, said = imported(scalewise, *names, "--samples-per-epoch", 48_000)
    assert curve.points[0].throughput.value == pytest.approx(400)
    assert "samples per epoch divided by the time" in said


def test_tensorboard_and_mlperf_logs_give_the_published_table(scalewise, tmp_path):
    logs = {}
    for n, rate in VIT.items():
        events = [event("imgs_per_sec", step, float(rate)) for step in range(3)]
        logs[f"tb/{n}gpus/events.out.tfevents.1.host"] = event_file(*events)
        stats = json.dumps({"time_ms": 0, "key": "tracked_stats", "value": {"throughput": rate}})
        logs[f"mlperf/n{n}.log"] = f":::MLLOG {stats}"
    write(tmp_path, logs)
    for folder in ("tb", "mlperf"):
        curve, _ = imported(scalewise, folder)
        assert [p.devices for p in curve.points] == [*VIT]
        assert [p.throughput.value for p in curve.points] == pytest.approx([*VIT.values()])


def test_the_event_files_of_a_keras_run_are_one_run(scalewise, tmp_path):
    """Three epochs of 20, 10 and 12 s: the first ends at the first time stamp."""
    ends = [event("epoch_loss", n, 2.0, at, tensor=True) for n, at in enumerate((20, 30, 42))]
    write(tmp_path, {f"run_2gpu/{part}/events.out.tfevents.1.v2": event_file(*ends)
                     for part in ("train", "validation")})  # fmt: skip
    curve, said = imported(scalewise, "run_2gpu")
    (point,) = curve.points
    assert point.epoch_time.value == pytest.approx(11) and point.epoch_time.count == 1
    assert '2 values of the time stamps of "epoch_loss"' in said and "slower" not in said
    assert "Left out: 1 file" in said


def test_logs_with_one_number_of_devices_are_repeats(scalewise, tmp_path):
    rates = {"a_1gpu.log": 100, "b_1gpu.log": 104, "2gpu/c.log": 190, "2gpu/d.log": 200}
    write(tmp_path, {name: rate_log(rate, "Epoch {epoch}: {rate} imgs/s")
                     for name, rate in rates.items()})  # fmt: skip
    curve, _ = imported(scalewise, "a_1gpu.log", "b_1gpu.log", "2gpu")
    assert [p.throughput.count for p in curve.points] == [2, 2]
    assert curve.points[0].throughput == Estimate.of([100.0, 104.0])


def test_the_spread_of_epochs_is_the_interval(scalewise, tmp_path):
    lines = [f"Epoch {n}: {rate} imgs/s" for n, rate in enumerate([50, 100, 102, 98, 101])]
    write(tmp_path, {"n1.log": "\n".join(lines), "n2.log": "img/s 190"})
    curve, _ = imported(scalewise, "n1.log", "n2.log")
    first, second = (point.throughput for point in curve.points)
    assert first.low < 98.8 < 100.2 < first.high and first.high - first.low < 6
    assert second == Estimate(190.0)


def test_a_wide_spread_keeps_its_interval_above_zero(scalewise, tmp_path):
    lines = [f"Epoch {n} took {seconds} seconds" for n, seconds in enumerate([9, 2, 8])]
    write(tmp_path, {"n1.log": "\n".join(lines)})
    curve, _ = imported(scalewise, "n1.log")
    time = curve.points[0].epoch_time
    assert time.value == 5 and 0.01 < time.low < 1 and time.high > 20


def test_rates_of_one_device_are_multiplied(scalewise, tmp_path):
    write(tmp_path, {"n1.log": "100 img/s", "n4.log": "95 img/s"})
    _, said = imported(scalewise, "n1.log", "n4.log")
    assert "hardly grow from 1 to 4 devices" in said and "--per-device" in said
    curve, said = imported(scalewise, "n1.log", "n4.log", "--per-device")
    assert [p.throughput.value for p in curve.points] == [100, 380]
    assert "multiplied by the devices" in said and "hardly" not in said
    write(tmp_path, {"n4.log": "95 img/s per GPU"})
    curve, _ = imported(scalewise, "n1.log", "n4.log")
    assert [p.throughput.value for p in curve.points] == [100, 380]


def test_a_total_is_not_multiplied(scalewise, tmp_path):
    """Whatever the user says: Horovod's benchmark prints the rate of one device and the total."""
    horovod = "Img/sec per GPU: 100.0 +-2.0\nTotal img/sec on 4 GPU(s): 400.0 +-8.0\n"
    logs = {
        "h4.log": horovod,
        "n4.log": "total throughput: 400 img/s",
        "n4.csv": "epoch,total_imgs_per_sec\n0,400\n",
        "n4.prom": 'scalewise_run_throughput{devices="4",run="r"} 400\n',
    }
    for name in write(tmp_path, logs):
        curve, said = imported(scalewise, name, "--per-device")
        assert curve.points[0].throughput.value == 400, name
        assert "multiplied" not in said
    write(tmp_path, {"n4.log": "Total samples: 50000, 100 img/s"})
    curve, _ = imported(scalewise, "n4.log", "--per-device")
    assert curve.points[0].throughput.value == 400


def test_a_log_that_cannot_be_imported_stops_no_other(scalewise, tmp_path):
    write(tmp_path, {"n1.log": "100 img/s", "bad.log": "nothing", "a.log": "9 img/s",
                     "more/n2.log": "190 img/s", "more/t.csv": "devices,img/s\n1,9\n"})  # fmt: skip
    words = ["import", "n1.log", "bad.log", "a.log", "missing.log", "more"]
    code, out, err = scalewise(*words, "-o", "study.csv")
    assert code == 1 and "Wrote study.csv" in out
    (curve,) = results.curves([Path("study.csv")])
    assert [p.throughput.value for p in curve.points] == [100, 190]
    assert err.count("error: ") == 4
    for text in (
        "bad.log is not a log",
        "a.log does not say",
        "read missing.log",
        "t.csv is a table",
    ):
        assert text in err
    code, table, err = scalewise(*words)
    assert code == 1 and "1,100.0,n1.log" in table and err.count("error: ") == 4
    code, out, err = scalewise("import", "bad.log", "a.log", "-o", "none.csv")
    assert (code, out, err.count("error: ")) == (1, "", 2) and not Path("none.csv").exists()


@pytest.mark.parametrize(
    ("seconds", "mean", "left_out"),
    [([100.25, 100], 100.125, False), ([110, 100], 100, True), ([100.25, 100, 100], 100, True)],
)
def test_a_first_epoch_is_left_out_if_it_is_a_warm_up(scalewise, tmp_path, seconds, mean, left_out):
    lines = [f"Epoch {n} took {value} seconds" for n, value in enumerate(seconds)]
    write(tmp_path, {"n1.log": "\n".join(lines)})
    curve, said = imported(scalewise, "n1.log")
    assert curve.points[0].epoch_time.value == pytest.approx(mean)
    assert ("without the first epoch" in said) is left_out


def test_the_first_of_two_epochs_must_be_slower_than_the_second_scatters(scalewise, tmp_path):
    for first, mean in ((99.5, 99.75), (50, 100)):
        rates = [(0, first), (0, first), (1, 99), (1, 101.02)]
        write(tmp_path, {"n1.log": "\n".join(f"Epoch {e}: {rate} imgs/s" for e, rate in rates)})
        curve, _ = imported(scalewise, "n1.log")
        assert curve.points[0].throughput.value == pytest.approx(mean, abs=0.01)


def test_lines_of_several_ranks_count_once(scalewise, tmp_path):
    lines = [
        f"[1,{rank}]<stdout>:Epoch {n}: {100 + rank} imgs/s" for n in (0, 1) for rank in (0, 1)
    ]
    write(tmp_path, {"n2.log": "\n".join(lines)})
    curve, said = imported(scalewise, "n2.log")
    assert curve.points[0].throughput.value == pytest.approx(100)
    assert "2 ranks print lines: those of the first are used, as rates of all devices" in said


def test_a_bar_needs_the_batch_for_its_rate(scalewise, tmp_path):
    write(tmp_path, {"n1.log": "Epoch 0: 100%|██| 100/100 [00:10<00:00, 10.00it/s, v_num=0]"})
    curve, _ = imported(scalewise, "n1.log")
    assert curve.points[0].throughput is None and curve.points[0].epoch_time.value == 10
    curve, said = imported(scalewise, "n1.log", "--batch", 64)
    assert curve.points[0].throughput.value == 640 and "times the global batch" in said
    write(tmp_path, {"n1.log": "iter 10: loss 3.4, time 152.34ms, mfu 34.05%"})
    code, _, err = scalewise("import", "n1.log")
    assert code == 1 and "no samples per step" in err and "--batch 256" in err


def test_a_batch_that_does_not_fit_the_steps_is_named(scalewise, tmp_path):
    """Weak scaling: half the steps on twice the devices, so the batch is that of one device."""
    bar = "Epoch 0: 100%|██| {0}/{0} [00:10<00:00, 10.00it/s, v_num=0]"
    write(tmp_path, {"n1.log": bar.format(400), "n4.log": bar.format(100)})
    curve, said = imported(scalewise, "n1.log", "n4.log", "--batch", 64)
    assert "25,600 samples on 1 device and 6,400 on 4 devices: check the batch" in said
    curve, said = imported(scalewise, "n1.log", "n4.log", "--batch-per-device", 64)
    assert "check the batch" not in said
    assert [p.throughput.value for p in curve.points] == [640, 2560]
    code, _, err = scalewise("import", "n1.log", "--batch", 64, "--batch-per-device", 64)
    assert code == 1 and "both given" in err


def test_the_last_good_line_of_the_training_counts(scalewise, tmp_path):
    lines = ["Training time 0:01:30", "Epoch: [1] Total time: 0:00:40",
             "Test:  Total time: 0:00:03", "Total time: nan s"]  # fmt: skip
    write(tmp_path, {"n1.log": "\n".join(lines)})
    curve, _ = imported(scalewise, "n1.log")
    assert curve.points[0].time.value == 90


def test_the_settings_of_lightning_give_the_devices(scalewise, tmp_path):
    write(tmp_path, {"version_0/metrics.csv": "epoch,step,throughput\n0,1,100\n",
                     "version_0/hparams.yaml": "lr: 0.1\ndevices: 4\n"})  # fmt: skip
    curve, said = imported(scalewise, "version_0")
    assert [p.devices for p in curve.points] == [4]
    assert "hparams.yaml, line 2" in said and "1 file without a throughput or time" in said


@pytest.mark.parametrize(
    ("words", "log", "said", "hint"),
    [
        (["a.log"], "img/s 240", "does not say on how many devices it ran", "import N=a.log"),
        (["a.log"], "world size: 4\nNumber of GPUs: 2\nimg/s 240", "two numbers of devices: 4",
         "import 4=a.log"),
        (["a.log"], "world size: 16\nNumber of GPUs: 2\nimg/s 240", "two numbers of devices: 16",
         "import 16=a.log"),
        (["n2.log"], "world size: 4\nimg/s 240",
         "line 1 says 4 devices, the file name says 2", "4=n2.log"),
        (["0=a.log"], "img/s 240", "gives 0 devices", "1=a.log"),
        (["4=a.log"], "nothing here", "no line of it gives a throughput or a time", "docs/guides"),
        (["4=a.log"], "Epoch 1: nan imgs/s", "none of its 1 rates and times is a number", "docs"),
        (["4=b.log"], "img/s 240", "cannot read b.log: No such file", None),
        (["4=a.csv"], "devices,throughput\n1,100\n", "is a table, not a log", "summary a.csv"),
        (["4=a.log"], "\n<!DOCTYPE html>\n<p>400 img/s", "is an HTML or XML document",
         "TensorBoard event files"),
        (["4=a.py"], 'print("400 img/s")', "a file that ends in .py is a document or a program",
         "TensorBoard event files"),
        (["4=a.log", "-o", "a.log"], "img/s 240", "is one of the logs", "another file"),
        (["."], "nothing", "no file of . is a log", "docs/guides"),
    ],
)  # fmt: skip
def test_what_cannot_be_imported_is_refused_with_a_hint(
    scalewise, tmp_path, words, log, said, hint
):
    name = next((word.partition("=")[2] or word for word in words if "." in word[1:]), "a.log")
    write(tmp_path, {"a.log" if name == "b.log" else name: log})
    code, out, err = scalewise("import", *words)
    assert (code, out) == (1, "") and "Traceback" not in err
    assert said in err and (hint is None or hint in err)


def test_what_the_user_says_counts(scalewise, tmp_path):
    write(tmp_path, {"n2.log": "world size: 4\nimg/s 240"})
    curve, said = imported(scalewise, "8=n2.log")
    assert curve.points[0].devices == 8 and "as given; line 1 says 4" in said
    curve, _ = imported(scalewise, "2x4=n2.log")
    assert (curve.points[0].devices, curve.points[0].nodes) == (8, 2)


def test_units_of_work_do_not_mix(scalewise, tmp_path):
    write(tmp_path, {"n1.log": "100 img/s", "n2.log": "200 tokens/s", "n4.log": "400 samples/s"})
    code, _, err = scalewise("import", "n1.log", "n2.log")
    assert code == 1 and "counts images" in err and "counts tokens" in err
    curve, _ = imported(scalewise, "n1.log", "n4.log")
    assert curve.unit == "images"


def test_files_that_do_not_name_their_curve_are_one_curve(scalewise, tmp_path):
    """Folders are curves only in TensorBoard's event files."""
    line = 'scalewise_run_throughput{{devices="{0}",run="r"}} {1}\n'
    names = write(tmp_path, {f"{n}/a/x.prom": line.format(n, 100 * n) for n in (1, 2)})
    curve, _ = imported(scalewise, *names)
    assert [p.throughput.value for p in curve.points] == [100, 200]


def test_without_a_file_the_table_is_printed(scalewise, tmp_path):
    write(tmp_path, {"n1.log": "100 img/s"})
    code, out, err = scalewise("import", "n1.log")
    assert code == 0 and out.splitlines()[1:] == ["devices,images/s,run", "1,100.0,n1.log"]
    assert err == "n1.log: 1 device (the file name); throughput: 1 value of rate line, line 1.\n"


@pytest.mark.parametrize("verb", ["summary", "measure", "predict"])
def test_a_log_given_to_another_verb_names_import(scalewise, tmp_path, verb):
    write(tmp_path, {"a b.log": keras_log(1, 14, keras_line),
                     "events.out.tfevents.1": event_file(event("throughput", 1, 9.0))})  # fmt: skip
    options = ["--at", "8"] if verb == "predict" else []
    for name, quoted in (("a b.log", "'a b.log'"), ("events.out.tfevents.1",) * 2):
        code, _, err = scalewise(verb, name, *options)
        assert code == 1 and f"{name} is a log, not a table" in err
        assert f"scalewise import {quoted} -o study.csv" in err


def test_measure_says_where_imported_numbers_are_from(scalewise, tmp_path):
    write(tmp_path, {f"n{n}.log": "100 img/s" for n in range(1, 13)})
    imported(scalewise, *(f"n{n}.log" for n in range(1, 13)))
    _, out, _ = scalewise("measure", "study.csv")
    assert "Imported: n1.log: 1 device (the file name)" in out
    assert "Imported: 4 more, see the comments of the table." in out
    _, out, _ = scalewise("measure", "study.csv", "--json")
    assert len(json.loads(out)["curves"][0]["read_as"]["imported"]) == 12
