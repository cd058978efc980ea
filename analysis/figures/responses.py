"""Response curves, and the generalisation gap against their scores (PRC); spectra of Jacobians."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.axes import AXES
from manyseed.analysis.counts import counted, fixed
from manyseed.analysis.figures.kind import kind
from manyseed.analysis.figures.labels import among, colour, coloured_by, labelled, levels_of, marker
from manyseed.analysis.figures.style import (
    Handle,
    Mark,
    Plot,
    axis_of_sizes,
    dots,
    legend,
    line,
    panels,
    styled,
)
from manyseed.analysis.questions.scores import GROUP, RESPONSE, is_single, judged, named, numbered
from manyseed.analysis.tables.rows import RUN, mean_of

MOST = 6  # most pairs of dataset and classifier that are drawn
EQUAL = 0.01  # largest difference of final accuracies called equal
APART = 0.02  # smallest difference in gi worth showing for two curves with equal ends
_CURVE = ("cell", "repeat_index", "transform", "layer")
_DASHES = ("-", "--", ":", "-.")

Floats = NDArray[np.float64]


@kind(
    "response-{}",
    chapter="responses",
    form={
        "curves": "accuracy on training rows by how far they are moved",
        "cumulative": "cumulative response curves, compared with a model that is never wrong",
    },
)
def response_curves(response_curves: pl.DataFrame, form: str) -> list[Plot]:
    """Draw the curves of each dataset and classifier, one panel per transform and layer.

    PRC, figure 1.

    `form`: cumulative curves are drawn with the line of a model that is never wrong.
    """
    drawn = [
        _curves(own, number, integral=form == "cumulative")
        for number, own in enumerate(_groups(response_curves), start=1)
    ]
    return [plot for plot in drawn if plot is not None]


def _groups(table: pl.DataFrame) -> Iterator[pl.DataFrame]:
    known = table.filter(pl.col("accuracy").is_not_null())
    for place, (_, own) in enumerate(known.sort(GROUP).group_by(GROUP, maintain_order=True)):
        if place < MOST:
            yield own


@styled
def _curves(table: pl.DataFrame, number: int, *, integral: bool) -> Plot | None:
    responses = table.select("transform", "layer").unique().sort("transform", "layer").rows()
    by = coloured_by(table)
    levels = levels_of(table, by)
    figure, axes = panels(
        [named(*one) for one in responses], "cumulative accuracy" if integral else "accuracy"
    )
    handles: dict[str, Handle] = {}
    drawn: list[pl.DataFrame] = []
    for axis, (transform, layer) in zip(axes, responses, strict=True):
        own = table.filter(transform=transform, layer=layer)
        for level in levels:
            index = among(levels).index(level)
            rows = own.filter(pl.col(by).cast(pl.String) == level)
            if rows.height:
                points = _points(rows, integral=integral)
                look = {"color": colour(index), "marker": marker(index)}
                bands = {} if integral else {("low", "high"): 0.15}
                x, y = points.columns[:2]
                handles[level] = line(axis, points, (x, y), look, bands)
                key = pl.lit(transform).alias("transform"), pl.lit(layer).alias("layer")
                drawn.append(points.select(*key, pl.lit(level).alias(by), pl.all()))
        if integral:
            (handles["never wrong"],) = axis.plot([0, 1], [0, 1], color="black", lw=0.9, ls="--")
        axis.set_xlabel("share of the magnitudes" if integral else _unit(transform))
        axis.locator_params(axis="x", nbins=5)
    legend(figure, handles, labelled(by) if len(levels) > 1 else "")
    dataset, classifier = (str(table[name][0]) for name in GROUP)
    runs = _n_runs(table)
    meaning = (
        "Area under the response curve up to each magnitude, mean over models; dashed: a model "
        "that is never wrong. gi is twice the area between a curve and that line."
        if integral
        else "Share of training rows that a model labels correctly after they are moved by a "
        "magnitude. Lines: means over models; bands: smallest to largest over models."
    )
    kind = "cumulative" if integral else "curves"
    title = "Cumulative response curves" if integral else "Response curves"
    return Plot(
        f"response-{kind}-{number}",
        f"{title}: {dataset} × {classifier}",
        f"{meaning} At layer 1 the outputs of the first block are moved, otherwise the inputs. "
        f"n = {counted(runs, 'model')}.",
        runs,
        figure,
        dataset=dataset,
        data=pl.concat(drawn).select(
            pl.lit(dataset).alias("dataset"),
            pl.lit(classifier).alias("classifier"),
            pl.exclude(GROUP),
        ),
    )


def _n_runs(table: pl.DataFrame) -> int:
    each = table.group_by("cell", "repeat_index").agg(pl.col("n_runs").max())
    return int(each["n_runs"].sum())


def _points(table: pl.DataFrame, *, integral: bool) -> pl.DataFrame:
    """Return mean and range of accuracy over models by magnitude, or the area under the mean."""
    n = pl.col("n_runs")
    over = (
        table.group_by("magnitude")
        .agg(
            mean=(pl.col("accuracy") * n).sum() / n.sum(),
            low=pl.col("accuracy_min").min(),
            high=pl.col("accuracy_max").max(),
        )
        .sort("magnitude")
    )
    if not integral:
        return over
    from manyseed.analysis.response.curves import cumulative  # SciPy

    x, y = over["magnitude"].to_numpy(), over["mean"].to_numpy()
    share = (x - x[0]) / (x[-1] - x[0])
    return pl.DataFrame({"share_of_magnitudes": share, "cumulative": cumulative(x, y)})


def _unit(transform: str) -> str:
    return "degrees" if transform.startswith("rotate") else "share"


def equal_ends(end: Floats, score: Floats) -> tuple[int, int] | None:
    """Return the two curves with equal ends whose scores differ most.

    `end` and `score`, float64 arrays (curve,): finite; ends at most `EQUAL` apart count as equal.
    Returns the curve with the smaller score first; None if no two curves have equal ends.
    """
    order = np.argsort(end, kind="stable")
    last = np.searchsorted(end[order], end[order] + EQUAL, side="right")
    best, found = -1.0, None
    for first, stop in enumerate(last):
        if stop - first > 1:
            own = order[first:stop]
            low, high = own[score[own].argmin()], own[score[own].argmax()]
            if score[high] - score[low] > best:
                best, found = float(score[high] - score[low]), (int(low), int(high))
    return found


@kind("response-pair", "two response curves with equal ends and unequal gi", chapter="responses")
def response_pairs(response_curves: pl.DataFrame) -> list[Plot]:
    """Draw two configurations with equal final accuracy and unequal gi, if there are any.

    PRC, figure 2: for each dataset and classifier, the two curves of the same transform, layer and
    test set whose gi differ most, found by search.
    """
    drawn = [_pair(own, number) for number, own in enumerate(_groups(response_curves), start=1)]
    return [plot for plot in drawn if plot is not None]


@styled
def _pair(table: pl.DataFrame, number: int) -> Plot | None:
    from manyseed.analysis.response.curves import cumulative, gi  # SciPy

    best: tuple[float, pl.DataFrame, Floats, Floats, tuple[int, int]] | None = None
    key = ("transform", "layer", "repeat_index")
    for _, own in table.sort(*_CURVE, "magnitude").group_by(key, maintain_order=True):
        cells = own.select("cell").unique(maintain_order=True)
        grid = own["magnitude"].unique().sort().to_numpy()
        if own.height != cells.height * len(grid):  # some curve lacks a point
            continue
        curves = own["accuracy"].to_numpy().reshape(cells.height, -1)
        scores = gi(grid, curves)
        pair = equal_ends(curves[:, -1], scores)
        if pair is not None and (best is None or scores[pair[1]] - scores[pair[0]] > best[0]):
            best = float(scores[pair[1]] - scores[pair[0]]), own, grid, curves, pair
    if best is None or best[0] < APART:
        return None
    _, own, grid, curves, pair = best
    transform, layer = own["transform"][0], own["layer"][0]
    figure, axes = panels([named(transform, layer), "cumulative"], "accuracy", alike=False)
    cells = own.unique("cell", maintain_order=True)
    known = dict.fromkeys(name for name in ("hparams", *AXES) if name in cells.columns)
    differing = [name for name in known if cells[name].n_unique() > 1]
    handles: dict[str, Handle] = {}
    descriptions = []
    u = (grid - grid[0]) / (grid[-1] - grid[0])
    for index, one in enumerate(pair):
        levels = " · ".join(str(cells[name][one]) for name in differing)
        style: Any = {"color": colour(index), "linewidth": 1.4, "ls": _DASHES[index]}
        (handles[levels],) = axes[0].plot(grid, curves[one], **style)
        axes[1].plot(u, cumulative(grid, curves[one]), **style)
        descriptions.append(
            f"gi {fixed(gi(grid, curves[one]), 3)} and {fixed(curves[one][-1], 3)} at the end "
            f"({levels})"
        )
    (handles["never wrong"],) = axes[1].plot([0, 1], [0, 1], color="black", lw=0.9, ls=":")
    axes[0].set_xlabel(_unit(transform))
    axes[1].set_xlabel("share of the magnitudes")
    legend(figure, handles, "")
    dataset, classifier = (str(table[name][0]) for name in GROUP)
    shown = own.filter(pl.col("cell").is_in([cells["cell"][one] for one in pair]))
    runs = max(shown["n_runs"].to_list())
    return Plot(
        f"response-pair-{number}",
        f"Alike at the end, least alike before: {dataset} × {classifier}",
        f"Two configurations whose accuracies at the last magnitude differ by at most {EQUAL:g}, "
        "chosen from all transforms for the largest difference in gi, to which chance adds: "
        f"{'; '.join(descriptions)}. Mixup uses the end alone. "
        f"Means over the runs on a test set, {runs:,} each.",
        2 * runs,
        figure,
        dataset=dataset,
        data=shown.filter(
            pl.col("transform") == transform,
            pl.col("layer") == layer,
        ).select("cell", *differing, "repeat_index", "magnitude", "accuracy"),
    )


MOST_GAPS = 12  # most transforms and layers that are drawn
MINUS = "\N{MINUS SIGN}"


@kind(
    "response-gap",
    "generalisation gap of each model against scores of its response curve",
    chapter="responses",
)
def gaps(cmi: pl.DataFrame, responses: pl.DataFrame) -> list[Plot]:
    """Draw a figure per transform and layer of each dataset and classifier, one panel per score.

    PRC, figures 6 to 9.

    `cmi`: the table of conditional mutual information. `responses`: the table of responses.
    """
    single = judged(cmi).filter(is_single(), pl.col("n_models") > 0)
    drawn = []
    for row in numbered(cmi).head(MOST_GAPS).iter_rows(named=True):
        key = {name: row[name] for name in RESPONSE}
        models = responses.filter(**key).filter(~pl.col("excluded"))
        drawn.append(_gap(models, single.filter(**key), row["number"], cmi.filter(**key)))
    return [plot for plot in drawn if plot is not None]


@styled
def _gap(
    models: pl.DataFrame, measures: pl.DataFrame, number: int, found: pl.DataFrame
) -> Plot | None:
    rows = [row for row in measures.iter_rows(named=True) if _varies(models, row["measure"])]
    if not rows or models["gap"].n_unique() < 2:
        return None
    by = coloured_by(models)
    levels = levels_of(models, by)
    figure, axes = panels([_title(row, models) for row in rows], "generalisation gap")
    handles: dict[str, Handle] = {}
    marks: list[Mark] = []
    for axis, row in zip(axes, rows, strict=True):
        known = models.filter(pl.col(row["measure"]).is_not_null())
        columns = (row["measure"], "gap")
        named_dots, handles = dots(axis, known, columns, (by, levels), models.height)
        marks += named_dots
        axis.locator_params(axis="x", nbins=4)
        axis.set_xlabel(row["measure"].replace("_", " "))
    if len(levels) > 1:
        legend(figure, handles, labelled(by))
    first, is_signed = rows[0], models["gi_folded"].null_count() < models.height
    corpora, left = int(first["n_corpora"]), int(found["n_excluded"].max() or 0)  # type: ignore[arg-type]
    seeds = (
        f"mean over {corpora} corpora of one model per configuration ± their standard deviation"
        if corpora > 1
        else "with one model per configuration"
    )
    return Plot(
        f"response-gap-{number}",
        f"Generalisation gap and scores of {named(first['transform'], first['layer'])}: "
        f"{first['dataset']} × {first['classifier']}",
        "Each dot is a model: a score of its response curve, and its accuracy on training rows "
        f"minus that on test points{', each moved at random' * is_signed}. "
        f"n = {counted(models.height, 'model')}"
        + (f"; {left:,} left out, as their training accuracy is too low" if left else "")
        + ". cmi: how much the score tells about the order of two models' gaps beyond their "
        f"hparams, in %, {seeds}; as by chance: within the 95 % quantile of the score assigned to "
        "models at random. r: correlation, regardless of hparams.",
        models.height,
        figure,
        marks,
        dataset=str(first["dataset"]),
    )


def _varies(models: pl.DataFrame, measure: str) -> bool:
    known = models[measure].drop_nulls()
    return known.len() > 0 and bool(known.n_unique() > 1)


def _title(row: Mapping[str, Any], models: pl.DataFrame) -> str:
    """Return the title of a panel: how well the score predicts, and its correlation as drawn."""
    cmi = "too few models"
    if row["cmi"] is not None:
        cmi = f"cmi {row['cmi']:.1f}" if row["beyond"] else "cmi as by chance"
        if row["beyond"] and row["cmi_sd"] is not None:
            cmi += f" ± {row['cmi_sd']:.1f}"
    known = models.filter(pl.col(row["measure"]).is_not_null())
    r = np.corrcoef(known[row["measure"]].to_numpy(), known["gap"].to_numpy())[0, 1]
    return f"{cmi}, r\xa0{fixed(r, 2)}".replace("-", MINUS)


@kind(
    "response-draws",
    "how gi, what it says about the gap, and the time depend on the number of draws",
    chapter="responses",
)
def sensitivity(response_draws: pl.DataFrame) -> list[Plot]:
    """Draw time, spread of gi and cmi by the number of draws, for each dataset and classifier.

    PRC, figures 3 to 5.
    """
    groups = response_draws.sort(*RESPONSE, "draws").group_by(GROUP, maintain_order=True)
    return [
        _draws(own, number) for number, (_, own) in enumerate(groups, start=1) if number <= MOST
    ]


@styled
def _draws(table: pl.DataFrame, number: int) -> Plot:
    shown = {
        "seconds": "seconds of a model",
        "gi_sd": "sd of gi over samples",
        "cmi": "cmi of gi (%)",
    }
    columns = [name for name in shown if table[name].null_count() < table.height]
    figure, axes = panels([""] * len(columns), "", alike=False)
    handles: dict[str, Handle] = {}
    sizes = table["draws"].unique().sort().to_list()
    responses = table.select("transform", "layer").unique(maintain_order=True).rows()
    for axis, column in zip(axes, columns, strict=True):
        for index, (transform, layer) in enumerate(responses):
            own = table.filter(pl.col(column).is_not_null(), transform=transform, layer=layer)
            look = {"color": colour(index), "marker": marker(index), "ls": _DASHES[index % 4]}
            ends = pl.col("cmi_sd").fill_null(0)
            own = own.with_columns(low=pl.col("cmi") - ends, high=pl.col("cmi") + ends)
            bands = {("low", "high"): 0.15} if column == "cmi" else {}
            handles[named(transform, layer)] = line(axis, own, ("draws", column), look, bands)
            if column == "gi_sd":
                n = own["draws"].to_numpy()
                by_chance = own[column].to_numpy()[:1] * np.sqrt(n[:1] / n)
                axis.plot(n, by_chance, color="grey", lw=0.8, ls=":")
        axis_of_sizes(axis, sizes, "draws")
        axis.set_xlim(sizes[0] / 1.1, sizes[-1] * 1.1)  # alike, whatever a panel lacks
        axis.set_ylabel(shown[column])
        if column != "cmi":
            _logarithmic(axis)
    legend(figure, handles, "")
    dataset, classifier = (str(table[name][0]) for name in GROUP)
    models = int(table["n_models"].to_numpy().max())
    return Plot(
        f"response-draws-{number}",
        f"What the number of draws changes: {dataset} × {classifier}",
        "By the number of draws in a sample of training rows: the time of measuring one model's "
        "curve, as the plan estimates it; the standard deviation of a model's gi over samples that "
        "share no draw, pooled over models (dotted: as 1/√draws from the first); and cmi of gi, "
        "mean over samples and corpora of one model per configuration, ± its standard deviation "
        "over samples. What is missing has one sample, or too few models. "
        f"n = {counted(models, 'model')}.",
        models,
        figure,
        dataset=dataset,
        data=table,
    )


def _logarithmic(axis: Any) -> None:
    axis.set_yscale("log", subs=())
    axis.yaxis.get_major_locator().set_params(subs=(1, 2, 5))
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


@kind(
    "spectra",
    "singular values of the Jacobian at test points, and the largest against accuracy",
    chapter="responses",
)
def spectra(spectra: pl.DataFrame, runs: pl.DataFrame) -> list[Plot]:
    """Draw the spectra of each dataset's and classifier's Jacobians (RKS, section VI).

    `spectra`: the table of spectra. `runs`: the table of runs.
    """
    accuracy = runs.select(*RUN, "accuracy")
    joined = spectra.filter(pl.col("n_points") > 0).join(accuracy, on=RUN, how="inner")
    groups = joined.sort(GROUP).group_by(GROUP, maintain_order=True)
    return [
        _spectra(own, number) for number, (_, own) in enumerate(groups, start=1) if number <= MOST
    ]


@styled
def _spectra(table: pl.DataFrame, number: int) -> Plot:
    by = coloured_by(table)
    levels = levels_of(table, by)
    figure, axes = panels(["mean over runs", "each run"], "", alike=False)
    largest = table.filter(rank=1)
    marks, handles = dots(axes[1], largest, ("median", "accuracy"), (by, levels), largest.height)
    drawn = (
        table.group_by(pl.col(by).cast(pl.String), "rank", maintain_order=True)
        .agg(mean_of(pl.col(name)) for name in ("q05", "median", "q95"))
        .sort("rank")
    )
    for level in levels:
        index = among(levels).index(level)
        own = drawn.filter(pl.col(by) == level)
        look = {"color": colour(index), "marker": marker(index)}
        line(axes[0], own, ("rank", "median"), look, {("q05", "q95"): 0.15})
    _logarithmic(axes[0])
    axes[0].set_xlabel("singular value, from the largest")
    axes[0].set_ylabel("scores per unit of input")
    axes[0].locator_params(axis="x", integer=True)
    axes[1].set_xlabel("largest singular value")
    axes[1].set_ylabel("accuracy")
    axes[1].locator_params(axis="x", nbins=4)
    if len(levels) > 1:
        legend(figure, handles, labelled(by))
    dataset, classifier = (str(table[name][0]) for name in GROUP)
    points, runs = int(table["n_points"].to_numpy().max()), largest.height
    return Plot(
        f"spectra-{number}",
        f"Spectra of Jacobians: {dataset} × {classifier}",
        "Singular values of the Jacobian of a network's scores by its input, at up to "
        f"{counted(points, 'test point')}. Left: medians over the points, and bands from their 5 % "
        "to their 95 % quantile, means over runs. Right: each dot is a run, the median of its "
        f"largest singular value and its accuracy. n = {counted(runs, 'run')}.",
        runs,
        figure,
        marks,
        dataset=dataset,
        data=drawn,
    )
