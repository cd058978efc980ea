"""What a paper cites of a study, and how it is printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Citation:
    """What a paper cites: authors as words list them, and its number on arXiv if it is there."""

    authors: str
    title: str
    year: int | None = None
    arxiv: str = ""
    note: str = ""  # of this software, as no other is cited

    @property
    def text(self) -> str:
        """The entry of a bibliography."""
        doi = f"doi:10.48550/arXiv.{self.arxiv}" if self.arxiv else self.note
        year = str(self.year) if self.year else ""
        return f"{self.authors}: {', '.join(filter(None, (self.title, year, doi)))}"

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
        authors = names if self.arxiv else f"{{{self.authors}}}"
        facts: dict[str, Any] = {"author": authors, "title": f"{{{self.title}}}"}
        note = self.note and f"{self.note}, version {version('manyseed')}"
        facts |= {"year": self.year, "note": note}
        if self.arxiv:
            doi = f"10.48550/arXiv.{self.arxiv}"
            facts |= {"eprint": self.arxiv, "archivePrefix": "arXiv", "doi": doi}
        lines = (f"  {name} = {{{value}}},\n" for name, value in facts.items() if value)
        return f"@misc{{{key},\n{''.join(lines)}}}\n"


STUDIES = {
    "manyseed": Citation("The manyseed maintainers", "manyseed", note="software"),
    "banerjee2025": Citation(
        "S. Banerjee, T. Marrinan, R. Cannon, T. Chiang and A. D. Sarwate",
        "Measuring training variability from stochastic optimization using robust nonparametric "
        "testing",
        *(2025, "2406.08307"),
    ),
    "banerjee2024": Citation(
        "S. Banerjee, R. Cannon, T. Marrinan, T. Chiang and A. D. Sarwate",
        "Robust nonparametric hypothesis testing to understand variability in training neural "
        "networks",
        *(2024, "2310.00541"),
    ),
    "ashukha2020": Citation(
        "A. Ashukha, A. Lyzhov, D. Molchanov and D. Vetrov",
        "Pitfalls of in-domain uncertainty estimation and ensembling in deep learning",
        *(2020, "2002.06470"),
    ),
    "schiff2021": Citation(
        "Y. Schiff, B. Quanz, P. Das and P.-Y. Chen",
        "Predicting deep neural network generalization with perturbation response curves",
        *(2021, "2106.04765"),
    ),
    "martinez2017": Citation(
        "J. Martinez, R. Hossain, J. Romero and J. J. Little",
        "A simple yet effective baseline for 3d human pose estimation",
        *(2017, "1705.03098"),
    ),
    "simonyan2015": Citation(
        "K. Simonyan and A. Zisserman",
        "Very deep convolutional networks for large-scale image recognition",
        *(2015, "1409.1556"),
    ),
    "he2016deep": Citation(
        "K. He, X. Zhang, S. Ren and J. Sun",
        "Deep residual learning for image recognition",
        *(2016, "1512.03385"),
    ),
    "he2016identity": Citation(
        "K. He, X. Zhang, S. Ren and J. Sun",
        "Identity mappings in deep residual networks",
        *(2016, "1603.05027"),
    ),
    "zagoruyko2016": Citation(
        "S. Zagoruyko and N. Komodakis", "Wide residual networks", 2016, "1605.07146"
    ),
    "chen2016": Citation(
        "T. Chen and C. Guestrin", "XGBoost: a scalable tree boosting system", 2016, "1603.02754"
    ),
    "pedregosa2011": Citation(
        "F. Pedregosa et al.", "Scikit-learn: machine learning in Python", 2011, "1201.0490"
    ),
    "paszke2019": Citation(
        "A. Paszke et al.",
        "PyTorch: an imperative style, high-performance deep learning library",
        *(2019, "1912.01703"),
    ),
}
"""By key; titles and numbers are those of arXiv."""

QUANTITIES = {
    "banerjee2025": "α̂, δ",
    "banerjee2024": "α̂ against the ensemble of the other runs",
    "ashukha2020": "calibrated log-likelihood, deep ensemble equivalent",
    "schiff2021": "scores of response curves",
}
"""What a study is cited for."""
