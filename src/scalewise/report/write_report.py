"""Write a report in the format that its file's ending asks for."""

from collections.abc import Callable, Sequence
from pathlib import Path

from scalewise.analysis.explain import Explanation
from scalewise.analysis.measure import ScalingCurve
from scalewise.errors import SpecError
from scalewise.record.write import write_text
from scalewise.report import formats

TEXTS: dict[str, Callable[[Sequence[ScalingCurve]], str]] = {
    ".md": formats.markdown,
    ".csv": formats.comma_separated,
    ".tex": formats.latex,
    ".json": formats.as_json,
    ".txt": formats.text,
}
PICTURES = (".png", ".svg")


def write(
    curves: Sequence[ScalingCurve],
    path: Path,
    *,
    plot: str | None = None,
    why: Sequence[Explanation] = (),
) -> Path:
    """Write the report and return where it is; a page also says ``why``."""
    ending = path.suffix.lower()
    if plot is not None and ending not in PICTURES:
        raise SpecError(f"{path} holds no single plot", hint="--plot goes with -o FILE.png or .svg")
    if ending in TEXTS:
        write_text(path, TEXTS[ending](curves))
    elif ending in PICTURES:
        from scalewise.report import plot as plots

        plots.write(curves, path, plot=plot)
    elif ending == ".html":
        from scalewise.report import page

        page.write(curves, path, why)
    else:
        known = [".html", *TEXTS, *PICTURES]
        raise SpecError(
            f"cannot write {path}: unknown ending", hint=f"there are: {' '.join(known)}"
        )
    return path
