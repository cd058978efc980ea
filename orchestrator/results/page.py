"""The report's page: made from the result tables, its figures kept, and where results are from."""

from __future__ import annotations

import json
import subprocess
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from manyseed.analysis.counts import EQUAL, below, fixed
from manyseed.analysis.figures.kind import FURTHER
from manyseed.analysis.figures.svg import Picture, drawing_version, is_picture
from manyseed.analysis.questions.hardpoints import by_point
from manyseed.analysis.questions.question import Answer
from manyseed.analysis.questions.usual import of_usual
from manyseed.analysis.report.wording import summary, varying_axes
from manyseed.analysis.tables.rows import IS_TWIN, SAME_AS, last
from manyseed.orchestrator.asking.averaging import compared
from manyseed.orchestrator.asking.query import with_names
from manyseed.orchestrator.computing.tables import (
    DRAWN_PAIRS,
    ENSEMBLES,
    POINTS,
    VARIANCE,
    Analysis,
    Results,
    read_results,
)
from manyseed.orchestrator.disk.parquet import checksum
from manyseed.orchestrator.disk.placing import if_writable, place, read_plain
from manyseed.orchestrator.errors import DamagedFile, ManyseedError, UserError
from manyseed.orchestrator.grids.loading import read_sweep_file
from manyseed.orchestrator.grids.sweepfile import SweepFile
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.provenance import lost_recipes, read_recipes
from manyseed.orchestrator.results import caveats
from manyseed.orchestrator.results.answers.points import verdicts
from manyseed.orchestrator.results.answers.summary import doubts, further_answers
from manyseed.orchestrator.results.caveats import newer
from manyseed.orchestrator.results.testclasses import most_frequent_shares
from manyseed.orchestrator.submissions.submission import lost_failures, submissions
from manyseed.orchestrator.survey import survey

if TYPE_CHECKING:
    from manyseed.analysis.report.page import RunCounts

_MOST = 1 << 26  # bytes of text that are read
_FIELDS = {one.name for one in fields(Picture)}
_TEXTS = ("name", "title", "caption", "dataset", "svg", "numbers")

Identity = Mapping[str, Any]


def identity(paths: SweepPaths, results: Results, record: Analysis) -> Identity | None:
    """Return what figures are drawn from; None if tables of an earlier version don't tell."""
    tables = checksums(paths, results)
    if not all(tables.values()):
        return None
    return {"tables": tables, "options": record.options, "drawing": drawing_version()}


def checksums(paths: SweepPaths, results: Results) -> dict[str, str]:
    """Return the checksums of all tables by name; empty ones of earlier versions."""
    files = {name: paths.table(name) for name in results}
    return {name: checksum(file) for name, file in files.items() if file.exists()}


def kept(paths: SweepPaths, of: Identity | None) -> list[Picture] | None:
    """Return the figures on disk; None unless they were drawn from the same."""
    if of is None:
        return None
    try:
        inflate = zlib.decompressobj()
        text = inflate.decompress(read_plain(paths.figures), _MOST)
        written = json.loads(text) if inflate.eof else {}
        same = written.get("of") == json.loads(json.dumps(of))
        return [_read(one) for one in written["figures"]] if same else None
    except (OSError, DamagedFile, zlib.error, ValueError, RecursionError):
        return None
    except (AttributeError, KeyError, TypeError):  # another JSON value
        return None


def keep(paths: SweepPaths, of: Identity | None, figures: Sequence[Picture]) -> None:
    """Keep figures; a read-only sweep stays as it is."""
    if of is None:
        return
    text = json.dumps({"of": of, "figures": [asdict(one) for one in figures]})
    with if_writable():
        place(paths.figures, zlib.compress(text.encode()))


def _read(written: Mapping[str, Any]) -> Picture:
    """Return a figure from JSON."""
    texts = all(isinstance(written[name], str) for name in _TEXTS)
    if written.keys() != _FIELDS or not texts or not is_picture(written["svg"]):
        raise ValueError("not a figure")
    return Picture(**written)


IMPORTED = "imported"  # the device of imported predictions

TEST_SHARE = 0.25  # by default


def origin(
    paths: SweepPaths, cells: pl.DataFrame, packages: Mapping[str, str], analysed: str
) -> dict[str, str]:
    """Return how results were made: descriptions in words, by heading.

    `cells`: the table of cells. `packages`: versions of the packages that analysed. `analysed`:
    time of the analysis.
    """
    recipes = read_recipes(paths.recipes)
    devices = sorted({recipe.where for recipe in recipes.values()})
    facts = {"Analysed": analysed}
    if {r.device for r in recipes.values()} == {IMPORTED}:
        facts["Imported"] = ", ".join(sorted({str(r.device_class) for r in recipes.values()}))
    else:
        facts = {
            **_asked(paths, cells),
            **facts,
            "Devices": "; ".join(devices),
            "Recipes": str(len(recipes)),
        }
    commit = _commit()
    return {**facts, **packages, **({"Page made by commit": commit} if commit else {})}


def _asked(paths: SweepPaths, cells: pl.DataFrame) -> dict[str, str]:
    """Return what the sweep asks of runs that are trained here."""
    facts = {}
    with suppress(UserError):
        file = read_sweep_file(paths.sweep_file)
        facts = {"Seed": str(file.seed), "Test sets": _test_sets(file, cells)}
    hparams = cells["hparams"].cast(pl.String).unique().sort().to_list()
    noise = cells["perturb_hparams"].cast(pl.String).unique().sort().to_list()
    return facts | {"Hparams": ", ".join(hparams) + f"; noise on them: {', '.join(noise)}"}


def sweep_text(paths: SweepPaths) -> str:
    """Return the text of the sweep file; empty if there is none."""
    try:
        return paths.sweep_file.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _test_sets(file: SweepFile, cells: pl.DataFrame) -> str:
    """Say how large the test set of each dataset is."""
    by_size: dict[str, list[str]] = {}
    for name in cells["dataset"].cast(pl.String).unique().sort().to_list():
        table = file.dataset.get(name)
        test = TEST_SHARE if table is None or table.test is None else table.test
        size = f"{test:.0%} of the samples" if isinstance(test, float) else str(test)
        by_size.setdefault(f"{size} points" if isinstance(test, int) else size, []).append(name)
    return "; ".join(f"{size}: {', '.join(names)}" for size, names in by_size.items())


def _commit() -> str:
    """Return the commit of this program if it runs from a clone, else ""."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return ""
    command = ("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    try:
        done = subprocess.run(
            command, cwd=root, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def report(
    paths: SweepPaths,
    name: str,
    tell: Callable[[str], None] | None = None,
    output: Path | None = None,
) -> Path:
    """Write the page of an analysed sweep, by default in the sweep; return its path.

    The page lists files whose loss makes it incomplete, and `tell` is called with each.
    """
    from manyseed.analysis.report.page import context, render

    results = read_results(paths)
    record = Analysis.read(paths)
    of = identity(paths, results, record)  # before the tables are read
    tables = results.of_analysis(DRAWN_PAIRS, whole=True)
    options = record.conventions(paths)
    shown = {table: results.of_figures(table) for table in FURTHER}
    if of and of["tables"] != checksums(paths, results):
        of = None  # an analysis ended meanwhile
    figures = kept(paths, of)
    counts = _counts(paths, record)
    lost = [f"{file} is lost: restore it" for file in lost_recipes(paths.recipes)]
    lost += lost_failures(submissions(paths)) if counts.missing else []
    if tell is not None:
        for text in lost:
            tell(text)
    is_current = record.runs.get("finished") == counts.finished
    amounts = caveats.amounts(record) if is_current else None
    points = None
    if POINTS in results:
        points = with_names(by_point(of_usual(results.scan(POINTS))).lazy(), results).collect()
    content = context(
        name,
        counts,
        tables,
        options,
        origin(paths, tables.cells, record.packages, record.analysed),
        (
            *filter(None, [amounts]),
            *caveats.problems(tables.repeats),
            *caveats.mixed(last(tables.runs), caveats.recipes_of(paths)),
            *(text for _, text in doubts(paths, last(tables.repeats))),
            *caveats.undefined(tables.repeats),
            *caveats.small_classes(tables.repeats),
            *caveats.not_computed(record),
            *caveats.outdated(record, shown[ENSEMBLES]),
            *(text.removeprefix(f"{paths.directory}/") for text in lost),
        ),
        compared=compared(results),
        variance=last(results[VARIANCE]) if VARIANCE in results else None,
        sources=results["sources"],
        sweep_file=sweep_text(paths),
        further=further_answers(paths, record),
        most_frequent=most_frequent_shares(paths),
        figures=figures,
        points=points,
        verdicts=_verdicts(paths, points),
        images=_images(results),
        **shown,
    )
    page = output or paths.report
    place(page, render(content).encode())
    if figures is None:
        keep(paths, of, content.figures)
    return page


_LARGE = 20_000_000  # predictions from which on verdicts are looked into only if asked for


def _verdicts(paths: SweepPaths, points: pl.DataFrame | None) -> list[Answer]:
    """Return on which points verdicts hang, if that is quickly read from the store."""
    if points is None or points["n_runs"].sum() > _LARGE:
        return []
    with suppress(
        ManyseedError
    ):  # nothing to compare; and the store's own damage is told elsewhere
        return verdicts(paths)
    return []


def _images(results: Results) -> Callable[[str, Sequence[int]], Any]:
    """Return what reads images of points: of the data as they were trained on, in their copy."""
    from manyseed.jobs import datasets
    from manyseed.jobs.run import MachineError

    plan = None if results.plan is None else Plan.read(results.plan)

    def images(dataset: str, index: Sequence[int]) -> Any:
        if plan is None:
            return None
        cell = plan.all_cells.filter(dataset=dataset)["cell"][0]
        canonical = plan.cell(cell).dataset
        try:
            return datasets.images_of(canonical, index)
        except MachineError:
            is_table = canonical["source"].startswith("openml:") or canonical.get("categorical")
            if is_table:
                return None
            return (
                f"The data of {dataset} could not be read when this page was made: its points are "
                "not shown as images, if they are some (manyseed plan SWEEP.toml --fetch)."
            )

    return images


def _counts(paths: SweepPaths, record: Analysis) -> RunCounts:
    from manyseed.analysis.report.page import RunCounts

    counts = survey(paths).counts
    return RunCounts(
        planned=counts["runs"],
        done=counts["done"],
        copies=counts["copy"],
        failed=counts["failed"],
        missing=counts["missing"],
        analysed=record.runs.get("analysed"),
        newer=newer(paths),
    )


def summary_table(cells: pl.DataFrame) -> pl.DataFrame:
    """Return one row per cell, with numbers as text with three decimals.

    Columns dataset, classifier, cell (the axes in which cells differ, if any), runs, test sets,
    accuracy ± seeds (mean over repeats ± standard deviation between runs, pooled within repeats),
    between test sets (standard deviation), range (of accuracy within a repeat), EC (local), churn,
    α̂, its resolution δ, and N, the test points on each side of its test. † marks cells of
    identical runs, ‡ those whose fits are another cell's.
    """
    rows = pl.DataFrame(
        summary(cells),
        schema_overrides={SAME_AS: pl.UInt32, **cells.schema, "epoch": pl.String},
    )
    parts = [pl.col(name).cast(pl.String) for name in varying_axes(cells)] or [pl.lit("")]
    mark = pl.when(pl.col("n_identical_repeats") > 0).then(pl.lit(" †")).otherwise(pl.lit(""))
    twin = pl.when(IS_TWIN).then(pl.lit(" ‡")).otherwise(pl.lit(""))
    shown = {
        "between test sets": "accuracy_mean_sd",
        "range": "accuracy_range",
        "EC": "ec_local_mean",
        "churn": "churn_mean",
    }
    levels = [
        below(*both) or ("–" if both[0] is None else fixed(both[0], 3))
        for both in rows.select("alpha_hat_mean", "delta").rows()
    ]
    is_still = pl.col("accuracy_std") < EQUAL
    spread = pl.when(is_still).then(pl.lit("0")).otherwise(_decimals("accuracy_std"))
    accuracy = pl.format("{} ± {}", _decimals("accuracy_mean"), spread)
    return rows.select(
        "dataset",
        "classifier",
        (pl.concat_str(parts, separator=" · ") + mark + twin).alias("cell"),
        pl.col("n_runs").alias("runs"),
        pl.col("n_repeats").alias("test sets"),
        accuracy.alias("accuracy ± seeds"),
        *(_decimals(name).alias(title) for title, name in shown.items()),
        pl.Series("α̂", levels, dtype=pl.String),
        _decimals("delta").alias("δ"),
        N=pl.col("n_side"),
    )


def _decimals(name: str) -> pl.Expr:
    text = pl.col(name).map_elements(lambda value: fixed(value, 3), return_dtype=pl.String)
    return text.fill_null("–")
