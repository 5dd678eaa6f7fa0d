"""The HTML report: one self-contained page with tables, plots and numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from scalewise.analysis.advise import outlook
from scalewise.analysis.explain import Explanation
from scalewise.analysis.measure import ScalingCurve
from scalewise.record.write import write_text
from scalewise.report import explanation_sections, formats, page_outlook, plot
from scalewise.report.curve_table import sections
from scalewise.report.escape import printable


def html(curves: Sequence[ScalingCurve], explained: Sequence[Explanation] = ()) -> str:
    """Return the page: measurements, explanations, predictions and advice."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        finalize=_escape_controls,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template("page.html").render(
        title=", ".join(dict.fromkeys(curve.study for curve in curves)),
        sections=[
            *((section, ()) for section in sections(curves)),
            *(
                (replace(section, title=f"{section.title}: why"), ())
                for section in explanation_sections.sections(explained)
            ),
            *((section, _safe(plots)) for section, plots in _outlooks(curves)),
        ],
        plots=_safe(
            (plot.PLOTS[name][2], plot.svg(curves, name)) for name in plot.possible(curves)
        ),
        numbers=escape(
            formats.as_json(curves)
        ),  # Marked as safe, so that its line breaks are kept.
        version=version("scalewise"),
    )


def _escape_controls(value: Any) -> Any:
    """Return a value without control characters; Jinja escapes it for HTML afterwards."""
    return value if isinstance(value, Markup) else printable(str(value))


def _outlooks(curves: Sequence[ScalingCurve]) -> list[page_outlook.PlottedSection]:
    """Return prediction and advice of every curve with several numbers of devices."""
    return [
        section
        for ahead in map(outlook, curves)
        if ahead
        for section in page_outlook.outlook_sections(ahead)
    ]


def _safe(plots: Iterable[tuple[str, str]]) -> list[tuple[str, Markup]]:
    """Return plots whose SVG is not escaped: we made it, so it is safe."""
    return [(title, Markup(svg)) for title, svg in plots]


def write(
    curves: Sequence[ScalingCurve], path: Path, explained: Sequence[Explanation] = ()
) -> Path:
    """Write the page and return its path."""
    write_text(path, html(curves, explained))
    return path
