"""Numbers as every answer writes them: how many figures, of what, and within which range."""

from collections.abc import Callable, Sequence

from scalewise.analysis.measure import Estimate


def short(value: float) -> str:
    """Return a number with about four figures.

    >>> short(16682.4), short(0.031234567), short(2e-7)
    ('16,682', '0.03123', '2e-07')
    """
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e12 else f"{value:.4g}"


def rough(value: float) -> str:
    """Return a number with three figures.

    >>> rough(317.91), rough(12345.0), rough(4.557)
    ('318', '12,300', '4.56')
    """
    return short(float(f"{value:.3g}"))


def ranged(estimate: Estimate, say: Callable[[float], str] = short) -> str:
    """Return a number with its interval, where it has one of some width.

    >>> ranged(Estimate(1500.0, 1400.0, 1625.0)), ranged(Estimate(2.5))
    ('1,500 [1,400, 1,625]', '2.5')
    """
    if estimate.low is None or estimate.high is None or estimate.low == estimate.high:
        return say(estimate.value)
    return f"{say(estimate.value)} [{say(estimate.low)}, {say(estimate.high)}]"


def counted(count: int, word: str = "device") -> str:
    """Return a count and what is counted.

    >>> counted(1), counted(1024), counted(2, "run")
    ('1 device', '1,024 devices', '2 runs')
    """
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def listed(parts: Sequence[str]) -> str:
    """Return words as a list.

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
