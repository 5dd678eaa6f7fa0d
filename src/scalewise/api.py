"""The public Python API: thin functions over the modules that the command line also uses."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from scalewise import results, study
from scalewise.analysis.advise import Advice, Conditions, Purpose
from scalewise.analysis.advise import advise as choose_devices
from scalewise.analysis.certify import Certificate
from scalewise.analysis.compare import (
    DEFAULT_DIFFERENCE,
    Comparison,
    Trend,
    compare_sides,
    match_sides,
    trend_of_sources,
)
from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.doubts import with_doubts
from scalewise.analysis.explain import Explanation
from scalewise.analysis.full_run import full_run_curve, per_unit_of_work
from scalewise.analysis.measure import Estimate, ScalingCurve, curve_from_numbers
from scalewise.analysis.predict import Prediction, predict_and_check
from scalewise.analysis.summary import Summary, summarize
from scalewise.certificates import certificates
from scalewise.errors import SpecError
from scalewise.load_run import cache_runs
from scalewise.record.read import RunRecord
from scalewise.report.text.advice import advice_sentences, advice_warnings, reason
from scalewise.report.text.compare import compare_lines, refuse_doubtful_sides
from scalewise.report.text.doubts import (
    alert_lines,
    naming_left_out,
    refuse_blocking,
    with_warning_texts,
)
from scalewise.report.text.prediction import prediction_sentences
from scalewise.report.text.summary import summary_lines
from scalewise.report.text.trend import trend_lines
from scalewise.spec import FullRun, StudySpec

Pairs = Iterable[tuple[int, float]]


class _SilentWatcher:
    """A watcher of a study's progress that shows nothing."""

    def begin(self, todo: int, finished: int, request: str) -> None: ...
    def started(self, number: int, run: Any) -> None: ...
    def progressed(self, run: Any, status: Any) -> None: ...
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
    cache_runs(study_folder)
    if spec.certify:
        _run_certificate(spec, study_folder, again=again)
    return study_folder


def certify(
    question: str | Path | StudySpec,
    folder: str | Path | None = None,
    *,
    variant: str | None = None,
    steps: int = study.CERTIFICATE_STEPS,
    again: bool = False,
) -> list[Certificate]:
    """Return whether each run of ``question`` learns what one device learns. ``question`` is a
    study file or ``StudySpec``, whose missing short runs are started in ``folder``, by default
    ``runs/NAME``; or a study's folder, whose recorded runs are compared.
    """
    if not isinstance(question, StudySpec) and Path(question).is_dir():
        return certificates([Path(question)])
    spec = question if isinstance(question, StudySpec) else study.load(Path(question), variant)
    study_folder = Path(folder) if folder else Path("runs") / spec.name
    return certificates([_run_certificate(spec, study_folder, steps=steps, again=again)])


def _run_certificate(
    spec: StudySpec, folder: Path, *, steps: int = study.CERTIFICATE_STEPS, again: bool
) -> Path:
    plan = study.plan_certificate(spec, steps=steps)
    return study.run_certificate(plan, folder, _SilentWatcher(), again=again)


def measure(
    source: str | Path,
    *,
    where: Mapping[str, Any] | None = None,
    scaling: str | None = None,
    devices_per_node: int | None = None,
    full_run: str | None = None,
    samples_per_step: int | None = None,
) -> ScalingCurve:
    """Return the scaling curve of a study folder or a CSV file. ``where={"strategy": "fsdp"}``
    selects one of several curves; ``scaling`` and ``devices_per_node`` are for CSV files only.
    With ``full_run``, such as ``"90 epochs"``, times are those of that training.
    ``samples_per_step`` are those of a rank of a user's program, if they were not seen.
    """
    curves = results.curves(
        [Path(source)],
        scaling=scaling,
        devices_per_node=devices_per_node,
        full_run=_parse_full_run(full_run),
        samples_per_step=samples_per_step,
    )
    return with_warning_texts(results.select_curve(curves, where, source))


def explain(
    folder: str | Path,
    *,
    where: Mapping[str, Any] | None = None,
    price: Rate | float | str | None = None,
    full_run: str | None = None,
    samples_per_step: int | None = None,
) -> Explanation:
    """Return where a study's time went, with costs if there is a ``price`` (see ``advise``)."""
    explained = results.explanations(
        Path(folder),
        price=price,
        full_run=_parse_full_run(full_run),
        samples_per_step=samples_per_step,
    )
    return results.select_curve(explained, where, folder)


def summary(
    source: str | Path,
    *,
    where: Mapping[str, Any] | None = None,
    scaling: str | None = None,
    devices_per_node: int | None = None,
    full_run: str | None = None,
    samples_per_step: int | None = None,
) -> Summary:
    """Return the answer about a study folder or a CSV file: worth it, how many devices, why."""
    loaded = results.all_explained(
        [Path(source)],
        scaling=scaling,
        devices_per_node=devices_per_node,
        full_run=_parse_full_run(full_run),
        samples_per_step=samples_per_step,
    )
    selected = results.select_curve([curve for _, curve, _ in loaded], where, source)
    explanation = next(why for _, curve, why in loaded if curve is selected)
    answer = summarize(selected, explanation, source=str(source))
    return replace(answer, lines=(*alert_lines(answer.doubts), *summary_lines(answer)))


def compare(
    first: str | Path,
    second: str | Path,
    *,
    where: Mapping[str, Any] | None = None,
    at: Iterable[int] = (),
    difference: float = DEFAULT_DIFFERENCE,
    despite: Sequence[str] = (),
) -> Comparison:
    """Compare a study folder, the folder of a single run, or a table with another one: which
    differences are larger than noise, and which cause moved. ``difference`` is the relative
    difference that should be found, for the number of repeats that are needed.
    """
    results.refuse_same_source([Path(first), Path(second)])
    sides, other_sides = (results.comparison_sides(Path(source)) for source in (first, second))
    pairs = match_sides(sides, other_sides, where)
    if len(pairs) > 1:
        names = "; ".join(side.curve.name for side, _ in pairs)
        raise SpecError(f"{first} and {second} have {len(pairs)} curves in common", hint=names)
    refuse_doubtful_sides(pairs[0], despite)
    comparison = compare_sides(*pairs[0], wanted=difference, at=tuple(at))
    return replace(comparison, lines=tuple(compare_lines(comparison)))


def trend(
    sources: Iterable[str | Path],
    *,
    where: Mapping[str, Any] | None = None,
    at: Iterable[int] = (),
    despite: Sequence[str] = (),
) -> Trend:
    """Return the history of several results: throughput on each common number of devices, in the
    order of time (tables: in the order given), and where it changed by more than noise.
    """
    loaded = [results.comparison_sides(Path(source)) for source in sources]
    refuse_doubtful_sides([side for sides in loaded for side in sides], despite)
    history = trend_of_sources(loaded, where, at=tuple(at))
    return replace(history, lines=tuple(trend_lines(history)))


def predict(
    curve: ScalingCurve | str | Path,
    at: int | Iterable[int],
    *,
    full_run: str | None = None,
    despite: Sequence[str] = (),
) -> Prediction:
    """Return the prediction for ``at`` devices, from a curve, a study folder or a CSV file. A
    measured number of devices is predicted from the smaller ones and compared (``checks``). With
    ``full_run``, such as ``"90 epochs"``, times are those of that training. A doubt that blocks the
    prediction raises DoubtfulData, unless its code is in ``despite``.
    """
    if isinstance(curve, ScalingCurve):
        measured = full_run_curve(curve, FullRun.parse(full_run)) if full_run else curve
    else:
        measured = measure(curve, full_run=full_run)
    with naming_left_out(measured.doubts):
        prediction = predict_and_check(
            per_unit_of_work(measured), [at] if isinstance(at, int) else at
        )
    refuse_blocking("predict", prediction.doubts, despite)
    return replace(prediction, sentences=prediction_sentences(prediction))


def advise(  # noqa: PLR0913 - one parameter per condition
    curve: ScalingCurve | str | Path,
    purpose: str | Iterable[str] | Purpose,
    at: Iterable[int] = (),
    *,
    up_to: int | None = None,
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
    full_run: str | None = None,
    despite: Sequence[str] = (),
) -> Advice:
    """Return how many devices to use for a purpose, such as ``"deadline=2h"``, and why.

    Several purposes must all be met. Only measured device counts are chosen. ``up_to`` also
    predicts all doublings up to this count: ``beyond`` is the best of them, if it would be better
    than the choice; ``at`` adds counts of your own. ``price`` is per device-hour, or a name from
    ``scalewise catalog prices``. If no energy was measured, ``watts`` per device count, or those of
    ``device`` in the catalog. ``whole_nodes`` charges partly used nodes in full.

    With ``target``, such as ``"epochs=90 at 256"``, the time is the time to reach the target;
    ``loss=`` and ``accuracy=`` need a study folder. ``critical_batch`` is the global batch that
    needs twice the samples of a small batch; ``batch`` is that of a CSV file. ``wait`` is the time
    in a queue (``"10min"``, ``"8=10min,32=6h"``). ``interrupted_every`` is the mean time between
    interruptions (``"12h"`` per device, ``"12h per node"``); ``save`` and ``restart`` are the times
    of a checkpoint and a restart, by default as recorded. The advice also says what would make
    ``worth`` devices worthwhile, and how to place ``runs`` equal runs. With ``full_run``, such as
    ``"90 epochs"``, the advice is for that training; otherwise for the measured runs. A doubt that
    blocks the advice raises DoubtfulData, unless its code is in ``despite``.
    """
    records: list[RunRecord] = []  # Only a study folder has records.
    if isinstance(curve, ScalingCurve):
        measured = full_run_curve(curve, FullRun.parse(full_run)) if full_run else curve
    elif Path(curve).is_dir():
        length: results.FullRunChoice = _parse_full_run(full_run)
        if target and not length:  # A target says how long the training is.
            length = "as measured"
        measured, records = results.curve_and_records(Path(curve), full_run=length)
    else:
        measured = measure(curve, full_run=full_run)
    parsed = purpose if isinstance(purpose, Purpose) else Purpose.parse(purpose)
    conditions = Conditions(
        target=target,
        critical_batch=critical_batch,
        batch=batch,
        wait=wait,
        interrupted_every=interrupted_every,
        save=save,
        restart=restart,
        records=records,
    )
    with naming_left_out(measured.doubts):
        advice = choose_devices(
            measured,
            parsed,
            at,
            up_to=up_to,
            price=price,
            watts=watts,
            device=device,
            whole_nodes=whole_nodes,
            conditions=conditions,
            worth=worth,
            runs=runs,
        )
    refuse_blocking("advise", advice.prediction.doubts, despite)
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
    return with_warning_texts(with_doubts(compared))


def _parse_full_run(text: str | None) -> FullRun | None:
    return None if text is None else FullRun.parse(text)
