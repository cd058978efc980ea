"""The pages that one begins with: their commands and Python are run as written, in order."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.here import call

ROOT = Path(__file__).parents[1]
PAGES = ("start", "recipes", "python")
FURTHER = ("faq", "results", "uncertainty", "reproducibility", "import", "plots")
"""Whose blocks speak of sweeps that lie there already: they are given those of the first pages."""
NAMES = {"DIR": "patients", "quickstart": "patients", "other-sweep": "again"}
ARRAYS = """
from pathlib import Path
import numpy as np
from manyseed import Sweep
rng = np.random.default_rng(0)
y = y_true = rng.integers(0, 2, 200)
scores, a, b = rng.normal(size=(3, 4, 200, 2)) + np.eye(2)[y_true]
X = scores[0] + rng.normal(size=(200, 2))
for name in ("seed-1", "seed-2", "seed-7", "seed-8", "a", "b", "c"):
    np.savez(f"{name}.npz", scores=rng.permuted(scores, axis=0), y_true=y_true)
for folder, names in (("seeds", ("scores", "y_true")), ("others", ("preds", "targets"))):
    Path(folder).mkdir(exist_ok=True)
    for seed in (2, 10):
        arrays = dict(zip(names, (rng.permuted(scores, axis=0), y_true)))
        np.savez(f"{folder}/seed-{seed}.npz", **arrays)
p = 1 / (1 + np.exp(scores[..., 0] - scores[..., 1]))
rows = [
    f"{seed},{true},{int(one > 0.5)},{1 - one},{one}\\n"
    for seed in range(2)
    for true, one in zip(y, p[seed])
]
Path("preds.csv").write_text("".join(["seed,true,pred,p_0,p_1\\n", *rows]))
if Path("patients").exists():
    sweep = Sweep("patients")
"""
NOT_RUN = "<!-- not run by the tests -->"
_BLOCK = re.compile(
    rf"^(?P<skip>{re.escape(NOT_RUN)}\n)?```(?P<kind>\w+)(?: title=\"(?P<file>[^\"]+)\")?\n"
    r"(?P<text>.*?)^```",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    kind: str
    file: str | None
    text: str


def blocks(page: str) -> Iterator[Block]:
    for found in _BLOCK.finditer((ROOT / "docs" / f"{page}.md").read_text()):
        if not found["skip"] and found["kind"] in ("sh", "python", "toml"):
            yield Block(found["kind"], found["file"], found["text"])


def run(block: Block, folder: Path) -> None:
    if block.kind == "toml":
        if block.file:
            (folder / block.file).write_text(block.text)
        return
    if block.kind == "sh":
        for words in commands(block.text, folder):
            if words[0] != "manyseed":
                subprocess.run(words, cwd=folder, check=True)
                continue
            done = call(*words[1:], cwd=folder)
            assert done.returncode == 0, f"{words}\n{done.output[-6000:]}"
        return
    run_apart(block, folder)


def commands(text: str, folder: Path) -> Iterator[list[str]]:
    """Yield the words of each command, as a shell makes them of text without variables."""
    open_ = ""
    for line in text.splitlines():
        open_ += f"{line}\n"
        try:
            words = shlex.split(open_, comments=True)
        except ValueError:  # a quotation that goes on in the next line
            continue
        open_ = ""
        if words:
            named = [sorted(folder.glob(word)) if {"*", "["} & {*word} else [] for word in words]
            yield [
                str(name)
                for word, files in zip(words, named, strict=True)
                for name in [file.relative_to(folder) for file in files] or [word]
            ]
    assert not open_


def run_apart(block: Block, folder: Path) -> None:
    """Run a block in a process of its own: Python, or a shell."""
    python = [sys.executable, "-c", block.text]
    done = subprocess.run(
        python if block.kind == "python" else ["bash", "-e", "-c", block.text],
        cwd=folder,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"{block.text}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_every_command_of_the_pages_works(tmp_path: Path) -> None:
    ran = 0
    for page in PAGES:
        for block in blocks(page):
            # what newcomers type first is typed in a shell
            (run_apart if (page, block.kind) == ("start", "sh") else run)(block, tmp_path)
            ran += block.kind != "toml"
    assert ran >= 23
    assert (tmp_path / "patients" / "report" / "index.html").exists()
    (tmp_path / "again").symlink_to("patients")
    run(Block("python", None, ARRAYS), tmp_path)
    ran = 0
    for page in FURTHER:
        for block in blocks(page):
            if block.kind == "toml" or re.search(r"dataset (=|IN) |mean-ranks", block.text):
                continue  # what is of several datasets, or of others
            ran += 1
            if block.kind == "python" and block.file:
                (tmp_path / block.file).write_text(block.text)
                continue
            if block.kind == "python":
                folder = tmp_path / f"{page}-{ran}"
                folder.mkdir()
                (folder / "patients").symlink_to(tmp_path / "patients")
                run(block._replace(text=f"{ARRAYS}\n{block.text}"), folder)
                continue
            text = re.sub(r"\bRUN\b", "0:0:0", block.text.replace("seed-*", "seed-[12]"))
            for name, ours in NAMES.items():
                text = re.sub(rf"(?<![\w-]){name}(?![\w-])", ours, text)
            run(block._replace(text=text), tmp_path)
    assert ran >= 15


def test_the_site_is_built_and_its_links_lead_somewhere(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going"]
    done = subprocess.run(
        [*build, "-c", "docs", "-d", tmp_path / "seen", ".", tmp_path / "site"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pages = {file.relative_to(tmp_path / "site").as_posix() for file in tmp_path.rglob("*.html")}
    ours = {f"docs/{file.stem}.html" for file in (ROOT / "docs").glob("*.md")}
    assert ours | {"index.html", "README.html", "CHANGELOG.html"} <= pages
    assert "howmany_until" in (tmp_path / "site" / "docs" / "python.html").read_text()


def test_every_example_is_on_its_page() -> None:
    page = (ROOT / "examples" / "README.md").read_text()
    for file in (ROOT / "examples").rglob("*.toml"):
        assert f"({file.relative_to(ROOT / 'examples').as_posix()})" in page


def test_recipes_show_the_columns_in_which_the_rows_of_patients_differ(tmp_path):
    for block in blocks("recipes"):
        for words in commands(block.text, tmp_path) if block.kind == "sh" else ():
            if words[1:3] == ["query", "patients"] and "--columns" in words:
                told = " ".join(words)
                for name in ("classifier", "perturb_continuous"):
                    assert name in told or "address" in told, told


def test_no_table_is_cut_by_a_blank_line() -> None:
    """Rows without a head are shown as text."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
            assert re.match(r"\|.*\n\|[-:| ]+\|\n", table), (page.name, table[:80])
