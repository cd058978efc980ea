"""Why a kind of figures cannot be drawn, in words, where the tables tell."""

from __future__ import annotations

import polars as pl

from manyseed.analysis.figures.given import Given
from manyseed.analysis.figures.kinds import find
from manyseed.analysis.figures.levels import LEVELS, NOTHING
from manyseed.analysis.figures.quantities import schemas, table_of
from manyseed.analysis.tables.rows import several

_GRID = ("perturb_continuous", "perturb_hparams")
_WITH_ZEROS = ("sources_", "epochs_")  # kinds that show α̂ also where it is 0 everywhere


def why_not(name: str, given: Given) -> str:
    """Return why nothing is drawn: too little to compare, or values undefined or 0; "" if unknown.

    Parameters
    ----------
    name : str
        A kind, or a column of the tables.
    given : Given
        With the further table that the kind needs.
    """
    kind = find(name)
    plain = name.replace("-", "_") if kind is None else kind.name.replace("-", "_")
    if kind is not None and (reason := _nothing_to_compare(kind.name, given)):
        return reason
    for table, column in _columns(plain, given, of_page=kind is not None):
        frame = getattr(given.tables, table)
        if reason := _no_values(frame, table, column, zero=not plain.startswith(_WITH_ZEROS)):
            return reason
    return ""


def _nothing_to_compare(kind: str, given: Given) -> str:
    cells = given.tables.cells
    by_dataset = kind.startswith("overview-") or kind == "mean-ranks"
    if by_dataset and cells["dataset"].n_unique() < 2:
        return "it compares datasets, and there is only one"
    if kind == "mean-ranks" and cells["classifier"].n_unique() < 2:
        return "it compares classifiers, and there is only one"
    if kind == "grids" and (same := [axis for axis in _GRID if cells[axis].n_unique() < 2]):
        lacking = " and one ".join(same)
        return f"it is a grid of {' and '.join(_GRID)}, and cells have one {lacking}"
    if kind.startswith("sources-") and cells["vary"].n_unique() < 2:
        return "it compares sources of randomness, and all cells have the same vary"
    if kind.startswith("epochs-") and not several(given.every_epoch.cells):
        return "it compares epochs, and only one was analysed"
    return ""


def _columns(name: str, given: Given, *, of_page: bool) -> list[tuple[str, str]]:
    """Return the columns, each with its table, without which a kind shows nothing."""
    if not of_page:
        table = table_of(schemas(given.tables), name)
        return [] if table is None else [(table, name)]
    first, _, rest = name.partition("_")
    if first in ("overview", "sources"):
        return [("cells", rest)]
    if first == "epochs":
        return [("runs", rest), ("runs", "accuracy")]
    if name == "alpha_hat_pairs":
        return [("pairs", "churn"), ("runs", "alpha_hat")]
    if name.startswith("alpha_hat_"):
        return [("runs", "alpha_hat"), ("runs", name.removeprefix("alpha_hat_"))]
    return []


def _no_values(table: pl.DataFrame, name: str, column: str, *, zero: bool) -> str:
    if table.is_empty():
        return f"there are no {name}"
    known = table[column].drop_nulls() if column in table.columns else pl.Series(dtype=pl.Float64)
    if known.is_empty():
        return f"{column} is undefined for all {name}"
    if zero and column in LEVELS and float(known.max()) < NOTHING:  # type: ignore[arg-type]
        return f"{column} is 0 for all {name}"
    return ""
