"""The public Python API: thin functions over the modules that the command line also uses."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from scalewise import results, study
from scalewise.analysis.advise import Advice, Conditions, Purpose
from scalewise.analysis.advise import advise as choose_devices
from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.explain import Explanation
from scalewise.analysis.measure import Estimate, ScalingCurve, curve_from_numbers
from scalewise.analysis.predict import Prediction
from scalewise.analysis.predict import predict as predict_curve
from scalewise.record.read import RunRecord
from scalewise.report.text.advice import advice_sentences, advice_warnings, reason
from scalewise.report.text.doubts import with_warning_texts
from scalewise.report.text.prediction import prediction_sentences
from scalewise.spec import StudySpec

Pairs = Iterable[tuple[int, float]]


class _SilentWatcher:
    """A watcher of a study's progress that shows nothing."""

    def begin(self, todo: int, finished: int, request: str) -> None: ...
    def started(self, number: int, run: Any) -> None: ...
    def progressed(self, run: Any, share: float) -> None: ...
    def ended(self, run: Any, cause: str, seconds: float) -> None: ...
    def note(self, sentence: str) -> None: ...
    def warn(self, problem: Exception) -> None: ...


def run(
    question: str | Path | StudySpec,
    folder: str | Path | None = None,
    *,
    variant: str | None = None,
    again: bool = False,
) -> Path:
    """Run ``question``, a study file or ``StudySpec``; return its folder, by default ``runs/NAME``.
    ``variant`` names a [variant.NAME] section of the file; ``again`` repeats finished runs.
    """
    spec = question if isinstance(question, StudySpec) else study.load(Path(question), variant)
    study_folder = Path(folder) if folder else Path("runs") / spec.name
    study.run(spec, study_folder, _SilentWatcher(), again=again)
    return study_folder


def measure(
    source: str | Path,
    *,
    where: Mapping[str, Any] | None = None,
    scaling: str | None = None,
    devices_per_node: int | None = None,
) -> ScalingCurve:
    """Return the scaling curve of a study folder or a CSV file. ``where={"strategy": "fsdp"}``
    selects one of several curves; ``scaling`` and ``devices_per_node`` are for CSV files only.
    """
    curves = results.curves([Path(source)], scaling=scaling, devices_per_node=devices_per_node)
    return with_warning_texts(results.select_curve(curves, where, source))


def explain(
    folder: str | Path,
    *,
    where: Mapping[str, Any] | None = None,
    price: Rate | float | str | None = None,
) -> Explanation:
    """Return where a study's time went, with costs if there is a ``price`` (see ``advise``)."""
    return results.select_curve(results.explanations(Path(folder), price=price), where, folder)


def predict(curve: ScalingCurve | str | Path, at: int | Iterable[int]) -> Prediction:
    """Return the prediction for ``at`` devices, from a curve, a study folder or a CSV file."""
    measured = curve if isinstance(curve, ScalingCurve) else measure(curve)
    prediction = predict_curve(measured, [at] if isinstance(at, int) else at)
    return replace(prediction, sentences=prediction_sentences(prediction))


def advise(  # noqa: PLR0913 - one parameter per condition
    curve: ScalingCurve | str | Path,
    purpose: str | Iterable[str] | Purpose,
    at: Iterable[int] = (),
    *,
    price: Rate | float | str | None = None,
    watts: float | None = None,
    device: str | None = None,
    whole_nodes: bool = False,
    target: str | None = None,
    critical_batch: str | float | Estimate | None = None,
    batch: float | None = None,
    wait: str | None = None,
    interrupted_every: str | None = None,
    save: str | None = None,
    restart: str | None = None,
    worth: int | None = None,
    runs: int | None = None,
) -> Advice:
    """Return how many devices to use for a purpose, such as ``"deadline=2h"``, and why.

    Several purposes must all be met. Candidates are the measured device counts, ``at``, and the
    doublings between them; without ``at``, two more doublings. ``price`` is per device-hour, or a
    name from ``scalewise catalog prices``. If no energy was measured, ``watts`` per device count,
    or those of ``device`` in the catalog. ``whole_nodes`` charges partly used nodes in full.

    With ``target``, such as ``"epochs=90 at 256"``, the time is the time to reach the target;
    ``loss=`` and ``accuracy=`` need a study folder. ``critical_batch`` is the global batch that
    needs twice the samples of a small batch; ``batch`` is that of a CSV file. ``wait`` is the time
    in a queue (``"10min"``, ``"8=10min,32=6h"``). ``interrupted_every`` is the mean time between
    interruptions (``"12h"`` per device, ``"12h per node"``); ``save`` and ``restart`` are the times
    of a checkpoint and a restart, by default as recorded. The advice also says what would make
    ``worth`` devices worthwhile, and how to place ``runs`` equal runs.
    """
    records: list[RunRecord] = []  # Only a study folder has records.
    if isinstance(curve, ScalingCurve):
        measured = curve
    elif Path(curve).is_dir():
        measured, records = results.curve_and_records(Path(curve))
    else:
        measured = measure(curve)
    parsed = purpose if isinstance(purpose, Purpose) else Purpose.parse(purpose)
    advice = choose_devices(
        measured,
        parsed,
        at,
        price=price,
        watts=watts,
        device=device,
        whole_nodes=whole_nodes,
        conditions=Conditions(
            target=target,
            critical_batch=critical_batch,
            batch=batch,
            wait=wait,
            interrupted_every=interrupted_every,
            save=save,
            restart=restart,
            records=records,
        ),
        worth=worth,
        runs=runs,
    )
    return replace(
        advice,
        reason=reason(advice),
        sentences=advice_sentences(advice),
        warnings=advice_warnings(advice),
    )


def curve(
    throughputs: Pairs = (),
    *,
    times: Pairs = (),
    energies: Pairs = (),
    scaling: str | None = None,
    devices_per_node: int | None = None,
) -> ScalingCurve:
    """Return a curve from ``(devices, value)`` pairs; values are samples/s, seconds and kWh."""
    compared = curve_from_numbers(
        throughputs,
        times=times,
        energies=energies,
        scaling=scaling,
        devices_per_node=devices_per_node,
    )
    return with_warning_texts(compared)
