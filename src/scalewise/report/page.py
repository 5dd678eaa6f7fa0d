"""One self-contained page: tables, plots and the numbers behind them, no request to anywhere."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from scalewise.analysis.measure import ScalingCurve
from scalewise.record.write import write_text
from scalewise.report import formats, plot
from scalewise.report.table import sections


def html(curves: Sequence[ScalingCurve]) -> str:
    """Return the page."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template("page.html").render(
        title=", ".join(dict.fromkeys(curve.study for curve in curves)),
        sections=sections(curves),
        plots=[
            (plot.PLOTS[name][2], Markup(plot.svg(curves, name))) for name in plot.possible(curves)
        ],
        numbers=formats.as_json(curves),
        version=version("scalewise"),
    )


def write(curves: Sequence[ScalingCurve], path: Path) -> Path:
    """Write the page and return where it is."""
    write_text(path, html(curves))
    return path
