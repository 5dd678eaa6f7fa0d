"""How long a job waits before it starts: the time in a queue, by devices.

It is part of the time until the end, and of no device-hours. Between counts whose wait was
told it is a straight line in logarithms of both; beyond them that line goes on, which is a
guess and said so.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from scalewise.analysis.advise.durations import LONGEST, span
from scalewise.analysis.advise.scale import Scale
from scalewise.analysis.number_format import join_with_and
from scalewise.errors import SpecError
from scalewise.validate import HUGE

EXAMPLE = "--wait 10min, or --wait 8=10min,32=6h"


@dataclass(frozen=True, slots=True)
class Wait:
    """Seconds in the queue: for any number of devices, or told for some of them."""

    told: Mapping[int, float]
    """By devices; one alone is for all."""
    anywhere: bool
    """Whether it was told for all devices at once."""

    @classmethod
    def parse(cls, given: str) -> "Wait":
        """Read ``10min``, or ``8=10min,32=6h``.

        >>> Wait.parse("8=10min,32=6h").told
        {8: 600.0, 32: 21600.0}
        """
        if not isinstance(given, str):
            raise SpecError(f"a wait is text, got {given!r}", hint=EXAMPLE)
        if "=" not in given:
            return cls({1: span(given, EXAMPLE, zero=True)}, anywhere=True)
        found: dict[int, float] = {}
        for part in given.split(","):
            count, _, rest = (word.strip() for word in part.partition("="))
            if not (count.isdecimal() and count.isascii()) or not 1 <= int(count) <= HUGE:
                raise SpecError(f"a wait is for a number of devices, got {part!r}", hint=EXAMPLE)
            if int(count) in found:
                raise SpecError(f"the wait of {count} devices was given twice", hint=EXAMPLE)
            found[int(count)] = span(part.strip(), EXAMPLE, part=rest, zero=True)
        return cls(dict(sorted(found.items())), anywhere=False)

    def seconds(self, devices: int) -> float:
        """Return the wait of a job on so many devices.

        >>> round(Wait.parse("8=10min,32=40min").seconds(16))
        1200
        """
        counts = list(self.told)
        if len(counts) == 1:
            return self.told[counts[0]]
        if devices in self.told:
            return self.told[devices]
        few, many = next(
            ((few, many) for few, many in pairwise(counts) if devices < many), (counts[-2:])
        )
        share = math.log(devices / few) / math.log(many / few)
        first, last = self.told[few], self.told[many]
        if first and last:
            log = math.log(first) + share * (math.log(last) - math.log(first))
            found = math.exp(min(log, 2 * math.log(LONGEST)))
        else:  # No logarithm: a straight line against that of devices.
            found = max(0.0, first + share * (last - first))
        if found > LONGEST:
            raise SpecError(
                f"the wait on {devices:,} devices is beyond all reason if it goes on as from "
                f"{few:,} to {many:,}",
                hint=f"give it too: --wait …,{devices}=1d",
            )
        return found

    def applied(self, scale: Scale) -> Scale:
        """Return the scale with its time until the end counted from when it is submitted."""
        if scale.time is None:
            raise SpecError(
                "the wait comes on top of a time, and there are only throughputs",
                hint="add a column time, or give --target",
            )
        waited = self.seconds(scale.devices)
        time = scale.time.through(lambda seconds: seconds + waited)
        return replace(scale, time=time, wait=waited)

    def sentences(self, counts: Iterable[int]) -> tuple[str, ...]:
        """Say which waits were told and which lie between them."""
        if self.anywhere:
            return ()
        lowest, highest = min(self.told), max(self.told)
        between = [n for n in counts if n not in self.told and lowest < n < highest]
        if not between:
            return ()
        told = _listed(self.told)
        return (f"The wait on {_listed(between)} devices lies between those told for {told}.",)

    def warnings(self, counts: Iterable[int]) -> tuple[str, ...]:
        """Warn of waits beyond those that were told."""
        lowest, highest = min(self.told), max(self.told)
        outside = [n for n in counts if not lowest <= n <= highest]
        if self.anywhere or not outside:
            return ()
        told = (
            f"that of {highest:,} alone" if lowest == highest else f"those of {_listed(self.told)}"
        )
        return (f"the wait on {_listed(outside)} devices is only guessed from {told}",)


def _listed(counts: Iterable[int]) -> str:
    return join_with_and([f"{count:,}" for count in counts])
