"""Files of a data set that ranks could not read, and left out.

Standard library only, and Python 3.10.
"""

from collections.abc import Mapping, Sequence
from typing import Any


def sentence(told: Sequence[Mapping[str, Any] | None]) -> str:
    """Say how many files the ranks of a run left out, each counted once; nothing if none was.

    >>> sentence([{"count": 2, "paths": ["a", "b"]}, None, {"count": 1, "paths": ["a"]}])
    'left out: 2 images that cannot be read, the first is a'
    """
    found = [each for each in told if each]
    paths = sorted({path for each in found for path in each["paths"]})
    if not paths:
        return ""
    count = max(len(paths), *(each["count"] for each in found))
    if count == 1:
        return f"left out: 1 image that cannot be read, {paths[0]}"
    whole = all(each["count"] == len(each["paths"]) for each in found)
    several = f"{count:,}" if whole else f"at least {count:,}"
    return f"left out: {several} images that cannot be read, the first is {paths[0]}"
