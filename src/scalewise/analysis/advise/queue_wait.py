"""The time that a job waits in a queue, which costs no device-hours. Users give it for some numbers
of devices. It is interpolated between them on log-log axes, and extrapolated beyond them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from scalewise.analysis.advise.durations import MAX_SECONDS, parse_limited_duration
from scalewise.analysis.advise.scale import Scale
from scalewise.errors import SpecError, shown
from scalewise.validate import INT32_MAX

EXAMPLE = "write 10min, or by number of devices 8=10min,32=6h"


@dataclass(frozen=True, slots=True)
class QueueWait:
    """Seconds in the queue: equal for all numbers of devices, or given for some of them."""

    by_devices: Mapping[int, float]
    """Seconds by number of devices, in ascending order; a single entry holds for any number."""
    same_for_all: bool
    """Whether the wait was given without a number of devices."""

    @classmethod
    def parse(cls, argument: str) -> "QueueWait":
        """Parse ``10min``, or ``8=10min,32=6h``.

        >>> QueueWait.parse("8=10min,32=6h").by_devices
        {8: 600.0, 32: 21600.0}
        """
        if not isinstance(argument, str):
            raise SpecError(f"a wait is text, got {shown(argument)}", hint=EXAMPLE)
        if "=" not in argument:
            seconds = parse_limited_duration(argument, EXAMPLE, allow_zero=True)
            return cls({1: seconds}, same_for_all=True)
        waits: dict[int, float] = {}
        for part in argument.split(","):
            count, _, duration = (text.strip() for text in part.partition("="))
            if not (count.isdecimal() and count.isascii()) or not 1 <= int(count) <= INT32_MAX:
                raise SpecError(
                    f"a wait is for a number of devices, got {shown(part)}", hint=EXAMPLE
                )
            if int(count) in waits:
                raise SpecError(f"the wait of {count} devices was given twice", hint=EXAMPLE)
            waits[int(count)] = parse_limited_duration(
                part.strip(), EXAMPLE, text=duration, allow_zero=True
            )
        return cls(dict(sorted(waits.items())), same_for_all=False)

    def seconds(self, devices: int) -> float:
        """Return the wait of a job on this many devices.

        >>> round(QueueWait.parse("8=10min,32=40min").seconds(16))
        1200
        """
        counts = list(self.by_devices)
        if devices in self.by_devices or len(counts) == 1:
            return self.by_devices.get(devices, self.by_devices[counts[0]])
        # Use the two counts around ``devices``; outside of all counts, use the nearest two.
        lower, upper = next((pair for pair in pairwise(counts) if devices < pair[1]), counts[-2:])
        share = math.log(devices / lower) / math.log(upper / lower)
        low_wait, high_wait = self.by_devices[lower], self.by_devices[upper]
        if low_wait and high_wait:
            log_wait = math.log(low_wait) + share * (math.log(high_wait) - math.log(low_wait))
            # A cap far above MAX_SECONDS keeps exp() from overflowing.
            wait = math.exp(min(log_wait, 2 * math.log(MAX_SECONDS)))
        else:  # A wait of 0 has no logarithm: the wait is linear in log(devices).
            wait = max(0.0, low_wait + share * (high_wait - low_wait))
        if wait > MAX_SECONDS:
            raise SpecError(
                f"the wait on {devices:,} devices would be above {MAX_SECONDS:g} s if it grew as "
                f"from {lower:,} to {upper:,}",
                hint=f"give that wait too: …,{devices}=1d",
            )
        return wait

    def applied(self, scale: Scale) -> Scale:
        """Return the scale with the wait added to its time."""
        time, wait = scale.require_time("a wait is added to a time"), self.seconds(scale.devices)
        return replace(scale, time=time.through(lambda seconds: seconds + wait), wait=wait)
