"""What a paper cites, as ``studies.toml`` lists it, how it is printed, and the tests it cites."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.figures.labels import labelled


@dataclass(frozen=True, slots=True)
class Citation:
    """What a paper cites: authors as words list them, and its number on arXiv if it is there.

    Otherwise the journal with volume and pages, and the DOI if it has one.
    """

    authors: str
    title: str
    year: int | None = None
    arxiv: str = ""
    journal: str = ""
    volume: str = ""
    pages: str = ""
    doi: str = ""
    note: str = ""  # of this software, as no other is cited
    cited_for: str = ""  # quantities that the study defines

    @property
    def text(self) -> str:
        """The entry of a bibliography."""
        doi = f"doi:{self._doi}" if self._doi else self.note
        year = str(self.year) if self.year else ""
        journal = f"{self.journal} {self.volume}".strip()
        parts = (self.title, journal, year, doi)
        return f"{self.authors}: {', '.join(filter(None, parts))}"

    @property
    def _doi(self) -> str:
        return f"10.48550/arXiv.{self.arxiv}" if self.arxiv else self.doi

    @property
    def short(self) -> str:
        """Its mention in a text: authors and year."""
        names = [name.rpartition(". ")[2] for name in self._names]
        first = f"{names[0]} et al." if len(names) > 2 else " and ".join(names)
        return f"{first} {self.year or ''}".strip()

    @property
    def _names(self) -> list[str]:
        return self.authors.replace(" and ", ", ").split(", ")

    def bibtex(self, key: str) -> str:
        """Return the entry of a BibTeX file."""
        from importlib.metadata import version

        names = " and ".join(self._names).replace(" et al.", " and others")
        authors = f"{{{self.authors}}}" if self.note else names
        facts: dict[str, Any] = {"author": authors, "title": f"{{{self.title}}}"}
        note = self.note and f"{self.note}, version {version('manyseed')}"
        facts |= {"year": self.year, "note": note}
        if self.arxiv:
            facts |= {"eprint": self.arxiv, "archivePrefix": "arXiv"}
        pages = self.pages.replace("-", "--")
        facts |= {"journal": self.journal, "volume": self.volume, "pages": pages, "doi": self._doi}
        lines = (f"  {name} = {{{value}}},\n" for name, value in facts.items() if value)
        kind = "article" if self.journal else "misc"
        return f"@{kind}{{{key},\n{''.join(lines)}}}\n"


STUDIES = {
    key: Citation(**one)
    for key, one in tomllib.loads(
        Path(__file__).with_name("studies.toml").read_text("utf-8")
    ).items()
}
"""By key, in the order in which they are cited."""


def listed(words: Sequence[str]) -> str:
    """Return words as a sentence lists them."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def tests_in_words(cells: pl.DataFrame, sets: int, has: Sequence[str]) -> Iterator[str]:
    """Say which tests are behind verdicts: as `questions.accuracy`, `comparison` and `effects`.

    `cells`: with the columns of `AXES`. `sets`: test sets of a cell. `has`: the result tables.
    """
    of_dataset = cells.group_by("dataset").agg(n=pl.col("classifier").n_unique())
    several = int(of_dataset["n"].max() or 0)  # type: ignore[arg-type]
    if several > 1 and sets > 1:
        pairs = several * (several - 1) // 2
        all_pairs = (
            f", at 95 % for all {pairs:,} pairs of classifiers of a data set together "
            "(Bonferroni's correction [@dunn1961])"
        )
        yield (
            "A classifier is called better than another (A > B) if the interval of the difference "
            "excludes 0: mean accuracies over runs, paired by test set, with Student's t over test "
            f"sets{all_pairs if pairs > 1 else ', at 95 %'}."
        )
    elif several > 1:
        yield "Which classifier is better is not judged, as there is a single test set."
    if cells.height > 1:
        yield (
            "Two cells compared by themselves: runs with the same index are paired where they "
            "share random streams. Over seeds, the difference has a t interval with "
            "Satterthwaite's degrees of freedom [@satterthwaite1946] (with one test set, that of "
            "the paired t test, or of Welch's [@welch1947] without pairs); over seeds and test "
            "sets, each test set is one observation of a paired t test. P(A better than B) is the "
            "probability of improvement [@agarwal2021], with its score interval [@newcombe2006]."
        )
    changed = [axis for axis in AXES[2:] if cells[axis].n_unique() > 1]
    if changed and "effects" in has:
        yield (
            f"Effects of {listed([labelled(one) for one in changed])} are differences from the "
            f"reference level, paired by test set{'' if sets > 1 else ' and run'}, with t tests "
            f"over {'test sets' if sets > 1 else 'seeds'}; p values are corrected for the number "
            "of comparisons of a metric (Holm's method [@holm1979])."
        )
