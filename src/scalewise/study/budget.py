"""Device-hours of a study: those bought (used so far), those expected, and their limit."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.cost.study_cost import Bill, Item, bill_items
from scalewise.analysis.number_format import format_count, format_number
from scalewise.errors import LaunchError, SpecError, parameter
from scalewise.launch import Job, clock_of
from scalewise.record.attempts import attempts, bought
from scalewise.record.study_files import finished
from scalewise.results import measured_curves
from scalewise.spec import RunSpec, StudySpec
from scalewise.study.jobs import launch_time, make_launcher
from scalewise.validate import check_positive


def load_bill(
    study: StudySpec, folder: Path, absent: Collection[RunSpec] = (), *, again: bool = False
) -> Bill:
    """Return the bill of all runs but ``absent``; ``again``: finished runs count as missing."""
    launcher = make_launcher(study)
    runs = [run for run in study.runs() if run not in absent]
    paid = {
        run.id: sum(attempt.device_hours for attempt in attempts(folder / run.id))
        for run in runs
        if finished(folder / run.id) and not again
    }
    missing = [run for run in runs if run.id not in paid]
    items = bill_items(
        study, runs, measured_curves(study, folder), paid,
        lambda run: launcher.max_device_hours([run]),
        lambda run: launcher.billed_devices(run, missing),
    )  # fmt: skip
    bounds = [item.max_hours for item in items if item.max_hours is not None]
    # The sum of bounds limits the cost if every missing run has one; so does the launcher's limit.
    upper_limits = [sum(bounds)] if len(bounds) == len(missing) else []
    limit = launcher.max_device_hours(missing)
    if limit is not None:
        upper_limits.append(limit)
    max_hours = min(upper_limits, default=None)
    return Bill(items=tuple(items), bought=bought(folder), max_hours=max_hours)


@dataclass(frozen=True, slots=True)
class SpendingLimit:
    """The device-hours that a study may spend in total."""

    hours: float
    option: str
    """The option as the user wrote it, for messages."""

    @classmethod
    def of(
        cls, max_cost: float | None, max_device_hours: float | None, rate: Rate | None
    ) -> "SpendingLimit | None":
        """Return the limit that one of the two options sets; None if neither is given."""
        if max_cost is not None and max_device_hours is not None:
            raise SpecError(
                f"{parameter('max_cost')} and {parameter('max_device_hours')} set the same limit, "
                "in money and in device-hours",
                hint="give one of them",
            )
        if max_device_hours is not None:
            check_positive(parameter("max_device_hours"), max_device_hours, example=8)
            return cls(max_device_hours, parameter("max_device_hours", max_device_hours))
        if max_cost is None:
            return None
        check_positive(parameter("max_cost"), max_cost, example=20)
        if rate is None:
            raise SpecError(
                f"{parameter('max_cost')} needs the price of one device for one hour",
                hint=f"give {parameter('price', 2.5)}; or {parameter('max_device_hours', 8)}, "
                "which needs none",
            )
        hours = max_cost / rate.per_device_hour
        equivalent = f"{format_number(hours)} device-hours at {format_number(rate.per_device_hour)}"
        return cls(hours, f"{parameter('max_cost', max_cost)} ({equivalent})")


@dataclass
class StudyBudget:
    """Device-hours spent and left; consulted before a run starts and while runs are active."""

    study: StudySpec
    folder: Path
    limit: SpendingLimit
    again: bool = False
    """Whether finished runs are started again."""
    refused: dict[RunSpec, str] = field(default_factory=dict)
    """Runs that were not started, and why."""
    _bill: Bill | None = None

    def clear_bill(self) -> None:
        """Forget the cached bill, because a run has ended."""
        self._bill = None

    @property
    def bill(self) -> Bill:
        """The bill as it is now."""
        if self._bill is None:
            self._bill = load_bill(self.study, self.folder, again=self.again)
        return self._bill

    def check(self, *, detach: bool = False) -> None:
        """Refuse, before any run starts, a study that is known to exceed the limit."""
        bill = self.bill
        bounded = [item for item in bill.missing if item.max_hours is not None]
        total = sum(item.max_hours or 0.0 for item in bounded)
        if bill.max_hours is not None:
            total = min(total, bill.max_hours)
        if bounded and bill.bought + total > self.limit.hours:
            raise SpecError(
                f"{self.limit.option} is too little: {len(bounded)} missing "
                f"{'run takes' if len(bounded) == 1 else 'runs take'} up to {format_number(total)} "
                f"device-hours, and {format_number(bill.bought)} are bought already",
                hint=self._fitting_count_hint(bounded),
            )
        max_hours = make_launcher(self.study).max_device_hours([item.run for item in bill.missing])
        # Nothing watches detached jobs: only their time limit keeps them within the budget.
        if detach and (max_hours is None or bill.bought + max_hours > self.limit.hours):
            raise SpecError(
                f"{self.limit.option} cannot be enforced on detached jobs",
                hint=f"leave {parameter('detach')} out, or give jobs a time limit with which they "
                'fit: time = "00:30:00" in [launcher]',
            )

    def _fitting_count_hint(self, bounded: Sequence[Item]) -> str:
        """Return a hint that names the device count up to which all runs together fit the limit."""
        remaining = self.limit.hours - self.bill.bought
        counts = sorted({item.run.topology.world for item in bounded})
        fit = [
            count
            for count in counts
            if sum(item.max_hours or 0.0 for item in bounded if item.run.topology.world <= count)
            <= remaining
        ]
        if not fit:
            return "not even the smallest of them fits; raise the limit"
        devices = format_count(fit[-1])
        return f"all runs on up to {devices} fit; leave the larger ones out, or raise the limit"

    def refusal(self, runs: Sequence[RunSpec], active: Sequence[tuple[RunSpec, Job]]) -> str:
        """Return why these runs may not start; empty if their expected hours fit the limit.

        Runs without an expectation may start as long as any hours are left.
        """
        expected = {item.run: item.expected for item in self.bill.items}
        spent = self._spent(active)
        # An active run will take its expected hours, unless it has taken more already.
        reserved = sum(max(spent[run], expected.get(run) or 0.0) for run, _ in active)
        estimates = [hours for run in runs if (hours := expected.get(run)) is not None]
        remaining = self.limit.hours - self.bill.bought - reserved
        if remaining > 0 and sum(estimates) <= remaining:
            return ""
        sentence = (
            f"{format_number(max(0.0, remaining))} device-hours are left of {self.limit.option}"
        )
        if estimates:
            return f"{format_number(sum(estimates))} device-hours are expected, and {sentence}"
        return sentence

    def end_reason(self, active: Sequence[tuple[RunSpec, Job]]) -> str:
        """Return why all active runs must end; empty while the limit is not reached."""
        spent = self.bill.bought + sum(self._spent(active).values())
        if spent < self.limit.hours:
            return ""
        return f"ended at {self.limit.option}: {format_number(spent)} device-hours are bought"

    def _spent(self, active: Sequence[tuple[RunSpec, Job]]) -> dict[RunSpec, float]:
        """Return the device-hours of each active run; a run still in a queue has none."""
        devices = {item.run: item.devices for item in self.bill.items}
        began = {run: (launch_time(job), clock_of(job).now()) for run, job in active}
        return {
            run: 0.0 if start is None else devices[run] * max(0.0, now - start) / 3600
            for run, (start, now) in began.items()
        }

    def raise_refused(self) -> None:
        """Raise an error about the runs that were not started, if any."""
        if not self.refused:
            return
        run, reason = next(iter(self.refused.items()))
        more = f", and {len(self.refused) - 1} more" if len(self.refused) > 1 else ""
        hint = "running again with a higher limit starts what is missing"
        raise LaunchError(f"{run.title} was not started{more}: {reason}", hint=hint)
