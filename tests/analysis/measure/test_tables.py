"""Tables as people write them: Excel's exports, blogs, courses, papers, terminals."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paths import ROOT
from scalewise import results
from scalewise.analysis.measure import curve_from_csv
from scalewise.analysis.measure.table_lines import decode_table
from scalewise.cli import app
from scalewise.errors import SpecError
from scalewise.report import formats
from scalewise.report.text.doubts import warning_text
from scalewise.report.text.read_as import read_as_lines
from scalewise.spec import FullRun

TABLES = Path(__file__).parent / "tables"
TINY_RATES = {1: 242, 2: 475, 4: 935, 8: 1817, 16: 3597, 32: 6914}
TINY_TIMES = {1: 2350, 2: 1354, 4: 842, 8: 605, 16: 457, 32: 310}


def first(values, count):
    return dict(list(values.items())[:count])


READ = {
    "blog-markdown.md": ("throughput", {1: 1582, 2: 3038, 4: 6070, 8: 11439}, "between bars"),
    "clock.csv": ("time", first(TINY_TIMES, 4), 'time from "wall time"'),
    "course-efficiency.csv": ("throughput", {1: 1, 2: 1.94, 4: 3.72, 8: 6.96, 16: 12.8, 32: 21.76},
                              "only relative to the baseline"),
    "course-speedup.csv": ("throughput", {1: 1, 2: 1.83, 4: 3.3}, 'speedup from "Speedup"'),
    "course-tp.txt": ("time", {1: 14, 2: 8, 4: 5}, '"S(p)" and "E(p)" only compared'),
    "drawn.txt": ("time", {1: 8640, 2: 4716, 4: 3096}, '"time [h]" (h)'),
    "durations.csv": ("time", {16: 119580, 64: 31260, 256: 8640, 1024: 2640}, "Training time"),
    "epoch-notes.csv": ("epoch_time", {1: 33, 2: 18, 4: 10}, "2 other lines left out"),
    "excel-bom.csv": ("time", first(TINY_TIMES, 4), "a comma separates thousands"),
    "excel-german.csv": ("throughput", TINY_RATES, "decimal commas"),
    "excel-unicode.txt": ("throughput", {1: 240, 2: 464, 4: 892, 8: 1668}, "between tabs"),
    "excel-spanish.csv": ("time", first(TINY_TIMES, 4), '"Aceleración" and "Eficiencia (%)" only'),
    "gpus-of-a-node.csv": ("throughput", {4: 892, 8: 1668, 16: 3075},
                           'devices per node from "gpus"'),
    "growing-batch.csv": ("throughput", {1: 223, 2: 403, 4: 787, 8: 1574},
                          "grows with the devices is the global batch"),
    "gnuplot.dat": ("time", {1: 33, 2: 18, 4: 10}, 'time from "seconds"'),
    "ideal-and-oom.csv": ("throughput", {1: 684, 2: 1244, 4: 2479, 8: 4853}, '"OOM" taken as'),
    "iterations.csv": ("throughput", {1: 36.423, 2: 67.257, 4: 103.048, 8: 122.405},
                       "steps per second times the batch"),
    "merged-cells.csv": ("time", {1: 33.496, 2: 18.493}, "that of the row above"),
    "mlperf-minutes.csv": ("time", {8: 3367.782, 16: 1995.342, 32: 1042.896, 64: 568.716,
                                    128: 324.528, 256: 203.19}, "(min)"),
    "nodes-and-gpus.csv": ("throughput", {8: 1090678, 16: 2088560, 32: 4067922, 64: 8015010,
                                          128: 15863837}, "devices per node from"),
    "nodes-title.csv": ("throughput", {8: 4553, 16: 9191, 32: 18119, 64: 35774}, "8 gpus"),
    "paper.tex": ("throughput", {1: 219, 2: 415, 4: 787, 8: 1551}, "between ampersands"),
    "paper-spread.tex": ("time", {1: 33, 2: 18.1, 4: 10}, "time is that of one epoch"),
    "pasted-spaces.txt": ("throughput", {1: 223, 2: 403, 4: 787, 8: 1574}, "between spaces"),
    "per-gpu.csv": ("throughput", {8: 80520, 16: 156012.8, 32: 317260.8, 64: 623168},
                    "multiplied by the devices"),
    "plus-minus.md": ("throughput", {1: 240, 2: 464, 4: 892}, "± taken as the interval"),
    "repeated-columns.csv": ("time", {1: 33.033, 2: 18.033, 4: 10.0}, "3 repeats per number"),
    "repeated-rows.csv": ("throughput", {1: 48.399, 8: 332.996, 16: 666.98}, "3 repeats"),
    "sacct.txt": ("time", {4: 1390, 8: 760, 16: 425}, 'nodes from "NNodes"'),
    "sheets.tsv": ("throughput", {8: 871600, 16: 1710500, 32: 3326000}, "global batch from"),
    "swiss.csv": ("time", {1: 3600, 2: 1875, 4: 938, 8: 498}, 'time from "Zeit [s]" (s)'),
    "terminal.txt": ("throughput", {8: 4853.2, 16: 9512.8, 32: 18630.1}, "between spaces"),
    "thousands-k.csv": ("throughput", {8: 1100, 16: 2180, 32: 4080, 64: 8530, 128: 11600}, "TPUs"),
    "topologies.csv": ("throughput", {8: 2428, 16: 4638, 32: 9445, 64: 18335}, '"config"'),
    "transposed.csv": ("throughput", {1: 458, 2: 884, 4: 1766, 8: 3360}, "one column per number"),
    "units-line.csv": ("time", {1: 2352, 2: 1356, 4: 840}, "Time (min)"),
    "wiki-transposed.txt": ("throughput", {1: 81.796, 2: 135.539, 4: 265.958, 8: 411.662},
                            'devices from "row 1"'),
    "units-in-cells.csv": ("throughput", {1: 29.7, 8: 229, 16: 459}, '"speed" (images/s)'),
}  # fmt: skip
REFUSED = {
    "no-devices.csv": ("none is the number of devices", "name it devices, GPUs"),
    "several-models.csv": ('differ in "model": resnet50, resnet152', "keep the rows of one"),
}
UNITS = {
    "excel-german.csv": "images", "nodes-and-gpus.csv": "tokens", "topologies.csv": "sequences",
    "course-speedup.csv": "baseline", "units-in-cells.csv": "images",
}  # fmt: skip


def load(name, **options):
    (curve,) = results.curves([TABLES / name], **options)
    return curve


def read_as(curve):
    (line,) = read_as_lines(curve)
    return line


def test_every_table_is_read_or_refused():
    assert {path.name for path in TABLES.iterdir()} == READ.keys() | REFUSED.keys()
    assert len(READ) >= 28


@pytest.mark.parametrize("name", READ)
def test_a_table_is_read_without_an_option_and_says_how(name):
    metric, expected, said = READ[name]
    curve = load(name)
    values = {point.devices: getattr(point, metric).value for point in curve.points}
    assert values == pytest.approx(expected, rel=1e-4)
    assert said in read_as(curve)
    assert curve.unit == UNITS.get(name, curve.unit)


@pytest.mark.parametrize("name", REFUSED)
def test_a_table_that_cannot_be_read_is_refused_with_the_reason(name):
    reason, hint = REFUSED[name]
    with pytest.raises(SpecError) as problem:
        load(name)
    assert reason in str(problem.value) and hint in problem.value.hint


def test_a_plain_table_needs_no_line():
    assert curve_from_csv("devices,throughput,time\n1,240,556\n2,464,439", name="t").read_as is None


def test_repeated_rows_give_the_interval_that_repeated_runs_give():
    point = load("repeated-rows.csv").points[0]
    assert point.throughput.count == 3
    assert 47.8 < point.throughput.low < 48.1 < 48.7 < point.throughput.high < 49.0


def test_a_spread_is_an_interval():
    rate = load("plus-minus.md").points[1].throughput
    assert (rate.low, rate.value, rate.high) == (458, 464, 470)


def test_nodes_are_counted():
    curve = load("topologies.csv")
    assert [(p.devices, p.nodes) for p in curve.points] == [(8, 1), (16, 2), (32, 4), (64, 8)]
    assert curve.devices_per_node == 8


def test_nodes_alone_need_their_size():
    text = "nodes,img/s\n1,892\n2,1668"
    with pytest.raises(SpecError, match="nodes and no devices") as problem:
        curve_from_csv(text, name="t")
    assert "devices_per_node=4" in problem.value.hint
    curve = curve_from_csv(text, name="t", devices_per_node=4)
    assert [(p.devices, p.nodes) for p in curve.points] == [(4, 1), (8, 2)]


def test_a_speedup_that_disagrees_with_the_values_is_a_doubt():
    (doubt,) = [d for d in load("ideal-and-oom.csv").doubts if d.kind == "columns disagree"]
    assert (doubt.devices, doubt.severity) == (4, "weakens")
    assert warning_text(doubt) == '"speedup" says 4.62 ×, but the other columns give 3.62 ×'


def test_relative_throughputs_claim_no_seconds():
    text = formats.text([load("course-speedup.csv")])
    assert "× baseline" in text and "baseline/s" not in text and "complete time" not in text


def test_a_batch_column_shows_how_the_batch_scales():
    assert load("iterations.csv").scaling == "weak"
    text = "GPUs,img/s,global batch\n1,100,256\n2,190,256"
    curve = curve_from_csv(text, name="t")
    assert curve.scaling == "strong"
    assert [point.global_batch for point in curve.points] == [256, 256]


@pytest.mark.parametrize(
    ("text", "value", "said"),
    [
        ("GPUs;time\n1;1,234\n2;2,345", 1.234, "commas taken as decimal marks"),
        ("GPUs;time\n1;1,234\n2;845", 1234, "a comma separates thousands"),
        ("GPUs;time\n1;100\n2;51,125\n4;25,250", 100, "a comma taken as the decimal mark, because"),
        ("GPUs;time\n1;51,125\n2;26\n4;13,250", 51.125, "the values are then closer together"),
        ("GPUs;time\n1;51.125\n2;26\n4;13.250", 51.125, "a point taken as the decimal mark"),
        ("GPUs;time\n1;5,120\n8;640\n64;80\n512;10", 5120, "the values are then closer together"),
        ("GPUs;time\n512;2,125\n1,024;1,125", 2125, "because a number of devices is whole"),
        ("GPUs;time\n1;1.234\n2;845", 1234, "a point separates thousands"),
        ("GPUs;time\n1;1.234\n2;2.345", 1.234, "a point before three digits"),
        ("GPUs\ttime\n1\t1,234\n2\t2,345", 1234, "taken as a thousands separator"),
        ("GPUs;time;speedup\n1;1.234;1,0\n2;2.345;0,5", 1234, "decimal commas"),
        ('GPUs,time\n1,"1,5"\n2,"0,8"', 1.5, "decimal commas"),
        ("GPUs,time\n1,1 234 567\n2,9", 1234567, "s, assumed"),
        ("GPUs,time\n1,1\u202f234\n2,9", 1234, "s, assumed"),
        ("GPUs,Time (hh:mm)\n1,1:30\n2,0:50", 5400, "hours and minutes"),
        ("GPUs,Time\n1,1:30\n2,0:50", 90, "minutes and seconds"),
        ("GPUs,Time\n1,350 ms\n2,200 ms", 0.35, 'time from "Time"'),
        ("GPUs,Time\n1,464 s (1.0x)\n2,240 s (1.9x)", 464, "brackets left out"),
    ],
)
def test_a_number_is_read_by_a_rule_that_is_said(text, value, said):
    curve = curve_from_csv(text, name="t")
    assert curve.points[0].time.value == pytest.approx(value)
    assert said in read_as(curve)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("GPUs,img/s (fp16),img/s (fp32)\n1,200,90\n2,390,170", "two columns.*disagree.*keep one"),
        ("GPUs,it/s\n1,2.2\n2,2.1", '"it/s" needs the samples of a step.*batch per GPU'),
        ("GPUs;time\n1;1.5\n2;1,2", "decimal mark of \"time\" is unclear: '1.5'.*'1,2'"),
        ("GPUs,img/s\n1,200\n2,many", "line 3: \"img/s\" must be a number above 0, got 'many'"),
        ("GPUs,time\n1,33\n2,18\nGPUs,img/s\n1,20", "line 4 begins a second table"),
        ("GPUs,time\n1,2,350\n2,1,354", "3 cells under 2 columns.*quotes"),
        ("GPUs,batch,img/s\n1,32,20\n2,32,39\n1,64,22\n2,64,43", 'differ in "batch": 32, 64'),
        ("GPUs,time\n,33\n,18", "line 2: devices and throughput or time are needed"),
        ("GPUs,time\n1,\n2,", "t has no throughput or time in any row"),
        ("model,,time\na,,3\nb,,2", "none is the number of devices"),
        ("GPUs;time\n1;1e200\n2;1e-200\n4;1,234", "line 2: time must be.* to 1e\\+100"),
        ("a" * 100_000 + ",time\n1,2", "100,005 characters, more than"),
        ("GPUs,loss\n1,0.3\n2,0.3", "none is a throughput, time or speedup"),
        ("GPUs,speed\n1,20 img/s\n2,39 tokens/s", "throughputs in images and tokens"),
    ],
)
def test_what_is_unclear_is_refused(text, said):
    with pytest.raises(SpecError) as problem:
        curve_from_csv(text, name="t")
    assert re.search(said, f"{problem.value} {problem.value.hint}")


def test_a_row_without_a_value_is_left_out_and_said():
    curve = curve_from_csv("devices,throughput\n1,240\n2,\n4,892", name="t")
    assert [point.devices for point in curve.points] == [1, 4]
    assert "rows without a throughput, time or speedup left out" in read_as(curve)


def test_text_is_decoded_as_excel_writes_it():
    text = "GPUs;Größe\n"
    for encoding in ("utf-8-sig", "utf-16", "utf-16-le", "cp1252"):
        assert decode_table(text.encode(encoding)) == text
    with pytest.raises(ValueError, match="save the sheet as CSV"):
        decode_table(b"PK\x03\x04...")


def test_the_example_of_the_guide_is_read_as_it_says(tmp_path):
    page = (ROOT / "docs/guides/tables.md").read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.M | re.S)
    example, said = [block for language, block in blocks if not language]
    (tmp_path / "scaling.csv").write_text(example)
    (curve,) = results.curves([tmp_path / "scaling.csv"])
    assert read_as(curve) == said.strip()


def test_speedups_alone_have_no_full_run():
    with pytest.raises(SpecError, match="only speedups"):
        results.curves([TABLES / "course-speedup.csv"], full_run=FullRun.parse("1e9 samples"))


@pytest.mark.parametrize("verb", ["measure", "predict --at 16", "advise --for efficiency=0.5"])
def test_every_verb_says_how_a_table_was_read(verb):
    name, *options = verb.split()
    argv = [name, str(TABLES / "excel-unicode.txt"), *options]
    done = CliRunner(env={"COLUMNS": "1000"}).invoke(app, argv)
    assert 'Read as: devices from "#GPUs", throughput from "img/sec" (images/s)' in done.stdout
    document = json.loads(CliRunner().invoke(app, [*argv, "--json"]).stdout)
    reading = document["curves"][0]["read_as"] if name == "measure" else document["read_as"]
    assert reading["columns"] == {"devices": "#GPUs", "throughput": "img/sec", "time": "Time (s)"}
    assert reading["says"].startswith("Read as: ") and reading["ignored"] == ["Notes"]
