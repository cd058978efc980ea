"""Of which runs the parameters are kept, where a sweep file asks for those of some.

The condition is about what is known before a run is trained. Where all runs of a repeat are the
same fit, that of the first decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.orchestrator.conditions import condition
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.filtering import refusing
from manyseed.orchestrator.plans.plan import CELLS
from manyseed.orchestrator.store.layout.schema import GroupSpec

KEY = "keep.parameters"

_COLUMNS: Mapping[str, pl.DataType] = {
    **{axis: CELLS[axis] for axis in AXES},
    "repeat_index": pl.Int64(),
    "run_index": pl.Int64(),
}


def require_condition(where: str, file: Path) -> None:
    """Refuse a text that is no condition on what is known before a run is trained.

    Raises
    ------
    UserError
    """
    try:
        with refusing(where, _COLUMNS, KEY):
            pl.DataFrame(schema=_COLUMNS).filter(condition(where, [*_COLUMNS]))
    except UserError as error:
        raise UserError(
            error.message,
            file=file,
            key=KEY,
            value=error.value,
            remedy=f"known before a run is trained are {', '.join(_COLUMNS)}; of runs that results "
            "choose, the best among them, manyseed rerun DIR --where … --save writes the models",
        ) from None


def may_be_met(where: str, dataset: str, classifier: str, method: str) -> bool:
    """Return whether runs of a group can meet a condition, whatever else is known of them.

    Parameters
    ----------
    where : str
        A condition.
    dataset, classifier, method : str
        The group's; ``none`` where there is no ensembling method.
    """
    known = {"dataset": dataset, "classifier": classifier, "ensembling": method}
    row = pl.DataFrame({name: [known.get(name)] for name in _COLUMNS}, schema=_COLUMNS)
    # null stands for what is not known: AND and OR go on where the rest decides
    return row.select(condition(where, [*_COLUMNS])).item() is not False


def conditions(specs: Iterable[GroupSpec]) -> dict[int, str]:
    """Return the conditions of groups that have one, by the group's number."""
    return {spec.number: spec.parameters_where for spec in specs if spec.parameters_where}


def counted(cells: pl.DataFrame, rows: pl.DataFrame, specs: Sequence[GroupSpec]) -> dict[int, int]:
    """Return of how many rows the parameters are kept, by the group's number.

    Groups that keep those of all runs are left out.

    Parameters
    ----------
    cells, rows
        As `with_models` has them.
    specs : sequence of GroupSpec
        The groups.
    """
    where = conditions(specs)
    if not where:
        return {}
    of_some = rows.filter(pl.col("group").is_in([*where]))
    kept = of_some.filter(with_models(cells, of_some, where))
    return dict.fromkeys(where, 0) | dict(kept.group_by("group").len().iter_rows())


def with_models(cells: pl.DataFrame, rows: pl.DataFrame, where: Mapping[int, str]) -> pl.Series:
    """Return of which rows the parameters are kept, if those of their group are kept at all.

    Parameters
    ----------
    cells : DataFrame
        Columns cell, identical and the axes.
    rows : DataFrame
        Columns group, cell, repeat and run.
    where : mapping of int to str
        As `conditions` returns it; groups without one keep those of all.

    Returns
    -------
    Boolean Series (row,)
    """
    if not where:
        return pl.repeat(value=True, n=len(rows), dtype=pl.Boolean, eager=True).alias("models")
    first = pl.when("identical").then(0).otherwise(pl.col("run").cast(pl.Int64))
    named = (
        rows.lazy()
        .select("group", "cell", "repeat", "run")
        .join(
            cells.lazy().select("cell", "identical", *AXES),
            on="cell",
            how="left",
            maintain_order="left",
        )
        .with_columns(repeat_index=pl.col("repeat").cast(pl.Int64), run_index=first)
    )
    found = pl.lit(value=True)
    for group, text in where.items():
        met = condition(text, [*_COLUMNS]).fill_null(value=False)
        found = pl.when(pl.col("group") == group).then(met).otherwise(found)
    return named.select(found.alias("models")).collect()["models"]
