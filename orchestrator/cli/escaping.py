"""Text as LaTeX."""

from __future__ import annotations

import re

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
    "δ": r"$\delta$",
    "ε": r"$\varepsilon$",
    "α̂": r"$\hat{\alpha}$",
    "α": r"$\alpha$",
}
_LATEX = re.compile("|".join(map(re.escape, sorted(_IN_LATEX, key=len, reverse=True))))


def latex(text: str) -> str:
    """Escape a text for LaTeX."""
    plain = re.sub(r"[\s\x00-\x1f\x7f]+", " ", text)
    return _LATEX.sub(lambda match: _IN_LATEX[match[0]], plain)
