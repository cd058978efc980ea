"""Text and tables as LaTeX."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
    """Return a LaTeX table with notes below it; `paper`: its caption and label, or empty.

    It is as wide as the text of a page at most, where that is possible (`_fitting`).
    """
    right = [are_numbers(rows, number) for number in range(len(columns))]
    texts = [[shown(value) for value in row] for row in rows]
    layout = _fitting(columns, texts, right, best)
    body = [
        " & ".join(_cell(value, bold=(y, x) in best) for x, value in enumerate(row))
        for y, row in enumerate(rows)
    ]
    head = ["\\toprule", f"{' & '.join(layout.heads)} \\\\", "\\midrule"]
    is_long = len(rows) > _PAGE
    packages = ["booktabs", *["longtable"] * is_long, *["array"] * ("p{" in layout.kinds)]
    written = [*layout.heads, *body, *map(latex, (*notes, *paper))]
    lines = [f"% needs \\usepackage{{{','.join(packages)}}}", *of_other_engines("".join(written))]
    if layout.width > _WIDTH:
        lines.append(
            f"% wide: about {layout.width:,} pt, where the class article has {_WIDTH} pt: ask for "
            "fewer --columns, or use a landscape page, or table*"
        )
    if is_long:
        lines += [f"{{{layout.style}"] if layout.style else []
        above = [f"{''.join(_captioned(*paper))} \\\\"] if paper[0] else []
        lines += [f"\\begin{{longtable}}{{{layout.kinds}}}", *above, *head]
        lines += ["\\endfirsthead", *head, "\\endhead", "\\bottomrule", "\\endfoot"]
        lines += [*(f"{line} \\\\" for line in body), "\\end{longtable}"]
        lines += ["}"] if layout.style else []
        # it counts as a table even without a caption
        lines += [] if paper[0] else ["\\addtocounter{table}{-1}"]
        lines += _below(notes)
        return "\n".join(lines) + "\n"
    lines += ["\\begin{table}", "\\centering", *_captioned(*paper)] if paper[0] else []
    lines += [f"{{{layout.style}"] if layout.style else []
    lines += [f"\\begin{{tabular}}{{{layout.kinds}}}", *head, *(f"{line} \\\\" for line in body)]
    lines += ["\\bottomrule", "\\end{tabular}"]
    lines += ["\\par}"] if layout.style else []
    lines += _below(notes)
    lines += ["\\end{table}"] if paper[0] else []
    return "\n".join(lines) + "\n"


_PAGE = 40  # rows that a page holds
_LETTER, _BOLD, _WIDTH = 5.0, 1.15, 345  # in pt, of LaTeX's class article: letter, text


@dataclass(frozen=True, slots=True)
class _Layout:
    """How a table is set: commands before it, kinds of columns, heads, and its width in pt."""

    style: str
    kinds: str
    heads: Sequence[str]
    width: int


_SIZES = (
    ("", 1.0, 12, False),
    ("\\small", 0.9, 12, False),
    ("\\footnotesize", 0.8, 8, False),
    ("\\small", 0.9, 8, True),
    ("\\footnotesize", 0.8, 6, True),
)
"""From the best: size, its letters' share of 10 pt, gap in pt, whether long texts are wrapped."""


def _fitting(
    columns: Sequence[str], texts: Sequence[Sequence[str]], right: Sequence[bool], best: Places
) -> _Layout:
    """Return the first layout of `_SIZES` that is as wide as the text of a page at most.

    A letter is taken as 5 pt wide at 10 pt. In all but the first, heads are broken between words
    where that makes a column narrower, and nothing stands left and right of the table.
    """
    cells = [
        max(
            (len(row[x]) * (_BOLD if (y, x) in best else 1) for y, row in enumerate(texts)),
            default=0,
        )
        for x in range(len(columns))
    ]
    words = [
        max(map(_longest, (name, *(row[x] for row in texts)))) for x, name in enumerate(columns)
    ]
    kinds = ["r" if one else "l" for one in right]
    for style, share, gap, wraps in _SIZES:
        letter = _LETTER * share
        if not style:
            heads = [latex(name) for name in columns]
            width = sum(map(max, cells, map(len, columns))) * letter + gap * len(columns)
            layout = _Layout("", "".join(kinds), heads, math.ceil(width))
        else:
            broken = [_broken(name, cell) for name, cell in zip(columns, cells, strict=True)]
            natural = [
                letter * max(cell, *map(len, lines))
                for cell, lines in zip(cells, broken, strict=True)
            ]
            room = _WIDTH - gap * (len(columns) - 1)
            widths = natural
            if wraps and sum(natural) > room:
                least = [
                    size if one else letter * word
                    for size, one, word in zip(natural, right, words, strict=True)
                ]
                widths = _shared(least, natural, room)
            narrow = [one < full for one, full in zip(widths, natural, strict=True)]
            heads = [
                latex(name) if wrapped or len(lines) == 1 else _stacked(lines, kind)
                for name, lines, kind, wrapped in zip(columns, broken, kinds, narrow, strict=True)
            ]
            spec = "".join(
                rf">{{\raggedright\arraybackslash}}p{{{math.floor(one)}pt}}" if wrapped else kind
                for one, kind, wrapped in zip(widths, kinds, narrow, strict=True)
            )
            width = sum(map(math.floor, widths)) + gap * (len(columns) - 1)
            style = f"{style}\\setlength{{\\tabcolsep}}{{{gap // 2}pt}}"
            layout = _Layout(style, f"@{{}}{spec}@{{}}", heads, math.ceil(width))
        if layout.width <= _WIDTH:
            break
    return layout


def _shared(least: Sequence[float], natural: Sequence[float], room: float) -> list[float]:
    """Return widths of columns, at least `least`; what room is left, the narrowest get first."""
    widths, left = [*least], max(room - sum(least), 0.0)
    for at in sorted(range(len(least)), key=lambda at: natural[at] - least[at]):
        more = min(max(natural[at] - widths[at], 0.0), left)
        widths[at] += more
        left -= more
    return widths


def _longest(text: str) -> int:
    """Return the length of a text's longest part that no line breaks."""
    return max((len(one) for one in re.split(r" |(?<=[^ ]-)(?=[a-z])", text)), default=0)


def _broken(head: str, cell: float) -> list[str]:
    """Return a head in lines that are no longer than its longest word or its column's cells."""
    words = re.split(r" +(?!%)", head)
    most, lines = max(cell, *map(len, words)), [""]
    for word in words:
        joined = f"{lines[-1]} {word}".strip()
        lines = [*lines[:-1], joined] if len(joined) <= most else [*lines, word]
    return lines


def _stacked(lines: Sequence[str], kind: str) -> str:
    told = r"\\".join(map(latex, lines))
    return rf"\shortstack[{kind}]{{{told}}}"


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
_DECIMAL = re.compile(r"\d+\.\d+")
_LIMITED = re.compile(r"(-?[\d.,]+(?:e[+-]\d+)?) \((-?[\d.,e+-]+) to (-?[\d.,e+-]+)\)")


_IN_TEXT = (_SIGNED, _BELOW, _DECIMAL, _LIMITED)
"""Texts that are numbers, with what belongs to them."""


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
    known = [row[number] for row in rows if row[number] not in (None, "–")]
    return bool(known) and all(
        (isinstance(value, int | float) and not isinstance(value, bool))
        or (
            isinstance(value, str)
            and (" ± " in value or any(form.fullmatch(value) for form in _IN_TEXT))
        )
        for value in known
    )
