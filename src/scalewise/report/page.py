"""One self-contained page: tables, plots and the numbers behind them, no request to anywhere."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from scalewise.analysis.advise import outlook as look_ahead
from scalewise.analysis.explain import Explanation
from scalewise.analysis.measure import ScalingCurve
from scalewise.record.write import write_text
from scalewise.report import explanation, formats, page_outlook, plot
from scalewise.report.curve_table import sections
from scalewise.report.escape import printable


def html(curves: Sequence[ScalingCurve], why: Sequence[Explanation] = ()) -> str:
    """Return the page: what was measured, where the time went, and what lies ahead."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template("page.html").render(
        title=", ".join(dict.fromkeys(curve.study for curve in curves)),
        sections=[
            *((each, ()) for each in sections(curves)),
            *(
                (replace(each, title=f"{each.title}: why"), ())
                for each in explanation.sections(why)
            ),
            *((each, _safe(plots)) for each, plots in _ahead(curves)),
        ],
        plots=_safe(
            (plot.PLOTS[name][2], plot.svg(curves, name)) for name in plot.possible(curves)
        ),
        numbers=escape(formats.as_json(curves)),  # Its lines stay lines.
        version=version("scalewise"),
    )


def _shown(value: Any) -> Any:
    """Return what stands in the page, before it is escaped; markup is done already."""
    return value if isinstance(value, Markup) else printable(str(value))


def _ahead(curves: Sequence[ScalingCurve]) -> list[page_outlook.Drawn]:
    """Return what lies ahead of every curve of several numbers of devices."""
    found = [look_ahead(curve) for curve in curves]
    return [section for each in found if each for section in page_outlook.drawn(each)]


def _safe(plots: Iterable[tuple[str, str]]) -> list[tuple[str, Markup]]:
    """Return plots as a page may hold them: their SVG is our own."""
    return [(title, Markup(svg)) for title, svg in plots]


def write(curves: Sequence[ScalingCurve], path: Path, why: Sequence[Explanation] = ()) -> Path:
    """Write the page and return where it is."""
    write_text(path, html(curves, why))
    return path
