"""One step: the value that all six have in common."""

from dataclasses import dataclass
from typing import Literal

from scalewise.port.patch import Edit

State = Literal["there", "missing", "not needed", "by hand"]


@dataclass(frozen=True, slots=True)
class Step:
    """One of the six: its name, whether it is there, why one thinks so, and its edits."""

    name: str
    state: State
    says: str
    edits: tuple[Edit, ...] = ()
