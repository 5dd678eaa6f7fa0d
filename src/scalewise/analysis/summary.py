"""The summary of a curve: is it worth it, on how many devices, what costs most, what to do next."""

from dataclasses import dataclass, replace
from typing import Literal

from scalewise.analysis.advise import Advice, Purpose, Scale, advise
from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.explain import Explanation
from scalewise.analysis.explain.breakdown import Breakdown
from scalewise.analysis.explain.lost_time import LostTime, lost_time
from scalewise.analysis.explain.whatif import WhatIf
from scalewise.analysis.full_run import per_unit_of_work
from scalewise.analysis.measure import Doubt, ScalingCurve
from scalewise.errors import ScalewiseError

DEFAULT_PURPOSE = "balanced"
"""The knee of the curve: the least time × device-hours."""
MIN_COST_SHARE = 0.05
"""A cause that takes a smaller share of the time is not named."""
LARGE_COST_SHARE = 0.2
"""A cause that takes a larger share of the time comes before more devices."""
MAX_SHOWN_SCALES = 6
"""More measured scales than these do not fit on the screen."""
START_UP = "start-up"
PAID_ONCE = (START_UP, "shutdown")
Verdict = Literal["yes", "no", "unknown", "not reliable"]
NextStep = Literal["fix", "measure more", "full run", "look further", "explain", "ask"]
"""What to do next: mend a blocking doubt, measure a second number of devices, state the length of
the full run, measure beyond the largest point, see the causes, or ask for a purpose."""
WHAT_IF_OF_CAUSE = {
    "transfer": "twice the link",
    "balance": "perfect balance",
    "input": "twice the loaders",
    "validation": "no validation",
    "checkpoints": "no checkpoint",
}
"""By cause: the replayed change that shows what mending it would give."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The answer about one curve, on one screen."""

    source: str
    """The folder or file that was read, as the user wrote it."""
    curve: ScalingCurve
    """With the times of the full run; of a rehearsal, per unit of work."""
    verdict: Verdict
    """Whether more devices than the fewest measured are worth it."""
    advice: Advice | None
    problem: ScalewiseError | None = None
    """Why there is no advice."""
    examined: Breakdown | None = None
    """The point whose lost time is shown: the chosen one, or else the next larger one."""
    lost: tuple[LostTime, ...] = ()
    """What the job at ``examined`` loses, the largest cause first."""
    beyond: Breakdown | None = None
    """The next larger point than the chosen one, if ``examined`` is the chosen one."""
    next: NextStep = "ask"
    lines: tuple[str, ...] = ()
    """The answer in sentences; set by ``api.summary``."""

    def __str__(self) -> str:
        return "\n".join(self.lines)

    @property
    def chosen(self) -> Scale | None:
        """The scale at the knee of the curve."""
        return self.advice.closest if self.advice else None

    @property
    def fastest(self) -> Scale | None:
        """The measured scale that takes the least time."""
        return min(self.advice.choices, key=lambda s: s.slowness) if self.advice else None

    @property
    def shown_scales(self) -> tuple[Scale, ...]:
        """The measured scales; of many, the fewest devices, the chosen number, those beside it and
        the fastest.
        """
        if not self.advice:
            return ()
        scales = self.advice.choices
        if len(scales) <= MAX_SHOWN_SCALES:
            return scales
        index = scales.index(self.advice.closest)
        near, fastest = range(max(index - 1, 0), index + 2), self.fastest
        return tuple(
            scale for k, scale in enumerate(scales) if k == 0 or k in near or scale is fastest
        )

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        return self.curve.doubts

    @property
    def start_excluded(self) -> bool:
        """Whether times are those of a rehearsal per unit of work, without the start."""
        return self.curve.unit_of_work is not None

    @property
    def cost(self) -> LostTime | None:
        """What costs most; None if nothing takes a noticeable share of the time. What a rehearsal
        pays once (start-up, shutdown) does not count: ``share`` is then that of the other time.
        """
        rows = self._answered(self.lost)
        return rows[0] if rows and rows[0].share >= MIN_COST_SHARE else None

    @property
    def limit(self) -> LostTime | None:
        """Why not more devices: the cause whose share of the time grows most from the chosen point
        to ``beyond``; None if none grows noticeably.
        """
        if self.beyond is None:
            return None
        here = {row.cause: row.share for row in self._answered(self.lost)}
        grown = {
            row.share - here.get(row.cause, 0.0): row
            for row in self._answered(lost_time(self.beyond))
        }
        most = max(grown, default=0.0)
        return grown[most] if most >= MIN_COST_SHARE else None

    def _answered(self, rows: tuple[LostTime, ...]) -> tuple[LostTime, ...]:
        """Return those rows that the answer is about, with their share of its time."""
        if not self.start_excluded:
            return rows
        repeated_share = 1 - sum(row.share for row in rows if row.cause in PAID_ONCE)
        repeated = [row for row in rows if row.cause not in PAID_ONCE]
        return tuple(replace(row, share=row.share / repeated_share) for row in repeated)

    @property
    def start_up(self) -> LostTime | None:
        return next((row for row in self.lost if row.cause == START_UP), None)

    @property
    def what_if(self) -> WhatIf | None:
        """What mending the largest cost would give, replayed from the recorded steps."""
        change = WHAT_IF_OF_CAUSE.get(self.cost.cause) if self.cost else None
        effects = self.examined.what_if if self.examined else ()
        return next((effect for effect in effects if effect.change == change), None)


def summarize(
    curve: ScalingCurve,
    explanation: Explanation | None = None,
    *,
    source: str,
    price: Rate | None = None,
) -> Summary:
    """Return the summary of a curve; a table has no explanation. With a ``price`` per device-hour,
    the scales have costs.
    """
    answered = per_unit_of_work(curve)
    advice, problem = None, None
    is_blocked = any(doubt.severity == "blocks" for doubt in curve.doubts)
    if not is_blocked:
        try:
            advice = advise(answered, Purpose.parse(DEFAULT_PURPOSE), price=price)
        except ScalewiseError as error:
            problem = error
    examined = _examined(explanation, advice)
    summary = Summary(
        source=source,
        curve=answered,
        verdict=_verdict(advice, is_blocked=is_blocked),
        advice=advice,
        problem=problem,
        examined=examined,
        lost=lost_time(examined) if examined else (),
        beyond=_beyond(explanation, advice, examined),
    )
    return replace(summary, next=_next_step(summary))


def _verdict(advice: Advice | None, *, is_blocked: bool) -> Verdict:
    if is_blocked:
        return "not reliable"
    if advice is None:
        return "unknown"
    return "yes" if advice.closest.devices > advice.choices[0].devices else "no"


def _examined(explanation: Explanation | None, advice: Advice | None) -> Breakdown | None:
    """Return the chosen point; if that is the smallest, the next larger one, which shows why more
    devices do not help.
    """
    if explanation is None:
        return None
    points = explanation.points
    if advice is None:
        return points[-1]
    chosen = max(advice.closest.devices, min(points[-1].devices, points[0].devices + 1))
    return next((point for point in points if point.devices >= chosen), points[-1])


def _beyond(
    explanation: Explanation | None, advice: Advice | None, examined: Breakdown | None
) -> Breakdown | None:
    if explanation is None or advice is None or examined is None:
        return None
    chosen = advice.closest.devices
    if examined.devices != chosen:
        return None
    return next((point for point in explanation.points if point.devices > chosen), None)


def _next_step(summary: Summary) -> NextStep:
    advice, cost = summary.advice, summary.cost
    if summary.verdict == "not reliable":
        return "fix"
    if advice is None:
        return "measure more"
    if summary.start_excluded:
        return "full run"
    if cost and cost.share >= LARGE_COST_SHARE:  # To be mended before more devices are used.
        return "explain"
    if advice.closest is advice.choices[-1]:
        return "look further"
    return "explain" if summary.examined else "ask"
