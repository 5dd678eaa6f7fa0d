"""Files of a data set that ranks could not read, and left out.

Standard library only, and Python 3.10.
"""

from collections.abc import Iterable

from scalewise.record.schema import SkippedFiles


def sentence(by_rank: Iterable[SkippedFiles | None]) -> str:
    """Say how many files the ranks of a run left out, each counted once; empty if none was.

    >>> sentence([SkippedFiles(2, ("a", "b")), None, SkippedFiles(1, ("a",))])
    'left out: 2 images that cannot be read, the first is a'
    """
    skipped = [files for files in by_rank if files]
    paths = sorted({path for files in skipped for path in files.paths})
    if not paths:
        return ""
    count = max(len(paths), *(files.count for files in skipped))
    if count == 1:
        return f"left out: 1 image that cannot be read, {paths[0]}"
    all_named = all(files.count == len(files.paths) for files in skipped)
    several = f"{count:,}" if all_named else f"at least {count:,}"
    return f"left out: {several} images that cannot be read, the first is {paths[0]}"
