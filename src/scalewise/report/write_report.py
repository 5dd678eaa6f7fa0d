"""Write a report in the format of its file name's suffix."""

from collections.abc import Callable, Sequence
from pathlib import Path

from scalewise.analysis.explain import Explanation
from scalewise.analysis.measure import ScalingCurve
from scalewise.errors import SpecError, parameter
from scalewise.record.write import write_text
from scalewise.report import formats

TEXT_FORMATS: dict[str, Callable[[Sequence[ScalingCurve]], str]] = {
    ".md": formats.markdown,
    ".csv": formats.comma_separated,
    ".tex": formats.latex,
    ".json": formats.as_json,
    ".txt": formats.text,
}
IMAGE_SUFFIXES = (".png", ".svg")


def write(
    curves: Sequence[ScalingCurve],
    path: Path,
    *,
    plot: str | None = None,
    explained: Sequence[Explanation] = (),
) -> Path:
    """Write the report and return its path. Only HTML shows the explanations."""
    suffix = path.suffix.lower()
    if plot is not None and suffix not in IMAGE_SUFFIXES:
        hint = f"{parameter('plot')} is for {' and '.join(IMAGE_SUFFIXES)} files"
        raise SpecError(f"{path} cannot show a single plot", hint=hint)
    if suffix in TEXT_FORMATS:
        write_text(path, TEXT_FORMATS[suffix](curves))
    elif suffix in IMAGE_SUFFIXES:
        from scalewise.report import plot as plots  # Matplotlib is slow to import.

        plots.write(curves, path, plot=plot)
    elif suffix == ".html":
        from scalewise.report import page

        write_text(path, page.html(curves, explained))
    else:
        suffixes = [".html", *TEXT_FORMATS, *IMAGE_SUFFIXES]
        raise SpecError(
            f"cannot write {path}: unknown ending", hint=f"there are: {' '.join(suffixes)}"
        )
    return path
