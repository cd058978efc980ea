"""Which runs keep their parameters, if a sweep file asks for those of some runs.

The condition uses only what is known before a run is trained. If all runs of a repeat are the same
fit, the first run decides for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.orchestrator.conditions import condition, wanted
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.plans.plan import CELLS
from manyseed.orchestrator.store.schema import GroupSpec

KEY = "keep.parameters"

_COLUMNS: Mapping[str, pl.DataType] = {
    **{axis: CELLS[axis] for axis in AXES},
    "repeat_index": pl.Int64(),
    "run_index": pl.Int64(),
}


def require_condition(where: str, file: Path) -> None:
    """Refuse a text that is not a condition on what is known before a run is trained."""
    try:
        wanted(where, _COLUMNS, KEY)
    except UserError as error:
        raise UserError(
            error.message,
            file=file,
            key=KEY,
            value=error.value,
            remedy=f"known before a run is trained are {', '.join(_COLUMNS)}; to save models that "
            "results choose, such as the best, use manyseed rerun DIR --where … --save",
        ) from None


def may_be_met(where: str, dataset: str, classifier: str, method: str) -> bool:
    """Return whether some run of a group may meet a condition.

    `where`: a condition. `dataset`, `classifier` and `method`: the group's; ``none`` without an
    ensembling method.
    """
    known = {"dataset": dataset, "classifier": classifier, "ensembling": method}
    row = pl.DataFrame({name: [known.get(name)] for name in _COLUMNS}, schema=_COLUMNS)
    # null stands for an unknown value: AND and OR still return what the known values decide
    return row.select(condition(where, _COLUMNS)).item() is not False


def conditions(specs: Iterable[GroupSpec]) -> dict[int, str]:
    """Return the conditions of groups that have one, by the group's number."""
    return {spec.number: spec.parameters_where for spec in specs if spec.parameters_where}


def counted(cells: pl.DataFrame, rows: pl.DataFrame, specs: Sequence[GroupSpec]) -> dict[int, int]:
    """Return how many rows keep their parameters, by group number.

    Groups in which all rows do are left out.

    `cells` and `rows`: as in `with_models`. `specs`: the groups.
    """
    where = conditions(specs)
    if not where:
        return {}
    conditional = rows.filter(pl.col("group").is_in([*where]))
    kept = conditional.filter(with_models(cells, conditional, where))
    return dict.fromkeys(where, 0) | dict(kept.group_by("group").len().iter_rows())


def with_models(cells: pl.DataFrame, rows: pl.DataFrame, where: Mapping[int, str]) -> pl.Series:
    """Return which rows keep their parameters, provided that their group stores parameters.

    `cells`: columns cell, identical and the axes. `rows`: columns group, cell, repeat and run.
    `where`: as returned by `conditions`; groups without a condition keep the parameters of all
    rows. Returns Boolean Series (row,).
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
    is_kept = pl.lit(value=True)
    for group, text in where.items():
        is_met = condition(text, _COLUMNS).fill_null(value=False)
        is_kept = pl.when(pl.col("group") == group).then(is_met).otherwise(is_kept)
    return named.select(is_kept.alias("models")).collect()["models"]
