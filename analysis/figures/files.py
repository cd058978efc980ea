"""Figures as single files, with identical bytes for identical figures."""

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
"""Width of one and two columns of a journal, in inches."""
DPI = 300

_RC: Any = {
    "pdf.fonttype": 42,  # TrueType: journals refuse Type 3
    "savefig.facecolor": "white",
    "savefig.bbox": None,
    "svg.fonttype": "path",  # looks the same on all systems
    "path.simplify": False,
}
_SUBSET = re.compile(rb"/[A-Z]{6}\+")


def as_files(plots: Sequence[Plot], form: str, dpi: int = DPI) -> list[bytes]:
    """Return figures as files: one PDF with a page per figure, or one file per figure.

    Parameters
    ----------
    plots : sequence of Plot
    form : str
        One of `FORMATS`. PDF embeds fonts as TrueType, SVG draws letters as paths; CSV holds the
        numbers drawn (`analysis.figures.style.numbers`), in UTF-8.
    dpi : int
        Pixels per inch of PNG, and of parts with too many dots for vectors.

    Raises
    ------
    Refused
        For any other format.
    """
    if form not in FORMATS:
        raise Refused("format", form, allowed=FORMATS)
    if form == "pdf":
        return [_pdf(plots, dpi)]
    if form == "csv":
        return [numbers(plot).write_csv().encode() for plot in plots]
    return [_one(plot, form, dpi) for plot in plots]


def _pdf(plots: Sequence[Plot], dpi: int) -> bytes:
    captions = "\n".join(plot.caption for plot in plots)
    metadata = {"Title": plots[0].title, "Subject": captions, "CreationDate": None}
    buffer = io.BytesIO()
    with mpl.rc_context(_RC), PdfPages(buffer, metadata=metadata) as pages:
        for plot in plots:
            pages.savefig(plot.figure, dpi=dpi)
    # the prefix of a subset font, six letters, differs between processes
    return _SUBSET.sub(b"/MANYSD+", buffer.getvalue())


def _one(plot: Plot, form: str, dpi: int) -> bytes:
    buffer = io.BytesIO()
    metadata: dict[str, object] = {"Title": plot.title, "Description": plot.caption}
    metadata |= {"Date": None} if form == "svg" else {}
    with mpl.rc_context({**_RC, "svg.hashsalt": plot.name}):
        plot.figure.savefig(buffer, format=form, dpi=dpi, metadata=metadata)
    return buffer.getvalue()
