"""The purse a study is paid from: how much it may buy in all, and what that leaves for a run."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.cost.study_cost import Bill, Item
from scalewise.analysis.number_format import format_count, format_number
from scalewise.errors import LaunchError, SpecError
from scalewise.launch import Job
from scalewise.spec import RunSpec, StudySpec
from scalewise.study.jobs import launch_time, make_launcher
from scalewise.study.study_bill import load_bill
from scalewise.validate import check_positive


@dataclass(frozen=True, slots=True)
class SpendingLimit:
    """The most that a study may buy in all."""

    hours: float
    named: str
    """As it was given, for whoever reads why a run was not started."""

    @classmethod
    def of(
        cls, max_cost: float | None, max_device_hours: float | None, rate: Rate | None
    ) -> "SpendingLimit | None":
        """Read the two options, of which one is enough; money needs a price."""
        if max_cost is not None and max_device_hours is not None:
            raise SpecError(
                "--max-cost and --max-device-hours are one limit, in money or in device-hours",
                hint="give one of them",
            )
        if max_device_hours is not None:
            check_positive("max-device-hours", max_device_hours, example=8.0)
            return cls(max_device_hours, f"--max-device-hours {format_number(max_device_hours)}")
        if max_cost is None:
            return None
        check_positive("max-cost", max_cost, example=20.0)
        if rate is None:
            raise SpecError(
                "--max-cost needs the price of one device for one hour",
                hint="--price 2.50, or --max-device-hours 8, which needs none",
            )
        hours = max_cost / rate.per_device_hour
        told = f"{format_number(hours)} device-hours at {format_number(rate.per_device_hour)}"
        return cls(hours, f"--max-cost {format_number(max_cost)} ({told})")


@dataclass
class StudyBudget:
    """What may still be bought: asked before a run starts, and while runs are under way."""

    study: StudySpec
    folder: Path
    limit: SpendingLimit
    again: bool = False
    refused: dict[RunSpec, str] = field(default_factory=dict)
    """Runs that were not started, and why."""
    _bill: Bill | None = None

    def changed(self) -> None:
        """Take note that a run has ended: more was bought, and more is known."""
        self._bill = None

    @property
    def bill(self) -> Bill:
        """The bill as it is now."""
        if self._bill is None:
            self._bill = load_bill(self.study, self.folder, again=self.again)
        return self._bill

    def check(self, *, detach: bool = False) -> None:
        """Refuse, before anything starts, what is known to be too dear."""
        found = self.bill
        known = [item for item in found.missing if item.max_hours is not None]
        most = sum(item.max_hours or 0.0 for item in known)
        if found.max_hours is not None:
            most = min(most, found.max_hours)
        if known and found.bought + most > self.limit.hours:
            raise SpecError(
                f"{self.limit.named} is too little: {len(known)} missing "
                f"{'run takes' if len(known) == 1 else 'runs take'} up to {format_number(most)} "
                f"device-hours, and {format_number(found.bought)} are bought already",
                hint=self._fits(known),
            )
        bound = make_launcher(self.study).max_device_hours([item.run for item in found.missing])
        if detach and (bound is None or found.bought + bound > self.limit.hours):
            raise SpecError(
                f"{self.limit.named} cannot be kept by jobs that nobody watches",
                hint="leave --detach out, or give jobs a time limit by which they fit: "
                'time = "00:30:00" in [launcher]',
            )

    def _fits(self, known: Sequence[Item]) -> str:
        """Say up to how many devices everything fits."""
        left = self.limit.hours - self.bill.bought
        counts = sorted({item.run.topology.world for item in known})
        fit = [
            most
            for most in counts
            if sum(item.max_hours or 0.0 for item in known if item.run.topology.world <= most)
            <= left
        ]
        if not fit:
            return "not even the smallest of them fits; raise it"
        larger = "leave the larger ones out, or raise it"
        return f"all runs on up to {format_count(fit[-1])} fit; {larger}"

    def refuses(self, runs: Sequence[RunSpec], under_way: Sequence[tuple[RunSpec, Job]]) -> str:
        """Say why runs are not started: with what they are expected to take it is too much."""
        expected = {item.run: item.expected for item in self.bill.items}
        spent = self._spent(under_way)
        held = sum(max(spent[run], expected.get(run) or 0.0) for run, _ in under_way)
        need = [expected.get(run) for run in runs]
        known = [each for each in need if each is not None]
        left = self.limit.hours - self.bill.bought - held
        if left > 0 and sum(known) <= left:
            return ""
        left_over = f"{format_number(max(0.0, left))} device-hours are left of {self.limit.named}"
        takes = f"{format_number(sum(known))} device-hours are expected, and " if known else ""
        return f"{takes}{left_over}"

    def empty(self, under_way: Sequence[tuple[RunSpec, Job]]) -> str:
        """Say why all that is under way must end, if the limit is reached."""
        spent = self.bill.bought + sum(self._spent(under_way).values())
        if spent < self.limit.hours:
            return ""
        return f"ended at {self.limit.named}: {format_number(spent)} device-hours are bought"

    def _spent(self, under_way: Sequence[tuple[RunSpec, Job]]) -> dict[RunSpec, float]:
        """Return the device-hours of what is under way; one that waits for its turn has none."""
        devices = {item.run: item.devices for item in self.bill.items}
        return {run: devices[run] * _elapsed(job) / 3600 for run, job in under_way}

    def complain(self) -> None:
        """Tell of runs that were not started, as a problem that the user can act on."""
        if not self.refused:
            return
        run, why = next(iter(self.refused.items()))
        more = f", and {len(self.refused) - 1} more" if len(self.refused) > 1 else ""
        raise LaunchError(
            f"{run.title} was not started{more}: {why}",
            hint="running again with a higher limit starts what is missing",
        )


def _elapsed(job: Job) -> float:
    """Return the seconds since a job was launched."""
    began = launch_time(job)
    return 0.0 if began is None else max(0.0, time.time() - began)
