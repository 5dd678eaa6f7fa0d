"""Numbers as text, in the same format everywhere: digits, intervals, counts and lists."""

from collections.abc import Callable, Sequence

from scalewise.analysis.measure import Estimate
from scalewise.analysis.measure.energy import JOULES_PER_UNIT, energy_unit


def format_number(value: float) -> str:
    """Return a number with four significant digits; from 1,000 on, rounded to an integer.

    >>> format_number(16682.4), format_number(0.031234567), format_number(2e-7)
    ('16,682', '0.03123', '2e-07')
    """
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e12 else f"{value:.4g}"


def format_rounded(value: float) -> str:
    """Return a number rounded to three significant digits.

    >>> format_rounded(317.91), format_rounded(12345.0), format_rounded(4.557)
    ('318', '12,300', '4.56')
    """
    return format_number(float(f"{value:.3g}"))


def format_estimate(estimate: Estimate, to_text: Callable[[float], str] = format_number) -> str:
    """Return a value, followed by its interval unless that is unknown or a single point.

    >>> format_estimate(Estimate(1500.0, 1400.0, 1625.0)), format_estimate(Estimate(2.5))
    ('1,500 [1,400, 1,625]', '2.5')
    """
    if estimate.low is None or estimate.high is None or estimate.low == estimate.high:
        return to_text(estimate.value)
    return f"{to_text(estimate.value)} [{to_text(estimate.low)}, {to_text(estimate.high)}]"


def format_rounded_estimate(estimate: Estimate) -> str:
    """Return a value with three digits, followed by its interval if that is known."""
    return format_estimate(estimate, format_rounded)


def format_percent(share: float, digits: int = 1) -> str:
    """Return a share (1 is 100 %) in percent."""
    return f"{100 * share:.{digits}f} %"


def format_duration(seconds: float) -> str:
    """Return a duration in d, h or min if it lasts at least two of these, else in seconds.

    >>> format_duration(90.0), format_duration(5400.0), format_duration(36000.0)
    ('90 s', '90 min', '10 h')
    """
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def format_energy(joules: Estimate, to_text: Callable[[Estimate], str] = format_estimate) -> str:
    """Return an energy in Wh or kWh.

    >>> format_energy(Estimate(7.2e6)), format_energy(Estimate(1800.0))
    ('2 kWh', '0.5 Wh')
    """
    unit = energy_unit(joules.value)
    return f"{to_text(joules * (1 / JOULES_PER_UNIT[unit]))} {unit}"


def format_count(count: int, noun: str = "device") -> str:
    """Return a count with its noun, in the plural where needed.

    >>> format_count(1), format_count(1024), format_count(2, "run")
    ('1 device', '1,024 devices', '2 runs')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def list_counts(counts: Sequence[int], most: int = 16) -> str:
    """Return the counts separated by commas; of more than ``most`` the first three and the last.

    >>> list_counts([1, 2, 4]), list_counts(range(1, 2001))
    ('1, 2, 4', '1, 2, 3, …, 2,000')
    """
    texts = [f"{count:,}" for count in counts]
    return ", ".join(texts if len(texts) <= most else [*texts[:3], "…", texts[-1]])


def format_seconds(seconds: float) -> str:
    """Return a short time in s, ms or µs, with about three digits.

    >>> format_seconds(0.0251), format_seconds(3.2e-6), format_seconds(150.4)
    ('25.1 ms', '3.2 µs', '150 s')
    """
    units = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
    unit = next((unit for unit, size in units.items() if abs(seconds) >= size), "µs")
    value = seconds / units[unit]
    return f"{value:,.0f} {unit}" if abs(value) >= 100 else f"{value:.3g} {unit}"


def join_with_and(parts: Sequence[str]) -> str:
    """Return the parts as one text, with commas between them and ``and`` before the last.

    >>> join_with_and(["a", "b", "c"]), join_with_and(["a"])
    ('a, b and c', 'a')
    """
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
