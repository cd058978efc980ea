"""Fill ``docs/fashion.md`` from its sweep: a table or a figure below each command.

The runs of table IV are also filled in, as the report chooses them.

Run from the repository's folder, after the sweep is trained and analysed and `manyseed howmany` has
run: ``python docs/make_fashion.py fashion``. The sentences between are written by hand.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE / "fashion.md"
DPI = 100
_SIMILAR = re.compile(r"cell = \d+ AND run_index IN \([\d, ]*\)")
_TABLE = re.compile(r"(```sh\n(manyseed query fashion [^`]*?)\n```\n\n)\|.*?\n(?=\n)", re.DOTALL)
_FIGURE = re.compile(r"```sh\n(manyseed plot fashion [^\n]*)\n```\n\n!\[[^]]*\]\(([^)]*)\)")


def ask(command: str, sweep: Path) -> str:
    """Return what a command of the page prints for a sweep directory."""
    words = [str(sweep) if word == "fashion" else word for word in shlex.split(command)[1:]]
    run = [sys.executable, "-m", "manyseed", *words]
    return subprocess.run(run, check=True, capture_output=True, text=True).stdout


def similar_cnns(sweep: Path) -> str:
    """Return the condition of the CNNs of similar accuracy that differ most in α̂."""
    from manyseed import Sweep
    from manyseed.analysis.report.tables import similar

    rows = similar(Sweep(sweep).results["runs"].filter(classifier="cnn"))
    chosen = ", ".join(map(str, rows["run_index"].sort()))
    return f"cell = {rows['cell'][0]} AND run_index IN ({chosen})"


def filled(page: str, sweep: Path) -> str:
    """Return the page with the tables of the sweep; notes below a table are left out."""
    page = _SIMILAR.sub(similar_cnns(sweep), page)

    def table(found: re.Match[str]) -> str:
        return found[1] + ask(found[2], sweep).partition("\n\n")[0].rstrip("\n") + "\n"

    return _TABLE.sub(table, page)


def draw(page: str, sweep: Path) -> None:
    """Draw the figures of the page."""
    from manyseed import Sweep
    from manyseed.analysis.figures.drawing import as_files

    for command, picture in _FIGURE.findall(page):
        kind, *options = shlex.split(command)[3:]
        given = dict(zip((name.strip("-") for name in options[::2]), options[1::2], strict=True))
        drawn = Sweep(sweep).plot.all(kind, **given)
        (HERE / picture).write_bytes(as_files(drawn[:1], "png", DPI)[0])


def main(sweep: Path) -> None:
    """Fill the page."""
    page = filled(PAGE.read_text(), sweep)
    PAGE.write_text(page)
    draw(page, sweep)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
