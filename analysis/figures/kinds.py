"""The kinds of figures: what each shows, and how it is drawn; the page holds some of them.

Besides these, every numeric column of the tables of runs, pairs and repeats is a kind: one row per
cell, or violins by one or two columns in which cells differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import polars as pl

from manyseed.analysis.figures import deep, quantities, worth
from manyseed.analysis.figures.candidates import candidates
from manyseed.analysis.figures.cells import RICH, of_datasets
from manyseed.analysis.figures.correlations import correlations
from manyseed.analysis.figures.curves import learning_curves
from manyseed.analysis.figures.drawn import CELLS
from manyseed.analysis.figures.gaps import gaps
from manyseed.analysis.figures.given import Given
from manyseed.analysis.figures.margins import margins
from manyseed.analysis.figures.members import members_by_size
from manyseed.analysis.figures.overview import overview
from manyseed.analysis.figures.ranks import mean_ranks
from manyseed.analysis.figures.responses import response_curves, response_pairs
from manyseed.analysis.figures.scatters import alpha_hat_against, alpha_hat_of_pairs
from manyseed.analysis.figures.shaded import OF_DRAWS, runs_by_epoch, single_ensembles
from manyseed.analysis.figures.sizes import ensembles_accuracy, ensembles_close
from manyseed.analysis.figures.sources import sources
from manyseed.analysis.figures.style import Plot
from manyseed.analysis.figures.tace import calibration_by_bins
from manyseed.analysis.figures.violins import levels, violins
from manyseed.analysis.questions.classifiers import standings
from manyseed.analysis.refused import Refused
from manyseed.analysis.tables.schema import Tables

WIDEST = 5.5  # inches that figures with many columns need

Draw = Callable[[Given], "list[Plot] | Plot | None"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A named kind of figures.

    Attributes
    ----------
    name : str
    shows : str
        What it shows, in a few words.
    draw : callable
    of : str
        The further table that it needs; empty for none.
    least : float
        Minimum width in inches.
    """

    name: str
    shows: str
    draw: Draw
    of: str = ""
    least: float = 0

    def plots(self, given: Given) -> list[Plot]:
        """Draw the figures; empty if the tables do not hold what they show."""
        if self.of and getattr(given, self.of) is None:
            return []
        found = self.draw(given)
        return found if isinstance(found, list) else [found] if found is not None else []


_CONSISTENCY = {
    "ec_global_mean": "global: mean",
    "ec_global_range": "global: range",
    "ec_global_cube_root_mean": "global, adjusted",
    "ec_local_mean": "local: mean",
    "ec_local_range": "local: range",
    "ec_local_cube_root_mean": "local, adjusted",
}


def of_repeats(tables: Tables) -> list[quantities.Quantity]:
    """Return the means and ranges of error consistency of each repeat."""
    known = [name for name in _CONSISTENCY if name in tables.repeats.columns]
    found = [one for name in known for one in quantities.column(name)(tables)]
    labels_of: dict[str, list[str]] = {}
    for one in found:
        labels_of.setdefault(one.words, []).append(_CONSISTENCY[one.name])
    words = (
        "Error consistency of the pairs of each repeat: their mean, the largest minus the "
        "smallest, and the mean adjusted for accuracy (cube root). "
    ) + " ".join(
        text if len(labels_of) == 1 else f"{', '.join(labels)}: {text}"
        for text, labels in labels_of.items()
    )
    return [
        replace(one, label=_CONSISTENCY[one.name], words="" if number else words)
        for number, one in enumerate(found)
    ]


def _overview(column: str, shows: str) -> Kind:
    name = f"overview-{column.replace('_', '-')}"
    return Kind(name, shows, lambda given: overview(given.tables.cells, column), least=WIDEST)


def _ranks(given: Given) -> Plot | None:
    cells = given.tables.cells
    found = standings(cells)
    return None if found is None else mean_ranks(found, levels(cells, "classifier"))


def _against(other: str) -> Kind:
    name = f"alpha-hat-{other.replace('_', '-')}"
    shows = f"α̂ of each run against its {quantities.labelled(other)}"
    return Kind(
        name,
        shows,
        lambda given: alpha_hat_against(given.tables.runs, given.tables.repeats, other),
    )


def _grids(given: Given, name: str) -> list[Plot]:
    """Draw a column on the grid of the notes on model variance, if both axes vary."""
    by = ("perturb_continuous", "perturb_hparams")
    if any(given.tables.cells[axis].n_unique() < 2 for axis in by):
        return []
    return violins(given.tables, quantities.column(name, given.meanings), by)


def _gaps(table: pl.DataFrame, given: Given) -> list[Plot]:
    return [] if given.responses is None else gaps(given.responses, table)


def _of(
    table: str,
    name: str,
    shows: str,
    draw: Callable[[pl.DataFrame, Given], list[Plot] | Plot | None],
) -> Kind:
    """Return a kind that is drawn from a further table."""
    return Kind(name, shows, lambda given: draw(getattr(given, table), given), of=table)


def _draws(name: str) -> Kind:
    label, words = OF_DRAWS[name]
    return _of(
        "ensemble_draws",
        f"draws-{name.replace('_', '-')}",
        f"{label} of each drawn ensemble against its accuracy: {words}",
        lambda table, _: single_ensembles(table, name),
    )


def _by_epoch(name: str) -> Kind:
    def draw(given: Given) -> Plot | None:
        return runs_by_epoch(given.every_epoch.runs, given.every_epoch.repeats, name)

    shows = f"{quantities.labelled(name)} of each run against its accuracy, by epoch"
    return Kind(f"epochs-{name.replace('_', '-')}", shows, draw)


KINDS: tuple[Kind, ...] = (
    _overview("accuracy_mean", "mean accuracy of all cells, one field each"),
    _overview("accuracy_std", "spread between seeds of all cells"),
    _overview("ec_local_mean", "local error consistency of all cells"),
    _overview("alpha_hat_mean", "mean α̂ of all cells"),
    Kind("mean-ranks", "ranks of classifiers across datasets", _ranks),
    Kind(
        CELLS.rstrip("-"),
        "accuracy, its range, error consistency and α̂, a row per cell, a figure per dataset",
        lambda given: of_datasets(given.tables),
        least=WIDEST,
    ),
    Kind(
        "consistency-repeats",
        "means and ranges of error consistency of each repeat, a row per cell, a figure per "
        "dataset",
        lambda given: of_datasets(
            given.tables, of_repeats, "consistency-repeats-", ": error consistency of repeats"
        ),
        least=WIDEST,
    ),
    Kind(
        "grids",
        "violins of accuracy: rows data perturbation, columns hparam perturbation",
        lambda given: _grids(given, "accuracy"),
    ),
    *(_against(other) for other in ("accuracy", "churn_ensemble", "ece")),
    Kind(
        "alpha-hat-pairs",
        "α̂ of both runs of each pair, by the pair's churn",
        lambda given: alpha_hat_of_pairs(
            given.tables.runs, given.tables.pairs, given.tables.repeats
        ),
    ),
    Kind(
        "sources-accuracy-std",
        "spread of accuracy by source of randomness and epoch",
        lambda given: sources(given.every_epoch.cells, "accuracy_std"),
    ),
    Kind(
        "sources-alpha-hat-mean",
        "mean α̂ by source of randomness and epoch",
        lambda given: sources(given.every_epoch.cells, "alpha_hat_mean"),
    ),
    *(_by_epoch(name) for name in ("alpha_hat", "churn_ensemble", "ece")),
    Kind(
        "correlations",
        "rank correlations between metrics of runs, within repeats",
        lambda given: correlations(given.tables),
    ),
    _of(
        "ensembles",
        "ensembles-close",
        "share of ensembles of each size that stand for the training",
        lambda table, given: ensembles_close(table, given.close),
    ),
    _of(
        "ensembles",
        "ensembles-accuracy",
        "accuracy of ensembles of each size",
        lambda table, _: ensembles_accuracy(table),
    ),
    *(_draws(name) for name in OF_DRAWS),
    _of(
        "margins",
        "margins",
        "histograms of margins with the envelope of runs, a panel per cell",
        lambda table, given: margins(table, given.tables.cells),
    ),
    _of(
        "margins",
        "candidates",
        "eCDFs of two runs of each cell beside those of their leave-one-out ensembles",
        lambda table, given: candidates(table, given.tables),
    ),
    _of(
        "curves",
        "curves-accuracy",
        "accuracy after each epoch",
        lambda table, given: learning_curves(table, "accuracy", given.tables.cells),
    ),
    _of(
        "curves",
        "curves-loss",
        "cross-entropy after each epoch",
        lambda table, given: learning_curves(table, "loss", given.tables.cells),
    ),
    Kind(
        "likelihood-brier",
        "log-likelihood against Brier score, before and after calibration",
        lambda given: deep.likelihood_against(given.tables.runs, "brier"),
    ),
    Kind(
        "likelihood-error",
        "log-likelihood against error, before and after calibration",
        lambda given: deep.likelihood_against(given.tables.runs, "error"),
    ),
    _of(
        "uncertainty",
        "deep-likelihood",
        "log-likelihood by the number of runs averaged",
        lambda table, _: deep.likelihood_by_size(table),
    ),
    _of(
        "uncertainty",
        "member-likelihood",
        "log-likelihood by the number of members, of ensembling methods",
        lambda table, _: members_by_size(table),
    ),
    _of(
        "dee",
        "deep-equivalent-cll",
        "how many runs averaged runs of another cell are worth, by likelihood",
        lambda table, _: deep.equivalents(table, "cll"),
    ),
    _of(
        "dee",
        "deep-equivalent-error",
        "how many runs averaged runs of another cell are worth, by error",
        lambda table, _: deep.equivalents(table, "error"),
    ),
    _of(
        "dee",
        "method-equivalent-cll",
        "how many runs the members of one training are worth, by likelihood",
        lambda table, _: deep.equivalents(table, "cll", methods=True),
    ),
    _of(
        "dee",
        "method-equivalent-averaged-cll",
        "the same, averaged over the cells of a dataset",
        lambda table, _: worth.averaged_equivalents(table, "cll"),
    ),
    _of(
        "dee",
        "method-equivalents",
        "how many runs the members of one training are worth, metric by metric",
        lambda table, _: worth.equivalents_by_metric(table),
    ),
    _of(
        "tace",
        "tace-bins",
        "calibrated TACE by threshold and bins, of single networks and ensembles",
        lambda table, _: calibration_by_bins(table),
    ),
    _of(
        "response_curves",
        "response-curves",
        "accuracy on training rows by how far they are moved",
        lambda table, _: response_curves(table, integral=False),
    ),
    _of(
        "response_curves",
        "response-cumulative",
        "cumulative response curves, compared with a model that is never wrong",
        lambda table, _: response_curves(table, integral=True),
    ),
    _of(
        "response_curves",
        "response-pair",
        "two response curves with equal ends and unequal gi",
        lambda table, _: response_pairs(table),
    ),
    _of(
        "cmi",
        "response-gap",
        "generalisation gap of each model against scores of its response curve",
        _gaps,
    ),
)
"""The named kinds, in the order of the page."""

SMALL = ("consistency-repeats", "grids")
"""Kinds that the page shows for small sweeps only: they have a figure per dataset."""


def all_figures(given: Given) -> list[Plot]:
    """Draw all figures of the page that the tables allow."""
    small = given.tables.cells["cell"].n_unique() <= RICH
    shown = (kind for kind in KINDS if small or kind.name not in SMALL)
    return [plot for kind in shown for plot in kind.plots(given)]


def names(tables: Tables) -> list[str]:
    """Return the names of all kinds: those of the page, then columns with a value."""
    return [*(kind.name for kind in KINDS), *quantities.names(tables)]


def plots(given: Given, name: str, by: Sequence[str] = ()) -> list[Plot]:
    """Draw a kind of figures.

    Parameters
    ----------
    given : Given
    name : str
        Name of a kind or column; words may be joined by - or _.
    by : sequence of str
        For a column: one or two columns in which cells differ (`analysis.figures.violins`); by
        default each cell has its own row.

    Returns
    -------
    list of Plot
        Empty if there is nothing to draw.

    Raises
    ------
    Refused
        For an unknown kind, or a `by` that the kind does not take.
    """
    kind = find(name)
    if kind is not None:
        if by:
            reason = f"{kind.name} has a fixed layout; only columns of the tables can be grouped"
            raise Refused("by", ",".join(by), reason)
        return kind.plots(given)
    column = name.replace("-", "_")
    if quantities.table_of(quantities.schemas(given.tables), column) is None:
        raise Refused("kind", name, allowed=names(given.tables))
    quantity = quantities.column(column, given.meanings)
    if by:
        return violins(given.tables, quantity, by)
    about = f": {quantities.labelled(column)}"
    return of_datasets(given.tables, quantity, f"{column.replace('_', '-')}-", about)


def find(name: str) -> Kind | None:
    """Return the kind with that name; None for columns."""
    plain = name.replace("_", "-")
    return next((kind for kind in KINDS if kind.name == plain), None)
