"""Jinja templates of the HTML reports."""

import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from scalewise.report.escape import keep_units, printable
from scalewise.report.tables import is_text_column

CODE = re.compile("`([^`]+)`")


def load_template(name: str) -> Template:
    """Return a template that escapes all texts for HTML, and control characters before that."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        finalize=lambda text: text if isinstance(text, Markup) else printable(str(text)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "keep_units": keep_units,
        "code": mark_code,
        "is_text_column": is_text_column,
    }
    return templates.get_template(name)


def mark_code(text: str) -> Markup:
    """Return text for HTML; what stands between backticks is code, and numbers keep their %.

    >>> mark_code("use `a<b`")
    Markup('use <code>a&lt;b</code>')
    """
    line = printable(text).replace(" %", "\u00a0%")
    return Markup(CODE.sub(r"<code>\1</code>", str(escape(line))))
