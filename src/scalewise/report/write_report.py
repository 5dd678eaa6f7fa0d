"""Write a report in the format of its file name's suffix."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from scalewise import results
from scalewise.analysis.compare import compare_sources, trend_of_sources
from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.explain import Explanation
from scalewise.analysis.measure import ScalingCurve
from scalewise.analysis.summary import summarize
from scalewise.errors import ScalewiseError, SpecError, parameter
from scalewise.record.write import write_text
from scalewise.report import compare_sections, formats, summary_sections, trend_sections
from scalewise.report.curve_report import curve_reports
from scalewise.report.figures import IMAGE_SUFFIXES
from scalewise.report.figures.trend import trend_figure
from scalewise.report.page_sections import NOT_COMPARED, Compared
from scalewise.report.tables import Section
from scalewise.report.text.compare import refuse_doubtful_sides

TEXT_FORMATS: dict[str, Callable[[Sequence[ScalingCurve], Sequence[Section]], str]] = {
    ".md": formats.markdown,
    ".csv": lambda curves, answers: formats.comma_separated(curves),
    ".tex": lambda curves, answers: formats.latex(curves),
    ".json": lambda curves, answers: formats.as_json(curves),
    ".txt": formats.text,
}
MAX_COMPARED = 12
"""So many sources are compared on the page: each is read once more for it."""


def write_report(
    loaded: Sequence[tuple[Path, ScalingCurve, Explanation | None]],
    path: Path,
    *,
    plot: str | None = None,
    columns: int | None = None,
    price: Rate | None = None,
    table_options: Mapping[str, object] | None = None,
) -> Path:
    """Write the report of curves, each with its source and explanation; return its path. It begins
    with the summaries, unless it is data or a plot. Only HTML shows the explanations, and the
    command that writes it again: ``table_options`` are those with which tables were loaded.
    """
    suffix = path.suffix.lower()
    curves = [curve for _, curve, _ in loaded]
    if plot is not None and suffix not in IMAGE_SUFFIXES:
        hint = f"{parameter('plot')} is for {', '.join(IMAGE_SUFFIXES)} files"
        raise SpecError(f"{path} cannot show a single plot", hint=hint)
    if columns is not None and (plot is None or columns not in (1, 2)):
        raise SpecError(
            f"{parameter('columns')} is the width of a single plot: 1 or 2 columns of a paper",
            hint=f"for example {parameter('plot', 'speedup')} {parameter('columns', 2)}",
        )
    if suffix in TEXT_FORMATS:
        summaries = [
            summarize(curve, why, source=str(source), price=price) for source, curve, why in loaded
        ]
        write_text(path, TEXT_FORMATS[suffix](curves, summary_sections.sections(summaries)))
    elif suffix in IMAGE_SUFFIXES:
        from scalewise.report.write_figures import write_plot  # Matplotlib is slow to import.

        write_plot(curve_reports(loaded, price), path, plot=plot, columns=2 if columns == 2 else 1)
    elif suffix == ".html":
        from scalewise.report import page

        shown = curve_reports(loaded[: page.MAX_CURVES], price, table_options)
        compared = compare_results([source for source, _, _ in loaded])
        write_text(path, page.html(shown, curves[page.MAX_CURVES :], compared))
    else:
        suffixes = [".html", *TEXT_FORMATS, *IMAGE_SUFFIXES]
        raise SpecError(
            f"cannot write {path}: unknown ending", hint=f"there are: {' '.join(suffixes)}"
        )
    return path


def compare_results(sources: Sequence[Path]) -> Compared:
    """Return what ``scalewise compare`` says about two sources, or about a history of more studies,
    with its plot; empty if there is one source, or many, or if they cannot be compared.
    """
    distinct = [*dict.fromkeys(sources)]
    is_history = all(source.is_dir() for source in distinct) and len(distinct) <= MAX_COMPARED
    if len(distinct) != 2 and not (len(distinct) > 2 and is_history):
        return NOT_COMPARED
    try:
        sides = [results.comparison_sides(source) for source in distinct]
        refuse_doubtful_sides([side for curves in sides for side in curves])
        if len(distinct) == 2:
            comparisons = compare_sources(sides)
            parts = [part for item in comparisons for part in compare_sections.sections(item)]
            return Compared(tuple(parts))
        trend = trend_of_sources(sides)
        figure = trend_figure(trend)
        return Compared(tuple(trend_sections.sections(trend)), (figure,) if figure else ())
    except ScalewiseError:
        return NOT_COMPARED
