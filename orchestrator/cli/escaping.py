"""Text and tables as LaTeX."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from manyseed.orchestrator.cli.output import shown

Rows = Sequence[Sequence[object]]
Places = set[tuple[int, int]]
"""Rows and columns of cells."""


def _greek() -> Iterator[tuple[int, str]]:
    """Yield the Greek letters that have a command, as numbers, with its name."""
    names = "alpha beta gamma delta - zeta eta theta iota kappa lambda mu nu xi - pi rho - sigma"
    capital = "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
    for number, name in enumerate(f"{names} tau upsilon phi chi psi omega".split()):
        if name != "-":
            yield ord("α") + number, name
        if name.title() in capital:
            yield ord("Α") + number, name.title()


_IN_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{letter: "\\" + letter for letter in "&%$#_{}"},
    "[": "{[}",  # or it would be the argument of a preceding line break
    "*": "{*}",
    "–": "--",
    "—": "---",
    "−": "$-$",
    "×": r"$\times$",
    "±": r"$\pm$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≈": r"$\approx$",
    "†": r"\dag{}",
    "‡": r"\ddag{}",
    "…": r"\ldots{}",
    "√": r"$\surd$",
    "→": r"$\to$",
    "²": r"$^2$",
    "ε": r"$\varepsilon$",
    "α̂": r"$\hat{\alpha}$",
    **{chr(letter): f"$\\{name}$" for letter, name in _greek()},
}
_FOREIGN = re.compile("[^\x00-\u017f‘-”†-•…€]")
_LATEX = re.compile("|".join(map(re.escape, sorted(_IN_LATEX, key=len, reverse=True))))


def latex(text: str) -> str:
    """Escape a text for LaTeX."""
    text = unicodedata.normalize("NFC", text)
    plain = re.sub(r"[\s\x00-\x1f\x7f]+", " ", text)
    return _LATEX.sub(lambda match: _IN_LATEX[match[0]], plain)


def of_other_engines(text: str) -> list[str]:
    """Return a comment on letters of a LaTeX text that pdfLaTeX lacks; nothing without any."""
    letters = "".join(dict.fromkeys(_FOREIGN.findall(text)))
    told = f"% needs XeLaTeX or LuaLaTeX, and a font with these letters: {letters}"
    return [told] if letters else []


def in_latex(
    columns: Sequence[str], rows: Rows, notes: Sequence[str], best: Places, paper: tuple[str, str]
) -> str:
    """Return a LaTeX table with notes below it; `paper`: its caption and label, or empty."""
    kinds = "".join("r" if are_numbers(rows, number) else "l" for number in range(len(columns)))
    body = [
        " & ".join(_cell(value, bold=(y, x) in best) for x, value in enumerate(row))
        for y, row in enumerate(rows)
    ]
    head = ["\\toprule", f"{' & '.join(map(latex, columns))} \\\\", "\\midrule"]
    is_long = len(rows) > _PAGE
    needs = "booktabs,longtable" if is_long else "booktabs"
    written = [*head, *body, *map(latex, (*notes, *paper))]
    lines = [f"% needs \\usepackage{{{needs}}}", *of_other_engines("".join(written))]
    lines += _too_wide(columns, rows)
    if is_long:
        above = [f"{''.join(_captioned(*paper))} \\\\"] if paper[0] else []
        lines += [f"\\begin{{longtable}}{{{kinds}}}", *above, *head]
        lines += ["\\endfirsthead", *head, "\\endhead", "\\bottomrule", "\\endfoot"]
        lines += [*(f"{line} \\\\" for line in body), "\\end{longtable}"]
        # it counts as a table even without a caption
        lines += [] if paper[0] else ["\\addtocounter{table}{-1}"]
        lines += _below(notes)
        return "\n".join(lines) + "\n"
    lines += ["\\begin{table}", "\\centering", *_captioned(*paper)] if paper[0] else []
    lines += [f"\\begin{{tabular}}{{{kinds}}}", *head, *(f"{line} \\\\" for line in body)]
    lines += ["\\bottomrule", "\\end{tabular}", *_below(notes)]
    lines += ["\\end{table}"] if paper[0] else []
    return "\n".join(lines) + "\n"


_PAGE = 40  # rows that a page holds
_LETTER, _BETWEEN, _WIDTH = 5, 12, 345  # in pt, of LaTeX's class article: letter, gap, \textwidth


def _too_wide(columns: Sequence[str], rows: Rows) -> Iterator[str]:
    """Yield a comment if a LaTeX table is wider than the text of a page."""
    cells = [columns, *([shown(value) for value in row] for row in rows)]
    letters = sum(max(map(len, column)) for column in zip(*cells, strict=True))
    width = _LETTER * letters + _BETWEEN * len(columns)
    if width > _WIDTH:
        yield (
            f"% wide: about {width:,} pt, where the class article has {_WIDTH} pt: ask for fewer "
            "--columns, or use \\small, a landscape page, or table*"
        )


def _captioned(caption: str, label: str) -> list[str]:
    """Return the caption of a LaTeX table and its label; nothing without them."""
    above = [f"\\caption{{{latex(caption)}}}"] if caption else []
    return [*above, *([f"\\label{{{label}}}"] if label else [])]


def _below(notes: Sequence[str]) -> Iterator[str]:
    """Yield notes as small text below a LaTeX table."""
    if notes:
        yield from ("\\par\\smallskip", "{\\footnotesize\\raggedright")
        yield from (latex(note) for note in notes)
        yield "\\par}"


_NUMBER = re.compile(r"(-?[\d.,]+)(?:e([+-]\d+))?(?: ± ([\d.,]+))?")
_SIGNED = re.compile(r"[+-][\d.]+( to [+-][\d.]+)?")
_BELOW = re.compile(r"< [\d.]+")
_LIMITED = re.compile(r"(-?[\d.,]+(?:e[+-]\d+)?) \((-?[\d.,e+-]+) to (-?[\d.,e+-]+)\)")


def _cell(value: object, *, bold: bool = False) -> str:
    """Return a cell of a LaTeX table, with signed numbers in math mode; an interval is not bold."""
    text = shown(value)
    if _BELOW.fullmatch(text):
        return f"${text}$"
    if limited := _LIMITED.fullmatch(text):
        mean, low, high = limited.groups()
        return f"{_in_math(mean, bold=bold)} ({_in_math(low)} to {_in_math(high)})"
    if isinstance(value, str) and _SIGNED.fullmatch(text):
        return " to ".join(f"${one}$" for one in text.split(" to "))
    if _NUMBER.fullmatch(text) and (not isinstance(value, str) or "±" in text):
        return _in_math(text, bold=bold)
    return f"\\textbf{{{latex(text)}}}" if bold else latex(text)


def _in_math(text: str, *, bold: bool = False) -> str:
    number = _NUMBER.fullmatch(text)
    if number is None:
        return latex(text)
    mantissa, exponent, half = number.groups()
    parts = mantissa.replace(",", "{,}")
    parts += rf" \times 10^{{{int(exponent)}}}" if exponent else ""
    parts = rf"\mathbf{{{parts}}}" if bold else parts
    parts += rf" \pm {half.replace(',', '{,}')}" if half else ""
    return f"${parts}$" if exponent or half or bold or "-" in mantissa else text


def are_numbers(rows: Rows, number: int) -> bool:
    """Return whether a column has numbers, with limits or bounds, and no words."""
    known = [row[number] for row in rows if row[number] is not None]
    return bool(known) and all(
        (isinstance(value, int | float) and not isinstance(value, bool))
        or (
            isinstance(value, str)
            and (" ± " in value or bool(_LIMITED.fullmatch(value) or _BELOW.fullmatch(value)))
        )
        for value in known
    )
