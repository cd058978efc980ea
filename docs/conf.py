"""The site: the repository's own pages, so that links work here as they do in a checkout."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

project = "manyseed"
author = "The manyseed maintainers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
include_patterns = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "AGENTS.md",
    "CODE_OF_CONDUCT.md",
    "SECURITY.md",
    "docs/*.md",
    "benchmarks/README.md",
    "examples/README.md",
]
root_doc = "README"
templates_path = ["templates"]
html_theme = "furo"
html_title = "manyseed"
html_additional_pages = {"index": "begin.html"}
html_show_sourcelink = False
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
autodoc_typehints = "description"

PAGES = {
    "Begin": ("start", "recipes", "faq", "glossary"),
    "Sweeps": ("sweep-file", "datasets", "classifiers", "own", "perturbations", "cluster", "scale"),
    "Results": (
        "results",
        "claims",
        "plots",
        "fashion",
        "uncertainty",
        "response",
        "import",
        "commands",
        "python",
        "json",
    ),
    "Inside": ("design", "extending", "reproducibility", "identity", "store", "compared"),
}
_HOUSE = ("AGENTS", "SECURITY", "CODE_OF_CONDUCT")
MORE = {
    "Sweeps": ("examples/README",),
    "Inside": ("benchmarks/README", "CONTRIBUTING", "CHANGELOG", *_HOUSE),
}


def setup(app: Any) -> None:
    """Give the README the list of pages, and pages what was added since they were written."""
    app.connect("source-read", _add_contents)
    app.connect("source-read", _add_further)


def _add_further(_: Any, name: str, source: list[str]) -> None:
    from manyseed.orchestrator.cli.guide import completed

    source[0] = completed(name.removeprefix("docs/"), source[0])


def _add_contents(_: Any, name: str, source: list[str]) -> None:
    if name != root_doc:
        return
    there = {file.stem for file in Path(__file__).parent.glob("*.md")}
    listed_somewhere = {page for pages in PAGES.values() for page in pages}
    further = {"Further": tuple(sorted(there - listed_somewhere))}
    for caption, pages in (
        PAGES | {name: found for name, found in further.items() if found}
    ).items():
        listed = [*(f"docs/{page}" for page in pages), *MORE.get(caption, ())]
        lines = "\n".join(listed)
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{lines}\n```\n"
