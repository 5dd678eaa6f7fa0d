"""Tables and text for LaTeX: everything is typeset literally, by pdflatex too."""

import re

from scalewise.errors import cut
from scalewise.report.escape import escape_latex, printable
from scalewise.report.tables import MAX_CELL_CHARACTERS, Table, is_text_column

PACKAGES = """% needs \\usepackage[T1]{fontenc}
%       \\usepackage[utf8]{inputenc}
%       \\usepackage{booktabs}"""
LIGATURE = re.compile(r"(?<=[-'`,!?])(?=[-'`,])")
"""Between two characters that LaTeX would join: -- becomes a dash."""
SYMBOLS = {
    "×": r"$\times$", "·": r"$\cdot$", "−": r"$-$", "≤": r"$\le$", "≥": r"$\ge$", "µ": r"$\mu$",
    "μ": r"$\mu$", "…": r"\dots{}", "→": r"$\rightarrow$", "∞": r"$\infty$", "√": r"$\surd$",
    "’": "'", "‘": "`", "“": "``", "”": "''", "—": "---", "•": r"\textbullet{}",
    '"': r"\textquotedbl{}",
}  # fmt: skip
"""Characters that pdflatex has only as commands."""


def tex(text: str) -> str:
    r"""Return text that pdflatex typesets literally; characters that it lacks as their numbers.

    >>> tex("50 % × --full-run 中")
    '50 \\% $\\times$ -{}-full-run {[}U+4E2D{]}'
    """
    escaped = []
    for part in LIGATURE.split(printable(text)):
        escaped.append("".join(SYMBOLS.get(char) or _character(char) for char in part))
    return "{}".join(escaped)


def _character(char: str) -> str:
    if ord(char) < 256 or char == "–":
        return escape_latex(char)
    return f"{{[}}U+{ord(char):04X}{{]}}"  # A row must not begin with [: see ``escape.LATEX``.


def latex_table(table: Table, caption: str, label: str = "", place: str = "htbp") -> list[str]:
    """Return the lines of a table with rules of booktabs: numbers at the right, texts at the left,
    long texts in paragraphs. ``place`` is LaTeX's: where the table may be put.
    """
    columns = list(zip(*table.rows)) if table.rows else [()] * len(table.header)
    is_text = [any(len(cell) > 24 for cell in column) for column in columns]
    width = 0.72 / max(1, sum(is_text))
    aligned = "".join(
        f"p{{{width:.2f}\\linewidth}}" if wide else "l" if is_text_column(column) else "r"
        for wide, column in zip(is_text, columns)
    )
    return [
        f"\\begin{{table}}[{place}]",
        "  \\centering\\small",
        f"  \\caption{{{_cell(caption)}}}",
        *([f"  \\label{{tab:{label}}}"] if label else []),
        f"  \\begin{{tabular}}{{{aligned}}}",
        "    \\toprule",
        f"    {' & '.join(map(_cell, table.header))} \\\\",
        "    \\midrule",
        *(f"    {' & '.join(map(_cell, row))} \\\\" for row in table.rows),
        "    \\bottomrule",
        "  \\end{tabular}",
        "\\end{table}",
    ]


def _cell(text: str) -> str:
    return tex(cut(text, MAX_CELL_CHARACTERS))
