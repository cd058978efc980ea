"""Draw the pictures of ``docs/plots.md`` from the quickstart, with the commands on that page.

Run from the repository's folder after ``make quickstart``:
``python docs/make_gallery.py quickstart``.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

from manyseed import Sweep
from manyseed.analysis.figures.drawing import as_files

HERE = Path(__file__).parent
PICTURES = HERE / "images" / "gallery"
DPI = 100
_SHOWN = re.compile(r"```sh\nmanyseed plot quickstart ([^\n]*)\n```\n\n!\[[^]]*\]\(([^)]*)\)")
_OPTIONS = {"--by": "by", "--where": "where", "-w": "where", "--width": "width"}


def shown() -> dict[str, tuple[str, dict[str, str]]]:
    """Return kind and options of the command above each picture of the page."""
    found = {}
    for command, picture in _SHOWN.findall((HERE / "plots.md").read_text()):
        kind, *given = shlex.split(command)
        options = dict(zip(given[::2], given[1::2], strict=True))
        options = {_OPTIONS[name]: value for name, value in options.items() if name in _OPTIONS}
        found[picture] = (kind, options)
    return found


def main(directory: Path) -> None:
    """Draw all pictures of the page; each is the first figure of its kind."""
    sweep = Sweep(directory)
    PICTURES.mkdir(exist_ok=True)
    for picture, (kind, options) in shown().items():
        by = options.pop("by", "").split(",")
        drawn = sweep.plot.all(kind, by=by, **options)
        (HERE / picture).write_bytes(as_files(drawn[:1], "png", DPI)[0])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
