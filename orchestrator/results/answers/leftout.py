"""Runs that are unlike the others of their repeat, and answers without some runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import polars as pl

from manyseed.analysis.counts import some
from manyseed.analysis.questions.question import Answer
from manyseed.analysis.tables.rows import Tables, last
from manyseed.orchestrator.computing.tables import Results
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import Plan

RUN = ("cell", "repeat_index", "run_index")
_LISTED = 3
_FEW = 5  # runs that a command leaves out


def chosen_runs(paths: SweepPaths, addresses: Sequence[str]) -> pl.DataFrame:
    """Return the runs at some addresses, ``CELL:REPEAT:RUN``; raises a UserError for unknown."""
    from manyseed.orchestrator.runs import find_run

    found = [find_run(paths, address, key="--without") for address in dict.fromkeys(addresses)]
    rows = [(one.cell, one.run.repeat, one.run.run) for one in found]
    return pl.DataFrame(rows, schema=dict.fromkeys(RUN, pl.Int64), orient="row")


def without_runs(frame: pl.DataFrame, left_out: pl.DataFrame, run: str = RUN[2]) -> pl.DataFrame:
    """Return the rows that are not of runs that are left out; `run` is the column of the run."""
    key = [*RUN[:2], run]
    kinds = {name: frame.schema[name] for name in key}
    gone = left_out.rename({RUN[2]: run}).cast(pl.Schema(kinds))
    return frame.join(gone, on=key, how="anti", maintain_order="left")


def tables_without(tables: Tables, left_out: pl.DataFrame) -> Tables:
    """Return runs and pairs without some runs; the tables of repeats and cells stay as they are."""
    pairs = without_runs(without_runs(tables.pairs, left_out, "run_i"), left_out, "run_j")
    return replace(tables, runs=without_runs(tables.runs, left_out), pairs=pairs)


def unlike_runs(
    paths: SweepPaths, results: Results, left_out: pl.DataFrame | None = None
) -> Mapping[int, list[str]]:
    """Return the runs, among those kept, whose accuracy is unlike their repeat's, in words."""
    from manyseed.analysis.questions.ranking import outlier, outlying

    planned = Plan.read(paths).all_cells.select("cell", planned="identical")
    key = ["cell", "repeat_index"]
    repeats = last(results["repeats"]).select(*key, "n_test", same="identical")
    runs = last(results["runs"])
    kept = (
        (runs if left_out is None else without_runs(runs, left_out))
        .join(repeats, on=key)
        .join(planned, on="cell", how="left")
        .filter(~(pl.col("same") | pl.col("planned")))
    )
    found: dict[int, list[str]] = {}
    for row in outlying(kept).sort(*RUN).iter_rows(named=True):
        found.setdefault(row["cell"], []).append(outlier(row))
    return found


def in_words(unlike: Sequence[str], *, can_go: bool = True) -> str:
    """Say which runs are unlike the others in accuracy, and counted, and how to leave them out."""
    said = f"Unlike the others in accuracy, and counted: run {some(unlike, _LISTED)}"
    if not can_go:
        return f"{said}."
    them = "it" if len(unlike) == 1 else "them"
    runs = ",".join(text.partition(" ")[0] for text in unlike)
    return f"{said}; to leave {them} out: --without {runs}"


def gone(without: Sequence[str]) -> list[str]:
    """Say which runs were left out, if any were."""
    runs = "run" if len(without) == 1 else "runs"
    return [f"Left out: {runs} {', '.join(without)}; report that, too."] * bool(without)


def addresses(unlike: Mapping[int, Sequence[str]]) -> list[str]:
    """Return the addresses of the runs that `unlike_runs` returns."""
    return [text.partition(" ")[0] for texts in unlike.values() for text in texts]


def again_without(
    paths: SweepPaths, results: Results, found: Sequence[Answer]
) -> Iterator[tuple[str, str, str]]:
    """Yield words, the question that is answered again without unlike runs, and these.

    `found`: the headlines; nothing is yielded where these name no such run.
    """
    if not any("the others in accuracy; see run" in one.headline for one in found):
        return
    runs = addresses(unlike_runs(paths, results))
    if 0 < len(runs) <= _FEW:
        models = results["cells"].select("dataset", "classifier").unique()
        verb = "howmany" if models["dataset"].is_unique().all() else "compare"
        yield f"Without {'it' if len(runs) == 1 else 'them'}", verb, ",".join(runs)
