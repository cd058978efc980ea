"""One answer in words, and the one that depends on how far the sweep is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sentence:
    """One answer.

    Attributes
    ----------
    about : str
        Which question it answers: recipes, missing, accuracy, spread, effects, consistency, levels,
        enough, sources, standings, scores (of response curves) or probabilities.
    text : str
    links : tuple of str
        Names of the figures or sections that show it, the best one first.
    """

    about: str
    text: str
    links: tuple[str, ...]

    @property
    def brief(self) -> str:
        """The text without what stands in brackets: samples, intervals, corrections."""
        depth, kept = 0, ""
        for letter in self.text:
            if letter == "(":
                kept = kept if depth else kept.removesuffix(" ")
                depth += 1
            kept += "" if depth else letter
            depth -= letter == ")" and depth > 0
        return kept


def incomplete(
    short: int, repeats: int, planned: int, finished: int, failed: int
) -> Iterator[Sentence]:
    """Say how many planned runs the results lack.

    Parameters
    ----------
    short, repeats : int
        Repeats in the tables that lack runs, and all.
    planned, finished, failed : int
        Runs of the sweep.
    """
    if finished >= planned:
        return
    lacking = f"; {short:,} of {repeats:,} repeats lack runs" if short else ""
    failures = f", of which {failed:,} failed" if failed else ""
    yield Sentence(
        "missing",
        f"The results are incomplete: they lack {planned - finished:,} of {planned:,} planned runs"
        f"{failures}{lacking}. Everything below rests on the other runs alone.",
        ("conventions",),
    )
