"""Fill the outputs of ``docs/start.md``: run its blocks in order, and keep what they print.

Run from the repository's folder: ``python docs/make_start.py``. A block ``text`` receives the
output of the block before it, as in a terminal of 80 columns.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).with_name("start.md")
BLOCK = re.compile(
    r"(?P<skip><!-- not run by the tests -->\n)?"
    r"```(?P<kind>sh|python|toml)(?: title=\"(?P<file>[^\"]+)\")?\n(?P<text>.*?)^```\n"
    r"(?:\n```text\n(?P<told>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


def run(block: re.Match[str], folder: Path) -> str:
    """Run a block; return it with its output."""
    if block["skip"]:
        return block[0]
    if block["kind"] == "toml":
        if block["file"]:
            (folder / block["file"]).write_text(block["text"])
        return block[0]
    words = ["bash", "-e", "-c"] if block["kind"] == "sh" else [sys.executable, "-c"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [*words, block["text"]],
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "80"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    if block["told"] is None:
        return block[0]
    told = "\n".join(line.rstrip() for line in done.stdout.splitlines()).strip("\n")
    return block[0].replace(f"```text\n{block['told']}```", f"```text\n{told}\n```")


def main() -> None:
    """Run the page and write it."""
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(BLOCK.sub(lambda block: run(block, Path(folder)), PAGE.read_text()))


if __name__ == "__main__":
    sys.exit(main())
