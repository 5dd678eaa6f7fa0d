"""The Python face: thin names over the functions the command line uses."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from scalewise import results, study
from scalewise.analysis.advise import Advice, Conditions, Purpose
from scalewise.analysis.advise import advise as choose
from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.explain import Explanation
from scalewise.analysis.measure import Estimate, ScalingCurve, curve_from_numbers
from scalewise.analysis.predict import Prediction
from scalewise.analysis.predict import predict as ahead
from scalewise.record.read import RunRecord
from scalewise.spec import StudySpec

Pairs = Iterable[tuple[int, float]]


class _Silent:
    """A watcher for callers who did not ask to be told."""

    def begin(self, todo: int, there: int, asked: str) -> None: ...
    def started(self, number: int, run: Any) -> None: ...
    def moved(self, run: Any, share: float) -> None: ...
    def ended(self, run: Any, cause: str, seconds: float) -> None: ...
    def noted(self, sentence: str) -> None: ...
    def said(self, problem: Exception) -> None: ...


def run(
    question: str | Path | StudySpec,
    folder: str | Path | None = None,
    *,
    variant: str | None = None,
    again: bool = False,
) -> Path:
    """Run a study, given as a file, a variant that the file has of itself, or a value.

    Return its folder.
    """
    asked = question if isinstance(question, StudySpec) else study.read(Path(question), variant)
    home = Path(folder) if folder else Path("runs") / asked.name
    study.run(asked, home, _Silent(), again=again)
    return home


def measure(
    source: str | Path,
    *,
    where: Mapping[str, Any] | None = None,
    scaling: str | None = None,
    devices_per_node: int | None = None,
) -> ScalingCurve:
    """Return the curve of a study's folder or of a CSV file.

    A study that varies more than topology has several: ``where`` chooses one,
    for example ``where={"strategy": "fsdp"}``.
    """
    found = results.curves([Path(source)], scaling=scaling, devices_per_node=devices_per_node)
    return results.chosen(found, where, source)


def explain(
    folder: str | Path,
    *,
    where: Mapping[str, Any] | None = None,
    price: Rate | float | str | None = None,
) -> Explanation:
    """Return where the time and the efficiency of a study went.

    ``where`` chooses one of several curves; ``price`` is that of one device for
    one hour, or a name of the price list, and gives every cause its cost.
    """
    return results.chosen(results.explanations(Path(folder), price=price), where, folder)


def predict(curve: ScalingCurve | str | Path, at: int | Iterable[int]) -> Prediction:
    """Return what more devices would give, from a curve, a study's folder or a CSV file."""
    found = curve if isinstance(curve, ScalingCurve) else measure(curve)
    return ahead(found, [at] if isinstance(at, int) else at)


def advise(  # noqa: PLR0913 - each is a thing to know
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

    Several purposes are limits that are all to be met. Weighed is what was
    measured, and doublings beyond it: up to ``at``, or two. ``price`` is that of
    one device for one hour, or a name of the price list; ``watts`` is what a
    device draws, or ``device`` names one of the catalog, where no energy was measured;
    ``whole_nodes`` charges a node that is used in part as if all of it were. With a
    ``target``, such as ``"epochs=90 at 256"``, the time is that until it; ``loss=`` and
    ``accuracy=`` need a study's folder.
    ``wait`` is the time in a queue (``"10min"``, ``"8=10min,32=6h"``); devices that are
    ``interrupted_every`` so often (``"12h"`` each, ``"12h per node"``) take ``save`` and
    ``restart`` seconds from the records where they are not given. ``worth`` asks what
    would make so many devices worthwhile, ``runs`` how to place so many equal runs.
    """
    found, records = _curve(curve)
    asked = purpose if isinstance(purpose, Purpose) else Purpose.parse(purpose)
    return choose(
        found,
        asked,
        at,
        price=price,
        watts=watts,
        device=device,
        whole_nodes=whole_nodes,
        conditions=Conditions.parse(
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


def _curve(source: ScalingCurve | str | Path) -> tuple[ScalingCurve, list[RunRecord]]:
    """Return a curve with its records, where it comes from a study's folder."""
    if isinstance(source, ScalingCurve):
        return source, []
    if Path(source).is_dir():
        return results.curve_and_records(Path(source))
    return measure(source), []


def curve(
    throughputs: Pairs = (),
    *,
    times: Pairs = (),
    energies: Pairs = (),
    scaling: str | None = None,
    devices_per_node: int | None = None,
) -> ScalingCurve:
    """Return a curve from ``(devices, value)`` pairs that somebody measured elsewhere.

    ``energies`` are in kWh.
    """
    return curve_from_numbers(
        throughputs,
        times=times,
        energies=energies,
        scaling=scaling,
        devices_per_node=devices_per_node,
    )
