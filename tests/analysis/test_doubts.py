"""Every verb names the doubt about a broken source first; sound sources raise none that block."""

import json
import shutil
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from builders import a_study
from fake_study import play_all
from guard_cases import FAULTY, healthy
from paths import DOCS, TESTS
from scalewise import api, results
from scalewise.analysis.doubts import with_doubts
from scalewise.analysis.measure import Doubt, Estimate, curve_from_numbers
from scalewise.analysis.measure.doubt import SEVERITIES, code_of, widening
from scalewise.analysis.predict import predict
from scalewise.catalog.curves import load_published_curves
from scalewise.record.write import rank_file, write_json
from scalewise.report.text.doubts import DOUBT_TEXT, MENDS, alert_lines, warning_text
from unsealed import unseal

FOLDERS, PUBLISHED = TESTS / "folders", TESTS.parent / "studies" / "published"
Change = Callable[[int, int, list[dict[str, Any]]], list[dict[str, Any]]]
"""A function of the devices, the rank and the lines of its file that returns other lines."""


def a_folder(folder: Path, change: Change | None = None, **study: Any) -> Path:
    """Play a study on the fake machine, and change the lines that its ranks wrote."""
    batch = {} if "global_batch" in study else {"batch": 16}
    spec = a_study(**{"steps": 100, "topologies": ["1x1", "1x2"], **batch, **study})
    write_json(folder / "study.json", {"schema": 1, **spec.to_dict()})
    with redirect_stdout(StringIO()):
        list(play_all(spec, folder))
    for run in spec.runs() if change else ():
        for rank in range(run.topology.world):
            path = rank_file(unseal(folder / run.id), rank)
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            assert change
            changed = change(run.topology.world, rank, lines)
            path.write_text("".join(f"{json.dumps(line)}\n" for line in changed))
    return folder


def faulty(name: str) -> Change:
    """Return a change that notes the facts of a watched program which has this fault."""

    def change(world: int, rank: int, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        fault = FAULTY[name] if world == 2 else {}
        own = healthy(rank) | {"epoch_samples": 10_000 // world} | fault.get("facts", {})
        facts = own | fault.get("by_rank", ({}, {}))[rank]
        *others, end = lines
        noted = [{"attempt": 1, "facts": facts}]
        if rank and "steps" in fault:
            outline = next(line["outline"] for line in lines if "outline" in line)
            noted.append({"attempt": 1, "outline": {**outline, "steps": 30}})
        return [*others, *noted, end]

    return change


def noting(world: int, **notes: Any) -> Change:
    """Return a change that adds notes to the ranks of runs with this many devices."""

    def change(devices: int, rank: int, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        *others, end = lines
        return [*others, {"attempt": 1, **notes}, end] if devices == world else lines

    return change


def validated(devices: int, rank: int, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Note a validation that is far worse on two devices than on one."""
    *others, end = lines
    accuracy = {"accuracy": 0.9 if devices == 1 else 0.5, "loss": 1.0, "samples": 1000}
    return [*others, {"attempt": 1, "epoch": 0, "validation": accuracy}, end]


def on_one_host(devices: int, rank: int, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Let all ranks be on the same host."""
    return [{**line, "host": "vm"} if "host" in line else line for line in lines]


def slowing(devices: int, rank: int, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make the steps of a run slower and slower: the last twice as slow as the first."""
    changed = []
    for line in lines:
        if "each" in line and devices == 2:
            seconds = [
                second * (1 + index / 100)
                for index, second in zip(line["index"], line["each"]["seconds"], strict=True)
            ]
            each = {**line["each"], "seconds": seconds}
            line = {**line, "seconds": sum(seconds), "each": each}
        changed.append(line)
    return changed


def damaged(folder: Path) -> Path:
    """Return a study of three sizes, one of whose runs cannot be read."""
    a_folder(folder, topologies=["1x1", "1x2", "1x4"])
    last = max(path.parent for path in folder.glob("*/rank-00003.jsonl"))
    rank_file(last, 1).write_text("{broken\n")
    return folder


def stored(name: str) -> Callable[[Path], Path]:
    return lambda folder: Path(shutil.copytree(FOLDERS / name, folder))


TABLES = {
    "implausible-efficiency": "devices,throughput\n1,240\n2,470\n4,48000\n8,1800\n",
    "implausible-efficiency (a digit lost)": "devices,throughput\n1,240\n2,470\n4,92\n8,1800\n",
    "implausible-efficiency (times)": "devices,time\n1,1000\n2,510\n4,26\n8,130\n",
    "superlinear": "devices,throughput\n1,240\n2,560\n4,1010\n",
    "outlier": "devices,throughput\n1,240\n2,475\n4,930\n8,1350\n16,3500\n32,6800\n",
    "outlier (times)": (PUBLISHED / "vit-h14-tiny-224.csv").read_text(),
    "impossible-time": "devices,throughput,time,samples\n1,100,5,10000\n2,190,53,10000\n",
    "time-disagrees": "devices,throughput,time\n1,240,1100\n2,470,560\n4,930,1000\n8,1800,150\n",
    "time-disagrees (3 rows)": "gpus,time (h),images/sec\n1,10,380\n2,5.5,740\n4,9,1420\n",
    "columns-disagree": "GPUs,images/sec,speedup\n1,240,1\n2,470,1.96\n4,930,2.5\n",
}
BROKEN: dict[str, Callable[[Path], Path]] = {
    **{
        code_of(name): lambda folder, name=name: a_folder(folder, faulty(name), steps=40)
        for name in ("same samples", "no exchange", "lost samples", "drift", "step counts")
    },
    "repeated-samples": lambda folder: a_folder(folder, faulty("repeated samples"), steps=40),
    "set-epoch": lambda folder: a_folder(folder, faulty("set_epoch"), steps=40),
    "few-steps": lambda folder: a_folder(folder, steps=12),
    "few-steps (built-in)": stored("built-in"),
    "not-steady": lambda folder: a_folder(folder, slowing),
    "overloaded": stored("requeued"),
    "loss-not-finite": lambda folder: a_folder(folder, noting(2, loss=float("inf"))),
    "watching-stopped": lambda folder: a_folder(folder, noting(2, unwatched="a hook failed")),
    "left-out": damaged,
    "rehearsed": lambda folder: a_folder(folder, on_one_host, topologies=["1x1", "2x1"]),
    "accuracy-differs": lambda folder: a_folder(folder, validated),
    "samples-unclear": lambda folder: a_folder(
        folder, noting(2, facts=healthy(0) | {"split": True, "samples": [None] * 3})
    ),
}
VERBS = {
    "summary": (),
    "measure": (),
    "explain": (),
    "predict": ("--at", "16"),
    "advise": ("--for", "time"),
    "report": ("-o", "report.md"),
}


@pytest.mark.parametrize("case", [*TABLES, *BROKEN])
def test_every_verb_says_the_doubt_first_and_none_answers_what_it_blocks(case, scalewise, tmp_path):
    code = case.partition(" (")[0]
    if case in TABLES:
        source = tmp_path / "table.csv"
        source.write_text(TABLES[case])
    else:
        source = BROKEN[case](tmp_path / "study")
    severity = {code_of(kind): severity for kind, severity in SEVERITIES.items()}[code]
    for verb, options in VERBS.items():
        if verb == "explain" and case in TABLES:
            continue  # A table does not show where its time went.
        exit_code, out, err = scalewise(verb, source, *options)
        if severity == "blocks" and verb in ("predict", "advise"):
            assert (exit_code, out) == (1, "") and f"[{code}]" in err
            assert f"--despite {code}" in err
            exit_code, out, _ = scalewise(verb, source, *options, "--despite", code)
        assert exit_code == 0, err
        text = Path("report.md").read_text().replace("\\", "") if verb == "report" else out
        first = [line for line in text.splitlines() if line.strip()][:5]
        assert f"[{code}]" in "\n".join(first), (verb, first)
        if severity == "blocks" and verb == "summary":
            assert "No answer" in text and "use " not in text.splitlines()[2]
    _, told, _ = scalewise("summary", source, "--json")
    (values,) = json.loads(told)["summaries"]
    doubt = next(each for each in values["doubts"] if each["code"] == code)
    assert doubt["severity"] == severity and doubt["text"] and doubt["mend"]


def test_predictions_have_doubts_of_their_own(scalewise, tmp_path):
    folder = a_folder(tmp_path / "study", scaling="strong", global_batch=64)
    exit_code, _, err = scalewise("predict", folder, "--at", "512")
    assert exit_code == 1 and "[batch-too-small]" in err and "64 gives 512 devices" in err
    exit_code, out, _ = scalewise("predict", folder, "--at", "512", "--despite", "batch-too-small")
    assert exit_code == 0 and "[batch-too-small]" in out.splitlines()[0]
    _, out, _ = scalewise("predict", folder, "--at", "3")
    assert "[uneven-batch]" in out.splitlines()[0]
    _, out, _ = scalewise("predict", folder, "--at", "16")
    assert "[far-extrapolation]" in out.splitlines()[0]


def test_nodes_that_are_not_filled_are_named(scalewise, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("devices,throughput\n1,100\n2,190\n4,350\n8,600\n")
    says = "4, 8 devices do not fill nodes of 3: all nodes but the last are taken as full (4 "
    asked = [str(table), "--devices-per-node", "3"]
    assert says in " ".join(scalewise("measure", *asked)[1].split())
    predicted = " ".join(scalewise("predict", *asked, "--at", "16,18")[1].split())
    assert says in predicted
    assert "16 devices do not fill nodes of 3" in predicted
    full = scalewise("predict", str(table), "--devices-per-node", "4", "--at", "16")[1]
    assert "do not fill" not in full
    table.write_text("devices,throughput\n" + "".join(f"{n},{100 * n}\n" for n in range(1, 100)))
    measured = " ".join(scalewise("measure", *asked)[1].split())
    assert "4, 5, 7, …, 98 devices do not fill nodes of 3" in measured


def test_a_weakening_doubt_widens_the_interval(tmp_path):
    calm = results.curves([a_folder(tmp_path / "calm", repeats=2, options={"noise": 0.02})])[0]
    doubted = with_doubts(calm)
    assert widening(doubted.doubts) == 0
    weakened = with_doubts(
        calm.__class__(**{**vars(calm), "warnings": (Doubt("left out", {}, error=0.2),)})
    )
    before, after = (predict(curve, [4]).points[0].throughput for curve in (doubted, weakened))
    assert after.low < before.low < before.high < after.high
    assert after.value == before.value


def test_an_added_error_widens_and_keeps_a_positive_value_positive():
    assert Estimate(10.0).widened(0.5) == Estimate(10.0)
    wide = Estimate(10.0, 9.0, 11.0).widened(3.0)
    assert 0 < wide.low < 9 and wide.high == pytest.approx(40, rel=0.01)


def sound_curves(folder: Path):
    """Yield the published tables, every tenth curve of the catalog, and noisy fake machines."""
    yield from chain.from_iterable(results.curves([path]) for path in PUBLISHED.glob("*.csv"))
    # The family "seed" holds the published tables again.
    usable = [c for c in load_published_curves() if not c.suspect and c.family != "seed"]
    for curve in usable[::10]:
        values = {"throughputs" if curve.metric == "throughput" else "times": curve.points}
        yield with_doubts(
            curve_from_numbers(
                values.get("throughputs", ()), times=values.get("times", ()),
                scaling=curve.scaling, devices_per_node=curve.devices_per_node,
            )
        )  # fmt: skip
    for seed in range(16):
        options = {"noise": 0.05, "drift": 0.02, "jitter": 0.05}
        yield from results.curves([a_folder(folder / str(seed), seed=seed, options=options)])


def test_sound_sources_raise_hardly_a_doubt(tmp_path):
    curves = list(sound_curves(tmp_path))
    assert len(curves) > 40
    found = [[doubt.severity for doubt in curve.doubts] for curve in curves]
    assert not any("blocks" in severities for severities in found)
    assert sum("weakens" in severities for severities in found) <= 0.05 * len(curves)


def test_the_whole_catalog_raises_hardly_a_doubt():
    doubted = blocked = 0
    published = [curve for curve in load_published_curves() if not curve.suspect]
    for curve in published:
        is_time = curve.metric == "time"
        made = curve_from_numbers(
            () if is_time else curve.points, times=curve.points if is_time else (),
            scaling=curve.scaling, devices_per_node=curve.devices_per_node,
        )  # fmt: skip
        severities = [doubt.severity for doubt in with_doubts(made).doubts]
        doubted += "weakens" in severities
        blocked += "blocks" in severities
    assert blocked == 0 and doubted <= 0.05 * len(published)


def test_every_serious_doubt_is_in_the_guide_and_has_a_mend():
    guide = (DOCS / "guides" / "doubts.md").read_text()
    assert set(DOUBT_TEXT) == set(SEVERITIES)
    for kind, severity in SEVERITIES.items():
        if severity != "notes":
            assert f"| `{code_of(kind)}` |" in guide and kind in MENDS


def test_many_doubts_are_counted():
    kinds = [kind for kind, severity in SEVERITIES.items() if severity == "weakens"]
    simple = [Doubt("few steps", {"count": 3}, n) for n in (2, 4)]
    lines = alert_lines([*simple, Doubt("rehearsed", {"nodes": 2, "hosts": 1}, 4)])
    assert "(and 1 more like this)" in lines[0]
    assert len(kinds) > 3


def test_trouble_with_disks_and_clocks_is_said(tmp_path):
    disk = {"error": "No space left on device", "refused": 12.4, "blocked": 5.0}
    folder = a_folder(tmp_path, noting(2, disk=disk, clock_set=[3600.0]), steps=40)
    doubts = [doubt for point in api.measure(folder).points for doubt in point.warnings]
    sentences = " ".join(map(warning_text, doubts))
    assert "refused the lines of rank 0 for 12.4 s (No space left on device)" in sentences
    assert "single writes of rank 0 to its disk took 5 s" in sentences
    assert "was set by +3,600 s during a run" in sentences
