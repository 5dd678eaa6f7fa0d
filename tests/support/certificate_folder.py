"""A study's folder with a certificate: fake runs with the sketches of a simulated training."""

from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from builders import a_run, a_study
from fake_study import play, play_all
from scalewise.analysis.certify import SketchedRun
from scalewise.record.certificate_files import FOLDER, PlannedComparison, write_comparisons
from scalewise.record.write import RankFile, write_json
from scalewise.spec import RunSpec
from simulated_training import certified


def certified_study(folder: Path, **training: Any) -> Path:
    """Play a fake study on 1 and 2 devices, and record the certificate of this training."""
    study = a_study(steps=100, batch=16, topologies=["1x1", "1x2"])
    write_json(folder / "study.json", study.to_dict())
    with redirect_stdout(StringIO()):
        list(play_all(study, folder))
    record_certificate(folder / FOLDER, **training)
    return folder


def record_certificate(folder: Path, **training: Any) -> None:
    """Record reference, reversed reference and candidate of a simulated training."""
    base = a_run(certify=True, batch=32, steps=24)
    runs = (
        base,
        replace(base, certify_order="reversed"),
        a_run(certify=True, batch=16, steps=24, topology="1x2"),
    )
    with redirect_stdout(StringIO()):
        for run, sketched in zip(runs, certified(**training), strict=True):
            _record(run, sketched, folder)
    reference, backwards, candidate = (run.id for run in runs)
    write_comparisons(folder, [PlannedComparison(candidate, reference, backwards, {})])


def _record(run: RunSpec, sketched: SketchedRun, folder: Path) -> None:
    home = play(run, folder).folder
    for rank in range(run.topology.world):
        file = RankFile(home, rank, 1)
        order = "reversed" if sketched.is_reversed else "usual"
        facts = {"order": order, "precision": "float32", "batch_norm": [*sketched.batch_norm]}
        file.line({"certificate": {"dropout_off": 1, **facts}})
        for (step, kind), layers in sketched.layers.items():
            values = {
                name: {"sums": copies[rank].sketch.sums, "squares": copies[rank].sketch.squares}
                for name, copies in layers.items()
            }
            file.line({"sketch": {"step": step, "kind": kind, "layers": values}})
        for step, taken in sketched.samples[rank].items():
            samples = {"count": taken.count, "fingerprints": [*taken.fingerprints]}
            file.line({"sketch_samples": {"step": step, **samples}})
        file.close()
