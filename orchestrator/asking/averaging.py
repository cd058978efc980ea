"""Intervals for the means in a query: over test sets, or over seeds if there is one test set.

As for effects, each test set is a cluster and each dataset a stratum. Perturbed hparams share
their draws across datasets: then each repeat index is a cluster. With one test set per dataset,
each run index is a cluster; for metrics of pairs, a jackknife over runs gives each run's share.
Crossed runs are no such clusters: with one test set, their means have no interval.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.options import CONFIDENCE
from manyseed.analysis.questions.effects import OF_PAIRS, OF_RUNS, effects, with_one_test_set
from manyseed.analysis.questions.intervals import (
    FEWEST,
    clustered,
    of_pairs,
    t_interval,
    total,
    within,
)
from manyseed.analysis.tables.rows import (
    IS_CROSSED,
    REPEAT,
    RUN,
    VARIES,
    Tables,
    compares_runs,
    last,
    paired,
)
from manyseed.analysis.tables.schema import records
from manyseed.jobs.checks import Option
from manyseed.orchestrator.computing.tables import OF_EFFECT, Results
from manyseed.orchestrator.errors import UserError, given, require_one_of

LOW, HIGH, OVER = "_ci_low", "_ci_high", "over"
"""Suffixes of the two columns of an interval, and the column that says what it is over."""

TEST_SETS, SEEDS = "test sets", "seeds"

_COLUMN = "_column"
_OF_CELLS = ("cells", "sources")
_OF_RUNS = ("runs", "ranking")
_OF_SOURCES = ("accuracy_mean", "ensemble_accuracy")
_UNIT = ("cell", "epoch", "repeat_index")


def require_confidence(confidence: float) -> None:
    """Raise a UserError for a confidence level outside (0, 1)."""
    given("--confidence", float(confidence), Option(kind=float, above=0, below=1))


def require_half_width(option: str, value: float, of: str) -> None:
    """Raise a UserError for a precision that every mean of shares has, or that none can have.

    A share is from 0 to 1, so ± 0.5 around the middle says nothing.
    """
    if not 0 < value < 0.5:
        remedy = f"such as {option} 0.005: the mean {of} is then known to ± 0.005"
        raise UserError("must be above 0 and below 0.5", key=option, value=value, remedy=remedy)


@dataclass(frozen=True)
class Averages:
    """Means of columns within groups of rows, and their intervals.

    `rows`: the rows to average. Must have the columns in `by`, dataset, perturb_hparams, cell,
    epoch if the table has it, and, in tables with rows within repeats, repeat_index and n_distinct.
    `columns`: numeric columns to average.
    """

    tables: Results
    table: str
    rows: pl.LazyFrame
    by: Sequence[str]
    columns: Sequence[str]

    def intervals(self) -> pl.DataFrame:
        """Return the columns `by`, two ends for each column that has intervals, and `over`.

        Ends are null where there is no interval: if all values are the same, or if some datasets of
        the group have one test set and others several.
        """
        key = [*self.by, _COLUMN]
        errors = [clustered(self._over_test_sets(), key)]
        for number, name in enumerate(self._known):
            column = pl.lit(number, pl.UInt32).alias(_COLUMN)
            errors += [
                variances.select(*self.by, column, "variance", "freedom")
                for variances in self._of_seeds(name)
            ]
        means = (
            self._long.group_by(key, maintain_order=True)
            .agg((total(pl.col("s")) / total(pl.col("v"))).alias("mean"))
            .join(pl.concat(errors), on=key, how="left", nulls_equal=True, maintain_order="left")
        )
        mean, variance, freedom = (
            means[column].cast(pl.Float64).fill_null(np.nan).to_numpy()
            for column in ("mean", "variance", "freedom")
        )
        low, high, _ = t_interval(mean, variance, freedom, CONFIDENCE)
        shares = [number for number, name in enumerate(self._known) if name in self._shares]
        is_share = means[_COLUMN].is_in(shares).to_numpy()
        inside = within(mean, low, high)
        low, high = (np.where(is_share, *ends) for ends in zip(inside, (low, high), strict=True))
        # of lists: of arrays, polars imports numpy.ma
        ends = {
            LOW: pl.Series("low", low.tolist(), pl.Float64),
            HIGH: pl.Series("high", high.tolist(), pl.Float64),
        }
        wide = [
            pl.col(end).filter(pl.col(_COLUMN) == number).first().alias(f"{name}{end}")
            for number, name in enumerate(self._known)
            for end in ends
        ]
        has_any = pl.any_horizontal(pl.col(LOW).is_not_null().any())
        return (
            means.with_columns(**{end: values.fill_nan(None) for end, values in ends.items()})
            .join(self._kinds, on=self.by, nulls_equal=True, maintain_order="left")
            .group_by(self.by, maintain_order=True)
            .agg(*wide, pl.when(has_any).then(pl.col(OVER).first()).alias(OVER))
        )

    @cached_property
    def _known(self) -> list[str]:
        """The columns that have intervals: those known for each repeat."""
        schema = self._units.collect_schema()
        names = [name for name in self.columns if name in schema and schema[name].is_float()]
        # the other columns of sources are over the runs of all test sets
        return names if self.table != "sources" else [n for n in names if n in _OF_SOURCES]

    @cached_property
    def _shares(self) -> set[str]:
        """The columns whose values are from 0 to 1, by their units."""
        columns = json.loads(self.tables.metadata(self.table).get("columns", "{}"))
        return {
            name
            for name, column in columns.items()
            if column.get("unit", "").startswith(("share", "trimming level"))
        }

    @cached_property
    def _units(self) -> pl.LazyFrame:
        """Rows with a repeat index: for tables of cells, one row per repeat."""
        if self.table not in _OF_CELLS:
            return self.rows
        columns = self.rows.collect_schema().names()
        repeats = self.tables.scan("repeats")
        of_repeats = repeats.collect_schema()
        key = [name for name in ("cell", "epoch") if name in columns and name in of_repeats]
        if "epoch" not in key:
            repeats = last(repeats)
        kept = [*dict.fromkeys([*self.by, *key, "dataset", "perturb_hparams"])]
        named = {"repeat_index", "n_distinct", "identical", *self.columns} - set(kept)
        values = [n for n in repeats.collect_schema().names() if n in named]
        inner = repeats.select(*key, *values)
        return self.rows.select(kept).join(inner, on=key, maintain_order="left_right")

    def _value(self, name: str) -> pl.Expr:
        """Return a column's values, null in rows that do not count."""
        value = pl.col(name)
        if not records()[self.table].of_all_repeats and compares_runs(name):
            return pl.when(VARIES).then(value)
        return value

    def _weight(self, name: str) -> pl.Expr:
        """Return a row's weight in the mean of its group, not normalised."""
        known = self._value(name).is_not_null()
        if self.table not in _OF_CELLS:
            return known.cast(pl.Float64)
        cell = [n for n in ("cell", "epoch") if n in self._units.collect_schema()]
        return pl.when(known).then(1 / known.sum().over([*self.by, *cell])).otherwise(0.0)

    @cached_property
    def _sets(self) -> pl.DataFrame:
        """The test sets of each group: sums of weighted values (_s…) and of weights (_v…)."""
        sums: list[pl.Expr] = []
        of_set = list(dict.fromkeys([*self.by, "dataset", "repeat_index"]))
        weighted = self._units.with_columns(
            *(self._weight(name).alias(f"_w{n}") for n, name in enumerate(self._known)),
            *(self._value(name).alias(f"_x{n}") for n, name in enumerate(self._known)),
        )
        for n in range(len(self._known)):
            sums.append(total(pl.col(f"_x{n}") * pl.col(f"_w{n}")).fill_null(0.0).alias(f"_s{n}"))
            sums.append(total(pl.col(f"_w{n}")).alias(f"_v{n}"))
        shared = pl.col("perturb_hparams").ne("none").any().alias("_shared")
        found = weighted.group_by(of_set, maintain_order=True).agg(shared, *sums).collect()
        together = pl.col("_shared").any().over(self.by)
        stratum = pl.when(together).then(pl.lit("")).otherwise(pl.col("dataset"))
        return found.with_columns(stratum.alias("stratum"))

    @cached_property
    def _kinds(self) -> pl.DataFrame:
        """What each group's intervals are over: null if only some datasets have one test set."""
        of_dataset = list(dict.fromkeys([*self.by, "dataset"]))
        counts = self._sets.group_by(of_dataset, maintain_order=True).agg(
            pl.len().alias("_sets"), pl.col("stratum").first()
        )
        least, most = pl.col("_sets").min(), pl.col("_sets").max()
        kind = pl.when(least > 1).then(pl.lit(TEST_SETS)).when(most == 1).then(pl.lit(SEEDS))
        return counts.group_by(self.by, maintain_order=True).agg(kind.alias(OVER))

    @cached_property
    def _long(self) -> pl.DataFrame:
        """The test sets of each group and column (by number): s, v and the keys of clusters."""
        of_set = list(dict.fromkeys([*self.by, "dataset", "repeat_index", "stratum"]))
        parts = [
            self._sets.lazy().select(
                *of_set,
                pl.lit(number, pl.UInt32).alias(_COLUMN),
                s=pl.col(f"_s{number}"),
                v=pl.col(f"_v{number}"),
            )
            for number in range(len(self._known))
        ]
        none = self._sets.lazy().select(
            *of_set, pl.lit(0, pl.UInt32).alias(_COLUMN), s=pl.lit(0.0), v=pl.lit(0.0)
        )
        return pl.concat([*parts, none]).filter(pl.col("v") > 0).collect()

    def _over_test_sets(self) -> pl.DataFrame:
        """Return each test set's influence on the means of groups with several test sets."""
        of_dataset = list(dict.fromkeys([*self.by, _COLUMN, "dataset"]))
        several = self._kinds.filter(pl.col(OVER) == TEST_SETS)
        s, v = pl.col("s"), pl.col("v")
        mean = s.sum().over(of_dataset) / v.sum().over(of_dataset)
        return self._long.join(
            several, on=self.by, how="semi", nulls_equal=True, maintain_order="left"
        ).with_columns(
            cluster=pl.col("repeat_index").cast(pl.UInt32),
            u=(s - v * mean) / v.sum().over([*self.by, _COLUMN]),
        )

    def _of_seeds(self, name: str) -> Iterator[pl.DataFrame]:
        """Yield variances over seeds for groups with one test set per dataset."""
        alone = self._kinds.filter(pl.col(OVER) == SEEDS).select(self.by)
        crossed = self.tables.scan("cells").filter(IS_CROSSED).select("cell").unique()
        sharing = self._units.join(crossed, on="cell", how="semi").select(self.by).unique()
        alone = alone.join(sharing.collect(), on=self.by, how="anti", nulls_equal=True)
        if alone.is_empty():
            return
        base = name if self.table in ("pairs", *_OF_RUNS) else name.removesuffix("_mean")
        is_mean = self.table in (*_OF_CELLS, "repeats") and name.endswith("_mean")
        if self.table in _OF_RUNS or (is_mean and not compares_runs(base)):
            source, fewest = "runs", 2
        elif self.table == "pairs" or is_mean:
            source, fewest = "pairs", FEWEST
        else:
            return
        if compares_runs(base) is (source == "runs"):
            return
        if base not in self.tables.scan(source).collect_schema():
            return
        units = (
            self._units.join(
                alone.lazy(), on=self.by, how="semi", nulls_equal=True, maintain_order="left"
            )
            .with_columns(self._weight(name).alias("_w"), self._value(name).alias("_x"))
            .filter(pl.col("_x").is_not_null())
        )
        values = self._of_each(units, source, base).collect()
        of_unit = dict.fromkeys([*self.by, "dataset", "perturb_hparams", *_UNIT])
        key = [name for name in of_unit if name in values.columns]
        if source == "pairs":
            seen = of_pairs(values.rename({"_w": "weight", "_x": "value"}), [*key, "weight", "_n"])
        else:
            n, value = pl.len().over(key), pl.col("_x")
            seen = values.with_columns(
                n=n,
                cluster=pl.col("run_index"),
                u=pl.col("_w") * (value - value.mean().over(key)) / n,
            )
        yield self._checked(seen, key, units, fewest)

    def _of_each(self, units: pl.LazyFrame, source: str, base: str) -> pl.LazyFrame:
        """Return the runs or pairs of units: values _x, and the weights _w of their units."""
        names = units.collect_schema().names()
        key = [name for name in _UNIT if name in names]
        at = ["run_index"] if source == "runs" else ["run_i", "run_j"]
        if self.table in ("pairs", *_OF_RUNS):
            of_unit = list(dict.fromkeys([*self.by, *key]))
            runs = pl.col("n_distinct").alias("_n")
            each = units.with_columns(pl.col("_w").sum().over(of_unit), runs)
            return each.filter(~pl.col("identical")) if self.table == "runs" else each
        values = self.tables.scan(source)
        schema = values.collect_schema()
        key = [name for name in key if name in schema]
        if "epoch" not in key:
            values = last(values)
        if source == "runs":
            values = values.filter(~pl.col("identical"))
        inner = values.select(*key, *at, pl.col(base).alias("_x")).drop_nulls("_x")
        kept = list(dict.fromkeys([*self.by, *key, "dataset", "perturb_hparams", "_w"]))
        runs = pl.col("n_distinct").alias("_n")
        return units.select(*kept, runs).join(inner, on=key, maintain_order="left_right")

    def _checked(
        self, seen: pl.DataFrame, key: Sequence[str], units: pl.LazyFrame, fewest: int
    ) -> pl.DataFrame:
        """Return variances over runs for groups in which every varying unit has enough of them."""
        names = [n for n in key if n in units.collect_schema()]
        all_units = units.group_by(names, maintain_order=True).agg(total(pl.col("_w"))).collect()
        count = pl.col("n").first().alias("_read"), pl.col("_n").first()
        read = seen.group_by(names, maintain_order=True).agg(*count)
        state = all_units.join(read, on=names, how="left", nulls_equal=True)
        varies = pl.col("_n") > 1
        enough = (pl.col("_read") >= fewest).fill_null(value=False)
        if fewest == FEWEST:  # pairs: all runs are needed
            enough &= pl.col("_read") == pl.col("_n")
        whole = (enough | ~varies.fill_null(value=True)).all()
        groups = state.group_by(self.by, maintain_order=True).agg(
            whole.alias("_whole"), total(pl.col("_w")).alias("_all")
        )
        good = groups.filter("_whole").drop("_whole")
        together = pl.col("perturb_hparams").ne("none").any().over(self.by)
        seen = seen.join(good, on=self.by, nulls_equal=True, maintain_order="left").with_columns(
            stratum=pl.when(together).then(pl.lit("")).otherwise(pl.col("dataset"))
        )
        m, n = pl.col("cluster").n_unique().over([*self.by, "stratum"]), pl.col("n")
        scale = (n / (n - 1) * (m - 1) / m).sqrt()  # 1 where all units have the same runs
        influence = seen.filter(n > 1).with_columns(
            pl.col("cluster").cast(pl.UInt32), u=pl.col("u") * scale / pl.col("_all")
        )
        return clustered(influence, self.by)


def compared(results: Results) -> Tables:
    """Return the tables that effects are computed from, twins counted once.

    Runs and pairs are only of cells with one test set.
    """
    empty = pl.DataFrame()
    tables = Tables(empty, empty, last(results["repeats"]), last(results["cells"]))
    repeats = paired(tables).repeats
    alone = pl.col("cell").is_in(with_one_test_set(repeats).implode())
    runs = last(results.scan("runs")).filter(alone).select(*RUN, *OF_RUNS.values())
    pairs = last(results.scan("pairs")).filter(alone)
    names = pairs.collect_schema().names()
    pairs = pairs.select(
        *REPEAT, "run_i", "run_j", *(name for name in OF_PAIRS.values() if name in names)
    )
    with results.damage_named("runs"):
        collected = runs.collect()
    with results.damage_named("pairs"):
        return Tables(collected, pairs.collect(), repeats, empty)


def grouped(results: Results, rows: pl.LazyFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return effects averaged within groups, with their own intervals.

    `rows`: rows of the table of effects: the comparisons to average. `by`: axes, cell, and any of
    `OF_EFFECT`.
    """
    for name in by:
        allowed = (*AXES, "cell", *OF_EFFECT)
        require_one_of(name, allowed, "no effects are grouped by it", key="--by")
    within = [name for name in by if name not in OF_EFFECT]
    among = rows.select("cell", "axis", "metric").collect()
    return effects(compared(results), within, among=among)
