"""The full run: how long the real training is that a study rehearses, as users write it."""

import re
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal, get_args

from scalewise.errors import SpecError, shown

FullRunUnit = Literal["epochs", "samples", "tokens", "steps", "x"]
EXAMPLES = '"90 epochs", "1e9 samples", "30000 steps" or "18x" (18 times what was measured)'


@dataclass(frozen=True, slots=True)
class FullRun:
    """The work of the real training: an amount and its unit."""

    amount: float
    unit: FullRunUnit
    """``x``: times the work of the measured run on the fewest devices."""
    text: str
    """As messages write it: ``90 epochs``."""

    @classmethod
    def parse(cls, text: Any) -> "FullRun":
        """Parse ``90 epochs``, ``1e9 samples``, ``30,000 steps`` or ``18x``.

        >>> FullRun.parse("1 epoch")
        FullRun(amount=1.0, unit='epochs', text='1 epoch')
        """
        units = "|".join(rf"{unit.removesuffix('s')}s?" for unit in get_args(FullRunUnit))
        pattern = rf"([0-9][0-9,]*\.?[0-9]*(?:e\+?[0-9]+)?)\s*({units})"
        match = re.fullmatch(pattern, text.strip().lower()) if isinstance(text, str) else None
        if match is None or match[2] == "xs":
            raise SpecError(
                f"not the length of a full run: {shown(text)}", hint=f"write {EXAMPLES}"
            )
        amount = float(match[1].replace(",", ""))
        if not isfinite(amount) or not 0 < amount <= 1e18:
            raise SpecError(
                f"the length of a full run must be above 0 and at most 1e18, got {shown(text)}",
                hint=f"write {EXAMPLES}",
            )
        unit = next(name for name in get_args(FullRunUnit) if name[:3] == match[2][:3])
        return cls(amount, unit, f"{match[1]}{'' if unit == 'x' else ' '}{match[2]}")
