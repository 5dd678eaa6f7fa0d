"""Every span that is declared is in every table, plot and answer of the complete time."""

import ast
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import scalewise
from builders import a_run, a_study
from paths import DOCS
from scalewise import results
from scalewise.analysis.advise.job_time import EPOCH_SPANS, START_SPANS
from scalewise.analysis.explain.whatif import REMOVABLE_PARTS
from scalewise.analysis.measure import Estimate
from scalewise.analysis.measure.window import lifetime_parts
from scalewise.analysis.predict.complete_time import FITTED_START
from scalewise.frameworks.__main__ import do_train
from scalewise.record.close import close
from scalewise.record.read import RankRecord, RunRecord, Span, Steps
from scalewise.record.schema import PHASES, SPAN_COLORS, SPANS, UNEXPLAINED, recurring
from scalewise.record.write import write_json
from scalewise.report import curve_table, explanation_sections, formats, page, tables
from scalewise.report.curve_report import curve_reports
from scalewise.report.figures.times import complete_time
from scalewise.spec import StudySpec

NAMES = [span.name for span in SPANS]
SOURCE = Path(scalewise.__file__).parent
PARTS = [*NAMES, UNEXPLAINED]
QUEUED = 100.0
"""Seconds from the first launch of a requeued job to the second."""


def requeued(folder: Path, monkeypatch, *, world: int = 2) -> Path:
    """Play a study whose one job was put back into the queue after its first attempt."""
    study = a_study(topologies=[f"1x{world}"], options={"launch": 4.0})
    write_json(folder / "study.json", study.to_dict())
    (run,) = study.runs()
    home = folder / run.id
    write_json(home / "spec.json", run.to_dict())
    write_json(home / "job.json", {"attempt": 1, "world": world})
    first = time.time()
    monkeypatch.setenv("SCALEWISE_FIRST", "1")
    for attempt, launched in ((1, first), (2, first + QUEUED)):
        monkeypatch.setenv("SCALEWISE_ATTEMPT", str(attempt))
        monkeypatch.setenv("SCALEWISE_LAUNCHED", repr(launched))
        if attempt == 2 and world > 1:
            (home / "rank-00001.jsonl").unlink()  # It had not begun when the job was preempted.
        assert do_train(str(home)) == 0
    assert not close(home, attempt=2, world=world, ended=time.time())
    return folder


def cells(shown_tables: list[tables.Table], words: str) -> dict[str, float]:
    """Return the first row of the table of the complete time, without its growth."""
    (shown,) = (each for each in shown_tables if words in each.title)
    return {
        name: float(cell.partition(" ")[0].replace(",", ""))
        for name, cell in list(zip(shown.header, shown.rows[0]))[1:]
    }


@pytest.mark.parametrize("world", [1, 2])
def test_every_second_of_a_requeued_run_is_told(tmp_path, monkeypatch, world):
    folder = requeued(tmp_path, monkeypatch, world=world)
    (curve,) = results.curves([folder])
    (why,) = results.explanations(folder)
    (point,) = curve.points
    assert point.time.value > QUEUED
    (section,) = curve_table.sections([curve])
    (reasons,) = explanation_sections.sections([why])
    told = {
        "measure": cells(section.tables, "Where the complete time went"),
        "explain": cells(reasons.tables, "The complete time in seconds"),
        "json": {
            name: part["value"]
            for name, part in json.loads(formats.as_json([curve]))["curves"][0]["points"][0][
                "complete"
            ].items()
        },
        "json of explain": json.loads(explanation_sections.as_json([why]))["curves"][0]["points"][
            0
        ]["complete"],
        "plot": {part.name: part.heights[0] for part in time_bars(folder, curve, why)},
    }
    for where, parts in told.items():
        assert parts["earlier"] == pytest.approx(QUEUED, abs=0.1), where
        assert sum(parts.values()) == pytest.approx(point.time.value, abs=0.05), where
        assert parts[UNEXPLAINED] == pytest.approx(0.0, abs=0.01), where
    assert page.html(curve_reports([(folder, curve, why)])).count(">earlier</th>") == 2


def time_bars(folder, curve, why):
    figure = complete_time(curve_reports([(folder, curve, why)]))
    size = {"seconds, complete job": 1, "minutes, complete job": 60}[figure.y.label]
    return [replace(part, heights=(size * part.heights[0],)) for part in figure.bars]


def test_every_declared_span_is_in_every_output(tmp_path, monkeypatch):
    folder = requeued(tmp_path, monkeypatch, world=1)
    (curve,) = results.curves([folder])
    (why,) = results.explanations(folder)
    seconds = {name: 1.0 + place for place, name in enumerate([*PARTS, "of a plugin"])}
    estimates = {name: Estimate(value) for name, value in seconds.items()}
    whole = Estimate(sum(seconds.values()))
    curve = replace(curve, points=(replace(curve.points[0], complete=estimates, time=whole),))
    point = replace(why.points[0], complete=seconds, grown=dict.fromkeys(seconds, 0.0))
    why = replace(why, points=(point,))
    (section,) = curve_table.sections([curve])
    (reasons,) = explanation_sections.sections([why])
    assert cells(section.tables, "Where the complete time went") == seconds
    assert cells(reasons.tables, "The complete time in seconds") == seconds
    bars = time_bars(folder, curve, why)
    assert {part.name: part.heights[0] for part in bars} == pytest.approx(seconds)
    assert len({part.color for part in bars}) == len(seconds)
    html = page.html(curve_reports([(folder, curve, why)]))
    assert all(html.count(f">{name}</th>") >= 2 for name in seconds)
    for text in (formats.as_json([curve]), explanation_sections.as_json([why])):
        assert set(json.loads(text)["curves"][0]["points"][0]["complete"]) == set(seconds)
    assert all(f"complete_{name}" in formats.comma_separated([curve]) for name in seconds)


@pytest.mark.parametrize("program", [False, True])
def test_every_declared_span_counts_in_the_life_of_a_run(program):
    spans = tuple(Span(name, float(at), at + 1.0, {}) for at, name in enumerate(NAMES))
    steps = Steps(*(np.zeros(0),) * 3, phases={})
    rank = RankRecord(0, "here", spans, steps, ({"guest": program},))
    record = RunRecord(Path(), a_run(), 0.0, len(NAMES) + 0.0, {}, (rank,))
    assert lifetime_parts(record) == {**dict.fromkeys(NAMES, 1.0), UNEXPLAINED: 0.0}


def test_what_is_declared_of_spans_is_whole():
    assert len({span.precedence for span in SPANS}) == len(SPANS)
    assert set(SPAN_COLORS) == set(PARTS)
    assert len(set(SPAN_COLORS.values())) == len(SPAN_COLORS)
    again = {"train", "earlier", "trace", "loaders"}
    assert {*START_SPANS, *EPOCH_SPANS} - {FITTED_START} | again == set(PARTS)
    assert {*REMOVABLE_PARTS.values()} == {*recurring("every epoch")}


def test_every_written_span_and_phase_is_declared():
    declared = {*NAMES, *(phase.name for phase in PHASES)}
    calls = (
        node
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args
        if node.func.attr in ("span", "lap") and isinstance(node.args[0], ast.Constant)
    )
    written = {call.args[0].value for call in calls}
    assert {"rendezvous", "checkpoint", "input", "pipeline", "sync"} <= written <= declared


@pytest.mark.parametrize(
    "path", ["metrics/complete-time.md", "reference/json.md", "reference/run-folder.md"]
)
def test_every_declared_span_is_documented(path):
    text = (DOCS / path).read_text()
    assert [name for name in NAMES if f"`{name}`" not in text] == []


def test_the_meaning_of_every_span_and_phase_is_documented():
    text = (DOCS / "reference/run-folder.md").read_text()
    rows = [f"| `{kind.name}` | {kind.meaning} |" for kind in (*SPANS, *PHASES)]
    assert [row for row in rows if row not in text] == []


PROGRAM = """
import time
from scalewise import probe
for _ in range(30):
    time.sleep(0.005)
    probe.step(samples=8)
"""


def test_every_second_of_a_requeued_program_is_told(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    values = {"program": [str(script)], "topology": "1x1"}
    study = StudySpec.from_dict({"name": "requeued", "scaling": None, "run": values})
    folder = tmp_path / "runs"
    write_json(folder / "study.json", study.to_dict())
    (run,) = study.runs()
    home = folder / run.id
    write_json(home / "spec.json", run.to_dict())
    write_json(home / "job.json", {"attempt": 1, "world": 1})
    first = time.time() - QUEUED
    for attempt, launched in ((1, first), (2, time.time())):
        own = {"RUN": str(home), "FIRST": "1", "ATTEMPT": str(attempt), "LAUNCHED": repr(launched)}
        env = {**os.environ, **{f"SCALEWISE_{name}": value for name, value in own.items()}}
        subprocess.run([sys.executable, script], env=env, check=True)
    assert not close(home, attempt=2, world=1, ended=time.time())
    (curve,) = results.curves([folder])
    parts = curve.points[0].complete
    assert parts["earlier"].value == pytest.approx(QUEUED, rel=0.1)
    assert sum(part.value for part in parts.values()) == pytest.approx(curve.points[0].time.value)
    assert parts[UNEXPLAINED].value < 1.0
