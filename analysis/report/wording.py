"""Repeats, snapshots and conventions behind the numbers, in words; the rows of the summary.

And what a paper says of a sweep: its methods, and the studies that they cite.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.counts import counted
from manyseed.analysis.figures.labels import PROBES, labelled
from manyseed.analysis.options import Options
from manyseed.analysis.report import paired
from manyseed.analysis.report.citations import (
    INTERNAL,
    STUDIES,
    copied_in_words,
    data_cited,
    is_own,
    listed,
    own_in_words,
    packages_in_words,
    reached_in_words,
    seeds_in_words,
    tests_in_words,
)
from manyseed.analysis.report.schemes import in_words as meant
from manyseed.analysis.tables import rows
from manyseed.analysis.tables.rows import Tables, last, several

REFERENCES = {
    "others": "the other runs of the repeat",
    "others-trimmed": "the other runs of the repeat, suspects left out",
    "half": "the first half of the repeat's runs",
    "loo_ensemble": "the ensemble of the other runs of the repeat",
    "ensemble": "the ensemble of the first half of the repeat's runs",
}
"""The reference of α̂ in words."""


def repeats_in_words(cells: pl.DataFrame) -> str:
    """Say how many repeats, cells and test sets per cell there are."""
    cells = last(cells)
    if cells.is_empty():
        return "No repeat has finished runs."
    same = cells.height
    cells = rows.cells_once(cells)
    same -= cells.height
    each = cells["n_repeats"].unique().sort().to_list()
    sets = str(each[-1]) if len(each) == 1 else f"{each[0]:,} to {each[-1]:,}"
    total, n = int(cells["n_repeats"].sum()), cells.height
    return (
        f"{total:,} {'repeat' if total == 1 else 'repeats'}: {n:,} {'cell' if n == 1 else 'cells'} "
        f"on {sets} test {'set' if each == [1] else 'sets'}{'' if n == 1 else ' each'}."
        + (
            f" {same:,} more {'is' if same == 1 else 'are'} the same fits again (‡)."
            if same
            else ""
        )
    )


def snapshots_in_words(cells: pl.DataFrame) -> list[str]:
    """Say which snapshots were analysed, if there are several."""
    if not several(cells):
        return []
    epochs = cells["epoch"].unique().sort().to_list()
    shown = ", ".join(str(epoch) for epoch in epochs if epoch > 0)
    return [
        f"Several snapshots were analysed, each by itself: epochs {shown}. The summary shows all; "
        "figures, effects and everything else use the last one of each cell."
    ]


def conventions(tables: Tables, options: Options) -> list[str]:
    """State the conventions behind the numbers."""
    notes = [
        "A repeat consists of the runs of one cell (one combination of dataset, classifier, "
        "schemes and training fraction) that share a test set."
    ]
    if tables.cells["ec_global_mean"].is_not_null().any():
        notes.append(
            f"{paired.in_words(options)} The quantity called error consistency in the vision "
            "literature (Cohen's kappa of correctness) is the column ec_kappa of the tables."
        )
    probes = tables.runs["probe"].drop_nulls().unique().sort().to_list()
    if probes and tables.cells["alpha_hat_mean"].is_not_null().any():
        names = " and ".join(f"the {PROBES.get(probe, f'probe {probe}')}" for probe in probes)
        apart = " Values of α̂ for the two are not comparable." if len(probes) > 1 else ""
        sides = (
            "pairs of samples drawn with replacement from the test points"
            if options.with_replacement
            else "random splits of the test points into two halves"
        )
        notes.append(
            f"α̂ compares the distribution of {names} on the test set with that of "
            f"{REFERENCES[options.alpha_reference]}: it is the smallest trimming level at which "
            f"the robust Kolmogorov–Smirnov test accepts (ε = {options.epsilon:g}), averaged over "
            f"{options.resamples} {sides}. δ is the resolution: contamination below it isn't seen, "
            "and on a small test set α̂ is 0 almost everywhere: figures leave it out where δ > "
            f"{options.close:g}.{apart}"
        )
    identical = int(tables.repeats["identical"].sum())
    if identical:
        notes.append(
            f"† marks rows with repeats of identical runs ({identical} in total): nothing in their "
            "training varies, so one run was trained and the others are copies. They are left out "
            "of the spread between seeds, accuracy range, error consistency, churn and α̂, in "
            "tables, figures and effects, and are counted separately."
        )
    if same := rows.in_words(tables.cells):
        notes.append(
            "‡ marks cells whose runs are the same fits as those of another cell, since no fit "
            "depends on what sets them apart: they are listed in the summary, and counted once in "
            f"figures and effects. {'; '.join(same)}."
        )
    return notes


Rows = tuple[Mapping[str, Any], ...]


def summary(cells: pl.DataFrame) -> Rows:
    """Return the rows of the summary: the table of cells, sorted by dataset and classifier.

    Cells are not averaged: with and without a scheme, or with all and half of the data, they are
    different trainings. `copies` is the number of copied runs; `same_as` is the cell that counts in
    place of one with the same fits.
    """
    if rows.SAME_AS not in cells.columns:
        cells = cells.with_columns(pl.lit(None, pl.UInt32).alias(rows.SAME_AS))
    copies = (pl.col("n_runs") - pl.col("n_distinct")).alias("copies")
    if "epoch" in cells.columns:
        trained = pl.when(pl.col("epoch") > 0).then(pl.format("epoch {}", "epoch"))
        cells = cells.sort("epoch").with_columns(trained.fill_null("no epochs").alias("epoch"))
    key = ("dataset", "classifier", "cell")
    return tuple(cells.with_columns(copies).sort(key, maintain_order=True).iter_rows(named=True))


def varying_axes(cells: pl.DataFrame) -> list[str]:
    """Return the axes in which rows of a dataset and classifier differ, epoch last."""
    others = [name for name in AXES if name not in ("dataset", "classifier")]
    found = [name for name in others if cells[name].n_unique() > 1]
    return [*found, "epoch"] if several(cells) else found


_SPELT = {
    "lr-sgd": "logistic regression fitted by stochastic gradient descent",
    "svm-sgd": "linear support vector machine fitted by stochastic gradient descent",
    "xgb": "gradient-boosted trees, XGBoost",
    "mlp": "residual network of dense layers with batch normalisation, leaky ReLU and dropout",
    "cnn": "two convolutions and a hidden layer with ReLU and max-pooling",
    "convnet": "convolutional network with ReLU and max-pooling",
    "vgg": "VGG network",
    "resnet": "residual network",
    "preresnet": "residual network with pre-activation",
    "wide-resnet": "wide residual network",
    "vit": "vision transformer",
    "vit-transfer": "a head on features of a vision transformer that was trained before",
}
"""What the names of classifiers stand for."""

_ARCHITECTURES = {
    "lr-sgd": "bottou2010",
    "svm-sgd": "cortes1995",
    "mlp": "martinez2017",
    "vgg": "simonyan2015",
    "resnet": "he2016deep",
    "preresnet": "he2016identity",
    "wide-resnet": "zagoruyko2016",
}


@dataclass(frozen=True, slots=True)
class Study:
    """What is known of a sweep for the methods of a paper; what is unknown is empty or None.

    `cells`: by cell: the columns `AXES`, `repeats`, `runs` planned, and `canonical`, its
    description. `counts`: runs, and those done, copy, failed, missing. `datasets`: by name, its
    canonical description with `source` and, in `test`, the share of the rows that test sets are or
    "official"; and `n_classes`, `n_train` and `n_test` rows.
    `versions`: by program. `libraries`: what users' own code imports; None if unknown. `devices`:
    that trained. `metrics`: by name, what it is. `has`: further tables. `effects`: the reference
    level of each axis that has some. `reached`: by classifier, the sources that its fits draw from,
    of those that vary. `identical`: cells whose runs on a test set are copies of one.
    `chosen`: metrics that are described, of `paired.PAIRED` too; empty for those of answers.
    """

    cells: pl.DataFrame
    counts: Mapping[str, int]
    datasets: Mapping[str, Mapping[str, Any]]
    descriptions: Sequence[Mapping[str, Any]] = ()
    imported: bool = False
    versions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    libraries: Sequence[str] | None = ()
    devices: Sequence[str] = ()
    metrics: Mapping[str, str] = field(default_factory=dict)
    tables: Tables | None = None
    options: Options | None = None
    analysed: int = 0
    has: Sequence[str] = ()
    effects: Mapping[str, str] = field(default_factory=dict)
    reached: Mapping[str, Collection[str]] = field(default_factory=dict)
    identical: Collection[int] = ()
    chosen: Sequence[str] = ()


def methods(study: Study) -> Iterator[tuple[str, str]]:
    """Yield the headings and texts of the methods of a paper; ``[@key]`` cites one of `STUDIES`."""
    yield "Data", " ".join(_data(study))
    yield "Training", " ".join(_training(study))
    yield "Runs", " ".join(_runs(study))
    yield "Evaluation", " ".join(_evaluation(study))
    yield "Software", " ".join(_software(study))
    if lost := [name for name, one in study.datasets.items() if one.get("not_found")]:
        files = "their files are" if len(lost) > 1 else "its file is"
        told = f"Rows and features of {listed(lost)} are left out, as {files} not found from here."
        yield NOTE, told


NOTE = "Note"
"""The heading of what is said to the author alone."""


def _data(study: Study) -> Iterator[str]:
    told = []
    for name, one in study.datasets.items():
        sizes = [
            counted(one[of], what) if of != "n_categorical" else f"{one[of]:,} {what}"
            for of, what in _SIZES.items()
            if one.get(of)
        ]
        source = [one["source"]] if one.get("source") not in (None, name) else []
        told.append(f"{data_cited(name, one)} ({'; '.join([*source, ', '.join(sizes)])})")
    yield f"{counted(len(told), 'data set')}: {', '.join(told)}."
    tested: dict[tuple[str, str], list[str]] = {}
    for name, one in () if study.imported else study.datasets.items():
        tested.setdefault(_tested(one), []).append(name)
    for (start, rest), names in tested.items():
        alone = len(names) == len(study.datasets) and (start != _ONE_SET or len(names) == 1)
        each = "each of " if len(names) > 1 and start == _ONE_SET else ""
        yield start + ("" if alone else f" of {each}{listed(names)}") + rest


_ONE_SET, _EACH_REPEAT = "The test set", "Each repeat"


def _tested(one: Mapping[str, Any]) -> tuple[str, str]:
    """Return what the test sets of a data set are, as the two parts of a sentence around it."""
    share = one.get("test")
    if "folds" in one:
        of = "task" if str(one.get("source")).startswith("openml-task:") else "data"
        named = "" if of == "task" else f" (column {one['folds']})"
        cut, largest = "", one.get("largest_test", 0)
        if largest > one["n_test"]:
            drawn = f"{one['n_test']:,} rows drawn at random"
            cut = f", or of larger ones (up to {largest:,} rows) {drawn}"
        return _EACH_REPEAT, f" has another of the {of}'s folds{named} as its test set{cut}."
    if "last" in one:
        some = f"{100 * one['last']:g} %" if isinstance(one["last"], float) else f"{one['last']:,}"
        order = f", in the order of {one['order']}" if "order" in one else ""
        return _ONE_SET, f" is the last {some} of the rows{order}."
    if share == "official":
        if one["source"] == "file" and "test_digest" in one:
            return _ONE_SET, " is a file of its own."
        if {"split", "target"} <= {*one}:  # not of a folder of images
            return _ONE_SET, f" is what the column {one['split']} says."
        return _ONE_SET, " is the source's own."
    size, whole, by = "", ",", "class"
    if share is not None:
        some = f"{100 * share:g} % of the" if isinstance(share, float) else f"{share:,}"
        size = f" {'about ' * ('group' in one and '%' in some)}{some} rows,"
    if "group" in one:
        whole, by = f" of whole groups ({one['group']}),", "the most frequent class of each"
    drawn = f" draws its own test set{whole}{size} stratified by {by}; the rest trains."
    return _EACH_REPEAT, drawn


_SIZES = {
    "n_samples": "row",
    "n_features": "feature",
    "n_categorical": "of them categorical",
    "n_ignored": "ignored column",
    "n_classes": "class",
    "n_train": "training row",
    "n_test": "test point",
}
_VARIES = {
    "init": "the initial weights",
    "batch": "the order of batches and all else that training draws, such as dropout",
    "train": "a bootstrap sample of the training rows",
}


def _training(study: Study) -> Iterator[str]:
    cells = study.cells
    if study.imported:
        yield "Models were trained elsewhere and their predictions imported, so how is not known."
        return
    told = []
    for name in cells["classifier"].cast(pl.String).unique().sort().to_list():
        own = [
            one
            for one, of in zip(study.descriptions, cells["classifier"].cast(pl.String), strict=True)
            if of == name
        ]
        kind = str(own[0]["classifier"].get("name", name))
        cited = f" [@{_ARCHITECTURES[kind]}]" if kind in _ARCHITECTURES else ""
        settings = {
            **_values(one["classifier"] for one in own),
            **_values(one["hparams"] for one in own),
        }
        spelt = [_SPELT[kind]] if kind in _SPELT else [kind] * (kind != name)
        if is_own(own[0]["classifier"]):
            settings = {key: one for key, one in settings.items() if key not in INTERNAL}
            spelt = [own_in_words(own[0]["classifier"], {*own[0]["hparams"]})]
        parts = ", ".join(f"{key} {value}" for key, value in settings.items())
        told.append(f"{name}{cited} ({'; '.join(filter(None, [*spelt, parts]))})")
    yield f"{counted(len(told), 'classifier')}: {'; '.join(told)}."
    named = dict(zip(cells["classifier"].cast(pl.String), study.descriptions, strict=True))
    models = {name: one["classifier"] for name, one in sorted(named.items())}
    encoded: dict[str, list[str]] = {}
    for name, one in models.items():
        kind = str(one.get("encode") if is_own(one) else one.get("name"))
        if kind in _ENCODED:
            encoded.setdefault(_ENCODED[kind], []).append(name)
    for how, kinds in encoded.items():
        yield f"For {listed(kinds)}, {how}."
    varying = cells.filter(pl.col("runs") > 1)["vary"].cast(pl.String)
    levels = [str(one) for one in varying.unique(maintain_order=True)]
    sources = {one for level in levels for one in re.split(r"[+*]", level)}
    if all(one.get("form") == "estimator" for one in models.values()):
        sources &= {"train"}  # the others reach them as their seeds alone
    yield from seeds_in_words(models)
    means = [f"{one} ({_VARIES[one]})" for one in sorted(sources) if one in _VARIES]
    if means:
        which = f", in the combinations {listed(levels)}" if len(levels) > 1 else ""
        yield f"Runs that share a test set differ in {listed(means)}{which}."
        yield from reached_in_words(sources, study.reached)
        if any("*" in level for level in levels):
            yield "Where * joins them, each value of one is combined with each of the others, once."
    for axis in AXES:
        levels = [str(one) for one in cells[axis].unique(maintain_order=True).to_list()]
        plain = {"train_fraction": "1.0", "hparams": "default"}.get(axis, "none")
        if axis in ("dataset", "classifier", "vary") or levels == [plain]:
            continue
        cited = " [@ashukha2020]" if axis == "ensembling" else ""
        levels = [*dict.fromkeys(_in_full(study, axis, level) for level in levels)]
        name = labelled(axis)
        yield f"{name[:1].upper()}{name[1:]}{cited}: {listed(levels)}."
        if axis == "train_fraction" or axis.startswith("perturb"):
            what = "The rows are" if axis == "train_fraction" else "The noise is"
            yield f"{what} drawn anew for each run.{meant(axis, levels)}"


_DENSE = (
    "numbers are standardised by the training rows of each run, missing ones become their mean, "
    "and categories become a column per label"
)
_PIXELS = "pixels are standardised by channel over the training images of each run"
_OF_IMAGES = ("cnn", "convnet", "vgg", "resnet", "preresnet", "wide-resnet", "vit")
_ENCODED = dict.fromkeys(("lr-sgd", "svm-sgd", "mlp"), _DENSE)
_ENCODED |= dict.fromkeys(_OF_IMAGES, _PIXELS)
_ENCODED["xgb"] = "features are used as they are, missing values and categories too"
_ENCODED |= {"raw": "features are used as they are", "dense": _DENSE, "pixels": _PIXELS}
"""How classifiers of this project, by name, and others, by what they ask for, get the features."""


def _in_full(study: Study, axis: str, level: str) -> str:
    """Return a level, and the settings of an ensembling method."""
    own = (
        one["ensembling"]
        for one, of in zip(study.descriptions, study.cells[axis].cast(pl.String), strict=True)
        if axis == "ensembling" and of == level and isinstance(one.get("ensembling"), Mapping)
    )
    settings = ", ".join(f"{key} {value}" for key, value in _values(own).items())
    return f"{level} ({settings})" if settings else level


def _values(descriptions: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the settings of several descriptions, each with all of its values."""
    found: dict[str, dict[str, None]] = {}
    for one in descriptions:
        for key, value in one.items():
            if key not in ("name", "version") and isinstance(value, str | int | float):
                text = {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
                if len(text) < _LONG:
                    found.setdefault(key.replace("_", " "), {})[text] = None
    return {key: " or ".join(values) for key, values in found.items()}


_LONG = 32  # letters of digests and the like, which a paper does not print


def _runs(study: Study) -> Iterator[str]:
    counts, cells = study.counts, study.cells
    finished = counts["done"] + counts["copy"]
    if finished < counts["runs"]:
        yield f"Unfinished: {counts['runs'] - finished:,} of {counts['runs']:,} runs are missing."
    axes = [axis for axis in AXES if cells[axis].n_unique() > 1] or ["dataset", "classifier"]
    up_to = "up to " if (cells["repeats"] * cells["runs"]).sum() != counts["runs"] else ""
    differ = f"{counted(cells.height, 'combination')} of {listed([labelled(a) for a in axes])}"
    if len(axes) == 1:
        differ = f"{counted(cells.height, 'configuration')}, which differ in "
        differ += f"{labelled(axes[0])} alone"
    sets = f"{_ends(cells['repeats'])} repeats (test sets)"
    if cells["repeats"].max() == 1:
        sets = "1 repeat (test set)"
    yield (
        f"There {'is' if cells.height == 1 else 'are'} {differ}, with {sets} of {up_to}"
        f"{_ends(cells['runs'])} {'run' if cells['runs'].max() == 1 else 'runs'} each."
    )
    each = cells.group_by("classifier").agg(n=(pl.col("repeats") * pl.col("runs")).sum())
    if each.height > 1:
        rows = each.sort(pl.col("classifier").cast(pl.String)).rows()
        numbers = listed([f"{n:,} of {name}" for name, n in rows])
        yield f"Planned runs by classifier: {up_to}{numbers}."
    copies = counts["copy"]
    of = copied_in_words(cells, study.identical)
    why = "as nothing that varies reaches the fit"
    same = f", {copies:,} of them copies{of}, {why}" if copies else ""
    failed = f"{counts['failed']:,} failed"
    yield f"Of {counts['runs']:,} planned runs, {finished:,} finished{same}, and {failed}."


_OF_ANSWERS = ("accuracy",)
"""Metrics that answers use; consistency, churn and α̂ have sentences of their own."""


def _evaluation(study: Study) -> Iterator[str]:
    if study.tables is None or study.options is None:
        yield "Not analysed yet."
        return
    if study.analysed < study.counts["runs"]:
        yield f"The results rest on {study.analysed:,} of {study.counts['runs']:,} planned runs."
    told = study.metrics if study.chosen or "uncertainty" in study.has else _OF_ANSWERS
    for name, meaning in study.metrics.items():
        if name not in told:
            continue
        first = meaning.partition(". ")[0].rstrip(".")
        is_named = first.lower().startswith(name.lower())
        yield f"{first}." if is_named else f"{name[:1].upper()}{name[1:]}: {first}."
    sets = max(study.tables.cells["n_repeats"].to_list(), default=0)
    over = "test sets" if sets > 1 else "the runs of the single test set"
    yield (
        f"Intervals of means are 95 % t intervals over {over}; of shares, where these would pass 0 "
        "or 1, on the scale of the log odds."
    )
    if sets > 1:
        yield "They are not corrected for rows that several repeats share."
    yield "Standard deviations between seeds are pooled within repeats."
    yield from tests_in_words(study.cells, sets, study.effects)
    _, *notes = conventions(study.tables, study.options)  # without marks and columns of the page
    small = (study.tables.repeats["delta"] > study.options.close).all()
    levels = not study.tables.runs["alpha_hat"].is_null().all() and not small
    if study.chosen:
        levels = levels and paired.ALPHA_HAT in study.chosen
    left_out = "†‡L" if levels else "†‡αL"
    if any(note[0] == "L" for note in notes):
        yield paired.in_words(study.options, study.chosen or paired.PAIRED)
    yield from (note for note in notes if note[0] not in left_out)
    loo = study.options.alpha_reference == "loo_ensemble"
    wanted = {
        "banerjee2025": levels,
        "banerjee2024": levels and loo,
        "ashukha2020": "uncertainty" in study.has and (len(study.metrics) > 1 or not study.chosen),
        "schiff2021": "responses" in study.has and not study.chosen,
    }
    for key, is_wanted in wanted.items():
        if is_wanted:
            yield f"Definitions of {STUDIES[key].cited_for}: [@{key}]."


def _software(study: Study) -> Iterator[str]:
    trained = [one.get("classifier", {}) for one in study.descriptions if not study.imported]
    kinds = {kind for of in trained for kind in (of.get("name"), of.get("form"), *of)}
    used = {_KINDS[kind] for kind in kinds if kind in _KINDS}
    own, told = packages_in_words(study.versions, trained, used, study.libraries)
    yield f"{own} [@manyseed]{f', with {listed(told)}' if told else ''}."
    if study.imported:
        return
    if study.devices:
        yield f"Trained on: {listed(study.devices)}."
    if seeds := sorted({one["seed"] for one in study.descriptions if "seed" in one}):
        of = f"seed{'s' if len(seeds) > 1 else ''} {listed([str(one) for one in seeds])}"
        yield f"All random streams derive from the {of}."


_KINDS = {
    **dict.fromkeys(("lr-sgd", "svm-sgd"), "scikit-learn"),
    **dict.fromkeys(("mlp", "vit-transfer", "module", *_OF_IMAGES), "torch"),
    "xgb": "xgboost",
}
"""Packages that train classifiers of this project."""


def _ends(column: pl.Series) -> str:
    values = column.to_list()
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
