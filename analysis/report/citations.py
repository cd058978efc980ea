"""What a paper cites, as ``studies.toml`` lists it, and how it is printed."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Citation:
    """What a paper cites: authors as words list them, and its number on arXiv if it is there.

    Otherwise the journal with its volume, and the DOI if it has one.
    """

    authors: str
    title: str
    year: int | None = None
    arxiv: str = ""
    journal: str = ""
    doi: str = ""
    note: str = ""  # of this software, as no other is cited
    cited_for: str = ""  # quantities that the study defines

    @property
    def text(self) -> str:
        """The entry of a bibliography."""
        doi = f"doi:{self._doi}" if self._doi else self.note
        year = str(self.year) if self.year else ""
        parts = (self.title, self.journal, year, doi)
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
        facts |= {"journal": self.journal, "doi": self._doi}
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
