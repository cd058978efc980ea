"""What a paper cites, as ``studies.toml`` lists it, how it is printed, and what it is cited for.

Tests behind verdicts, packages that trained, and users' own classifiers, which are part of them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from manyseed.analysis.figures.labels import labelled
from manyseed.analysis.questions.usual import models


@dataclass(frozen=True, slots=True)
class Citation:
    """What a paper cites: authors as words list them, and where it was published.

    That is a journal, or the proceedings of a conference (`book`), with volume, number and pages,
    and the DOI if it has one; or its number on arXiv alone.
    """

    authors: str
    title: str
    year: int | None = None
    arxiv: str = ""
    journal: str = ""
    book: str = ""
    volume: str = ""
    number: str = ""
    pages: str = ""
    doi: str = ""
    published: str = ""  # where, if neither in a journal nor in proceedings
    note: str = ""  # of this software, as no other is cited
    cited_for: str = ""  # quantities that the study defines

    @property
    def text(self) -> str:
        """The entry of a bibliography."""
        doi = f"doi:{self._doi}" if self._doi else self.note
        year = str(self.year) if self.year else ""
        number = f"({self.number})" if self.number else ""
        venue = f"{self.journal or self.book or self.published} {self.volume}{number}".strip()
        parts = (self.title, venue, self.pages.replace("-", "–"), year, doi)
        return f"{self.authors}: {', '.join(filter(None, parts))}"

    @property
    def _doi(self) -> str:
        return self.doi or (f"10.48550/arXiv.{self.arxiv}" if self.arxiv else "")

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
        facts |= {"journal": self.journal, "booktitle": self.book, "volume": self.volume}
        facts |= {"number": self.number.replace("-", "--"), "pages": self.pages.replace("-", "--")}
        if self.arxiv:
            venue = "" if self.journal or self.book else f"arXiv:{self.arxiv}"
            facts |= {
                "howpublished": self.published or venue,
                "eprint": self.arxiv,
                "archivePrefix": "arXiv",
            }
        facts.setdefault("howpublished", self.published)
        facts["doi"] = self._doi
        lines = (f"  {name} = {{{value}}},\n" for name, value in facts.items() if value)
        kind = "article" if self.journal else "inproceedings" if self.book else "misc"
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


def tests_in_words(cells: pl.DataFrame, sets: int, effects: Mapping[str, str]) -> Iterator[str]:
    """Say which tests are behind verdicts: as `questions.accuracy`, `comparison` and `effects`.

    `cells`: with the columns cell and those of `AXES`. `sets`: test sets of a cell. `effects`: the
    reference level of each axis that has some.
    """
    parts = cells.partition_by("dataset")
    several = max((models(own)["classifier"].n_unique() for own in parts), default=0)
    pairs = several * (several - 1) // 2
    level = ", at 95 %"
    if pairs > 1:
        level = (
            f", at 95 % for all {pairs:,} pairs of classifiers of a data set together "
            "(Bonferroni's correction [@dunn1961])"
        )
    if several > 1 and sets > 1:
        yield (
            "A classifier is called better than another (A > B) if the interval of the difference "
            "excludes 0: mean accuracies over runs, paired by test set, with Student's t over test "
            f"sets{level}."
        )
    elif several > 1:
        yield (
            "A classifier is called better than another (A > B) on the single test set alone, if "
            "Welch's t interval [@welch1947] of the difference of mean accuracies over seeds "
            f"excludes 0{level}; of other test sets, nothing is said."
        )
    if cells.height > 1:
        yield (
            "Two cells compared by themselves: runs with the same index are paired where they "
            "share random streams. Over seeds, the difference has a t interval with "
            "Satterthwaite's degrees of freedom [@satterthwaite1946] (with one test set, that of "
            "the paired t test, or of Welch's [@welch1947] without pairs); over seeds and test "
            "sets, each test set is one observation of a paired t test, and the interval is "
            "widened at either end to that over seeds, where that reaches further. P(A better "
            "than B) is the probability of improvement [@agarwal2021], with its score interval "
            "[@newcombe2006]."
        )
    if cells.height > 2:
        yield (
            "Intervals in a table of such pairs are of each pair by itself; a verdict marked as "
            "alone does not hold for all pairs of the table together (Bonferroni's correction "
            "[@dunn1961])."
        )
    if effects:
        yield (
            f"Effects of {listed([labelled(one) for one in effects])} are differences from the "
            f"reference level ({listed([*effects.values()])}), paired by test "
            f"set{'' if sets > 1 else ' and run'}, with t tests over "
            f"{'test sets' if sets > 1 else 'seeds'}; p values are corrected for the number "
            "of comparisons of a metric (Holm's method [@holm1979])."
        )


# ---- classifiers of users, and packages

INTERNAL = ("own", "form", "encode", "scores", "command", "rows", "timeout")
"""Settings of users' own classifiers, as `wording` writes them, that a paper does not print."""

_LIBRARIES = {
    "sklearn": "scikit-learn",
    "xgboost": "XGBoost",
    "lightgbm": "LightGBM",
    "catboost": "CatBoost",
}
"""Libraries of estimators by the module that is imported."""

_FORMS = {
    "estimator": "the estimator that {} returns",
    "train": "the training function {}",
    "module": "the PyTorch module {}, trained with cross-entropy",
    "command": "the program {}",
}


def is_own(classifier: Mapping[str, Any]) -> bool:
    """Return whether a classifier is users' own code, by its canonical description."""
    return "own" in classifier and "form" in classifier


def own_in_words(classifier: Mapping[str, Any], hparams: set[str]) -> str:
    """Say what a user's own classifier is; `hparams`: names of those that are told apart."""
    entry, form = str(classifier["name"]), str(classifier["form"])
    params = classifier.get("params", {})
    params = {name: one for name, one in params.items() if name not in hparams}
    if form == "estimator" and _library(entry):
        return f"{_estimator(entry, params)} of {_library(entry)}"
    settings = _settings(params)
    return _FORMS.get(form, "{}").format(entry) + (f"; {settings}" if settings else "")


def _library(entry: str) -> str:
    return _LIBRARIES.get(re.split("[.:]", entry)[0], "")


def _estimator(entry: str, params: Mapping[str, Any]) -> str:
    """Return an estimator as its class with its parameters; a pipeline as its steps."""
    name = entry.rpartition(":")[2].rpartition(".")[2] if _library(entry) else entry
    steps = params.get("steps")
    if name == "Pipeline" and isinstance(steps, Sequence) and steps:
        last = [one[-1] if isinstance(one, Sequence) else one for one in map(_plain, steps)]
        return f"a pipeline of {listed([_in_words(one) for one in last])}"
    settings = _settings(params)
    return f"{name} ({settings})" if settings else name


def _settings(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {_in_words(one)}" for name, one in params.items())


def _plain(value: Any) -> Any:
    return value["tuple"] if isinstance(value, Mapping) and {*value} == {"tuple"} else value


def _in_words(value: Any) -> str:
    """Return a value of ``params`` as `jobs.own.calling.built` reads it."""
    value = _plain(value)
    if isinstance(value, Mapping):
        if "estimator" in value:
            return _estimator(str(value["estimator"]), value.get("params", {}))
        if {*value} == {"import"}:
            return str(value["import"]).replace(":", ".")
        return "none" if {*value} == {"none"} else f"[{_settings(value)}]"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_in_words, value))}]"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def seeds_in_words(models: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Say which seeds estimators get; `models`: canonical descriptions of classifiers by name."""
    seeds = {
        name: sorted({one.rpartition("__")[2] for one in model.get("seeds", {})})
        for name, model in models.items()
        if model.get("form") == "estimator"
    }
    for name, own in seeds.items():
        if own:
            yield f"For {name}, {listed(own)} is drawn anew for each run."
    if fixed := [name for name, own in seeds.items() if not own]:
        get, model = ("gets", "it is") if len(fixed) == 1 else ("get", "each is")
        yield f"{listed(fixed)} {get} no seed: trained on the same data, {model} the same model."


def reached_in_words(
    sources: Collection[str], reached: Mapping[str, Collection[str]]
) -> Iterator[str]:
    """Say which sources reach which classifiers' fits, unless each reaches all."""
    of = {one: [name for name, own in reached.items() if one in own] for one in sorted(sources)}
    if any(len(names) < len(reached) for names in of.values()):
        told = [f"{one} reaches {listed(names)}" for one, names in of.items() if names]
        none = [name for name, own in reached.items() if not {*sources} & {*own}]
        told += [f"none reaches {listed(none)}"] if none else []
        yield f"Of these, {'; '.join(told)}."


def copied_in_words(cells: pl.DataFrame, identical: Collection[int]) -> str:
    """Say whose runs are copies; empty if that is unknown. `identical`: cells of copies."""
    is_one = pl.col("cell").is_in([*identical])
    each = cells.group_by("classifier").agg(is_one.sum().alias("n"), pl.len())
    whose = [
        str(name) if n == every else f"{name} in {n:,} of its {every:,} combinations"
        for name, n, every in each.sort(pl.col("classifier").cast(pl.String)).rows()
        if n
    ]
    return f" (of {listed(whose)})" if whose else ""


DATA = {
    "sklearn:iris": "fisher1936",
    "sklearn:breast_cancer": "street1993",
    "sklearn:digits": "alpaydin1998",
    "sklearn:wine": "aeberhard",
    "torchvision:MNIST": "lecun1998",
    "torchvision:FashionMNIST": "xiao2017",
    "torchvision:CIFAR10": "krizhevsky2009",
    "torchvision:CIFAR100": "krizhevsky2009",
}
"""What is cited for data, by source."""


def data_cited(name: str, one: Mapping[str, Any]) -> str:
    """Return the name of data and what is cited for them, by their description."""
    source = one.get("source", name)
    return f"{name} [@{DATA[source]}]" if source in DATA else name


_CITED = {"scikit-learn": "pedregosa2011", "torch": "paszke2019", "xgboost": "chen2016"}
"""What is cited for packages that trained."""
_SHARED = {"scipy": {"scipy", "scikit-learn", "xgboost"}}
"""Packages that others use, and by which ones."""


def packages_in_words(
    versions: Mapping[str, Sequence[str]],
    classifiers: Sequence[Mapping[str, Any]],
    used: set[str],
    libraries: Sequence[str] | None,
) -> tuple[str, list[str]]:
    """Return this software and the packages that trained, with their versions and citations.

    `versions`: of all that are installed. `classifiers`: canonical descriptions. `used`: packages
    of classifiers of this project. `libraries`: modules that users' own code imports; if that is
    unknown (None), no package is left out.
    """
    modules = {re.split("[.:]", entry)[0] for one in classifiers for entry in _entries(one)}
    modules |= {*(libraries or ())}
    used = used | {{"sklearn": "scikit-learn"}.get(one, one) for one in modules}
    told = {name: f"{name} {' and '.join(of)}" for name, of in versions.items()}
    own = told.pop("manyseed", "manyseed")
    for package in [one for one in _CITED if one in used]:
        name = next((one for one in told if one.removesuffix("-cpu") == package), package)
        told[name] = f"{told.get(name, name)} [@{_CITED[package]}]"
    by = {**{one: {one} for one in _CITED}, **_SHARED}

    def is_needed(name: str) -> bool:
        users = by.get(name.removesuffix("-cpu"))
        return libraries is None or users is None or bool(users & used)

    return own, [text for name, text in told.items() if is_needed(name)]


def _entries(value: Any) -> Iterator[str]:
    """Yield the code that the canonical description of a classifier names."""
    if isinstance(value, Mapping):
        named = ("name",) if is_own(value) else ("estimator", "import")
        yield from (str(value[key]) for key in named if key in value)
        value = [*value.values()]
    if isinstance(value, list | tuple):
        for inner in value:
            yield from _entries(inner)
