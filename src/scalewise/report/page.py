"""One self-contained page: tables, plots and the numbers behind them, no request to anywhere."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from scalewise.analysis.explain import Explanation
from scalewise.analysis.measure import ScalingCurve
from scalewise.record.write import write_text
from scalewise.report import explanation, formats, plot
from scalewise.report.table import sections


def html(curves: Sequence[ScalingCurve], why: Sequence[Explanation] = ()) -> str:
    """Return the page: what was measured, and where the time went."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template("page.html").render(
        title=", ".join(dict.fromkeys(curve.study for curve in curves)),
        sections=[
            *sections(curves),
            *(replace(each, title=f"{each.title}: why") for each in explanation.sections(why)),
        ],
        plots=[
            (plot.PLOTS[name][2], Markup(plot.svg(curves, name))) for name in plot.possible(curves)
        ],
        numbers=formats.as_json(curves),
        version=version("scalewise"),
    )


def write(curves: Sequence[ScalingCurve], path: Path, why: Sequence[Explanation] = ()) -> Path:
    """Write the page and return where it is."""
    write_text(path, html(curves, why))
    return path
