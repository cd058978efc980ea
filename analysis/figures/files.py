"""Figures as files of their own, the same bytes for the same figure."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_pdf import PdfPages

from manyseed.analysis.figures.style import Plot, numbers
from manyseed.analysis.refused import Refused

FORMATS = ("pdf", "svg", "png", "csv")
WIDTHS: Mapping[str, float] = {"single": 89 / 25.4, "double": 183 / 25.4}
"""Inches of one and of two columns of a journal."""
DPI = 300

_RC: Any = {
    "pdf.fonttype": 42,  # TrueType: journals refuse the other one
    "savefig.facecolor": "white",
    "savefig.bbox": None,
    "svg.fonttype": "path",  # the same wherever it is opened
    "path.simplify": False,
}
_SUBSET = re.compile(rb"/[A-Z]{6}\+")


def as_files(plots: Sequence[Plot], form: str, dpi: int = DPI) -> list[bytes]:
    """Return figures as files of a format: one PDF of a page each, or a file each.

    Parameters
    ----------
    plots : sequence of Plot
    form : str
        One of `FORMATS`. Fonts of PDF are embedded as TrueType, letters of SVG are drawn; CSV is
        of what is drawn (`analysis.figures.style.numbers`), UTF-8.
    dpi : int
        Pixels per inch, of PNG and of what vectors would be too many for.

    Raises
    ------
    Refused
        For another format.
    """
    if form not in FORMATS:
        raise Refused("format", form, allowed=FORMATS)
    if form == "pdf":
        return [_pdf(plots, dpi)]
    if form == "csv":
        return [numbers(plot).write_csv().encode() for plot in plots]
    return [_one(plot, form, dpi) for plot in plots]


def _pdf(plots: Sequence[Plot], dpi: int) -> bytes:
    told = {"Title": plots[0].title, "Subject": "\n".join(plot.caption for plot in plots)}
    buffer = io.BytesIO()
    with (
        mpl.rc_context(_RC),
        PdfPages(buffer, metadata={**told, "CreationDate": None}) as pages,
    ):
        for plot in plots:
            pages.savefig(plot.figure, dpi=dpi)
    # what a subset of a font is named depends on the process; all names have six letters
    return _SUBSET.sub(b"/MANYSD+", buffer.getvalue())


def _one(plot: Plot, form: str, dpi: int) -> bytes:
    buffer = io.BytesIO()
    told: dict[str, object] = {"Title": plot.title, "Description": plot.caption}
    told |= {"Date": None} if form == "svg" else {}
    with mpl.rc_context({**_RC, "svg.hashsalt": plot.name}):
        plot.figure.savefig(buffer, format=form, dpi=dpi, metadata=told)
    return buffer.getvalue()
