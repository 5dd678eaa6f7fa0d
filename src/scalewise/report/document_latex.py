"""A document as LaTeX, which pdflatex compiles; its figures are files beside it."""

from collections.abc import Mapping

from scalewise.report.document import (
    Block,
    Box,
    Commands,
    Document,
    Heading,
    Items,
    Paragraph,
)
from scalewise.report.figures import Figure
from scalewise.report.latex_table import latex_table, tex
from scalewise.report.tables import Table

PREAMBLE = r"""\documentclass[a4paper,10pt]{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\IfFileExists{lmodern.sty}{\usepackage{lmodern}}{}
\usepackage[margin=2.2cm]{geometry}
\usepackage{booktabs}
\usepackage{float}
\usepackage{graphicx}
\setlength{\parindent}{0pt}
\setlength{\parskip}{0.5em}
\sloppy
"""


def latex(document: Document, figure_files: Mapping[int, str]) -> str:
    """Return the text of a .tex file; ``figure_files`` are by position of the block."""
    lines = [
        f"% Compile with pdflatex.\n{PREAMBLE}",
        f"\\title{{{tex(document.title)}}}",
        f"\\author{{{tex(document.subtitle)}}}",
        "\\date{\\today}",
        "\\begin{document}",
        "\\maketitle",
        "",
    ]
    for index, block in enumerate(document.blocks):
        lines += [*_lines(block, figure_files.get(index, "")), ""]
    return "\n".join([*lines, "\\end{document}", ""])


def _lines(block: Block, figure_file: str) -> list[str]:
    match block:
        case Heading():
            return [f"\\section{{{tex(block.text)}}}"]
        case Paragraph():
            return [_text(block.text)]
        case Items():
            texts = [f"  \\item {{}}{_text(text)}" for text in block.texts]
            return ["\\begin{itemize}", *texts, "\\end{itemize}"]
        case Box():
            texts = [
                f"  \\textbf{{{tex(name)}}} {_text(text)}\\par" for name, text in block.answers
            ]
            return ["\\fbox{\\begin{minipage}{\\dimexpr\\linewidth-2\\fboxsep-2\\fboxrule}",
                    "\\setlength{\\parskip}{0.4em}\\raggedright",
                    f"  {{\\large\\textbf{{{tex(block.title)}}}\\par}}", *texts,
                    "\\end{minipage}}"]  # fmt: skip
        case Commands():
            return ["\\begin{quote}\\raggedright\\small",
                    *(f"  \\texttt{{{tex(line)}}}\\par" for line in block.lines),
                    "\\end{quote}"]  # fmt: skip
        case Table():
            return latex_table(block, block.title, place="H")
        case Figure():
            return [
                "\\begin{figure}[H]",
                "  \\centering",
                f"  \\includegraphics[width=\\linewidth]{{{figure_file}}}",
                f"  \\caption{{{tex(block.title)}}}",
                "\\end{figure}",
            ]


def _text(text: str) -> str:
    """Return sentences as LaTeX, with code in a typewriter font."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # A backtick that is none of a pair.
        return tex(text)
    return "".join(
        f"\\texttt{{{tex(part)}}}" if index % 2 else tex(part) for index, part in enumerate(parts)
    )
