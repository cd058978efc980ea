"""A plan's notes: remarks on what a user might not expect of their grids."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from manyseed.analysis.counts import are, counted, some
from manyseed.jobs.cells import ResolvedCell
from manyseed.jobs.datasets import ColumnInfo, DatasetInfo
from manyseed.jobs.datasets.columns import (
    LEAVE_EMPTY,
    alike,
    is_mark,
    is_measured,
    is_number,
    same_numbers,
)
from manyseed.jobs.datasets.parts import GROUP
from manyseed.jobs.datasets.split import n_points
from manyseed.jobs.images import CROP_FLIP
from manyseed.jobs.run import Cell
from manyseed.orchestrator.errors import toml_value
from manyseed.orchestrator.grids.resolver import Fit, not_trainable

_SHOWN = 5
_MANY_COPIES = 0.01  # of the rows: more of them are told
_FEW_STEPS = 5  # the plan notes when an epoch has fewer steps
_LOOKS = {
    "constant": "is constant or empty, but is taken as a feature",
    "id": "looks like a row number or name, but is taken as a feature",
    "date": "looks like dates, but is taken as a feature",
    "distinct": "has labels that hardly repeat, but is taken as a category",
    "text": "is text, whose words no classifier here reads, but is taken as a category",
}
_ABSENT = ("no classifier can be right on their test points", "no result says anything of them")
_MERGE = "classes = {…} can merge them"
_FOUND = ("seeds: ", "draws from ", "a probe took ")
"""How notes on users' own code begin that tell what was found."""
_MEASURES = re.compile("linear|logistic|ridge|svm|neighbors|neural|mlp|kernel", re.IGNORECASE)
"""How names of models read that take numbers as amounts."""
TELLS = "tells {} by itself: each of its values has one class"
NAMELESS = "the column without a name"  # as pandas writes an index
_WRITTEN = {
    "sklearn:digits",
    *(f"torchvision:{name}" for name in ("MNIST", "EMNIST", "KMNIST", "QMNIST", "SVHN", "USPS")),
}
"""Sources of images of characters."""
_LACKING = {
    "perturb_continuous": "continuous features",
    "perturb_categorical": "categorical features",
    "perturb_hparams": "hparams that it could move",
}


def data_notes(info: DatasetInfo) -> Iterator[str]:
    """Yield what a user might not expect of a dataset's values: categories, then classes."""
    for column in (*info.columns, *filter(None, [info.target])):
        name, declared = column.name or NAMELESS, f"categorical = [{toml_value(column.name)}]"
        shown = some([*map(toml_value, column.shown)], _SHOWN)
        taken = "taken as a category"
        if column.kind == "ignored":
            taken, declared = "left out", f"{declared}, then not in ignore"
        if column.looks == "numbers" and any(
            is_measured(label) or is_number(label) for label in column.shown
        ):
            yield (
                f"{name} holds numbers with units, signs, commas or blanks, such as {shown}, so it "
                f"is {taken}; write numbers alone; if it is a category: {declared}"
            )
        elif column.looks == "numbers" and shown:
            listed = f", or missing = {toml_value([*column.shown])}" * (len(column.shown) <= _SHOWN)
            yield (
                f"{name} holds numbers besides {shown}, so it is {taken}; "
                f"{LEAVE_EMPTY}{listed}; if it is a category: {declared}"
            )
        elif column.looks == "numbers":
            yield (
                f"{name} holds numbers written as text, so it is {taken}; if they are "
                f"numbers: continuous = [{toml_value(column.name)}], if not: {declared}"
            )
        elif column.looks == "zeros" and column is info.target:
            yield (
                f"{name} holds numbers with leading zeros, such as {shown}; the names of its "
                "classes are without them"
            )
        elif column.looks == "zeros":
            yield (
                f"{name} holds numbers with leading zeros, such as {shown}, as codes have, but is "
                f"taken as numbers; if they are labels: {declared}"
            )
        elif column.looks == "thousands":
            yield (
                f"{name} holds numbers such as {shown}, with what is taken as a decimal comma or "
                "point; if it separates thousands, write them without"
            )
        elif column.looks == "single":
            yield (
                f"{name} holds numbers that single precision (float32) cannot tell apart or hold, "
                f"such as {shown}; classifiers that compute in it, as many trees do, see them as "
                "equal or fail; subtract a constant, or divide by one (xgb does so itself)"
            )
        elif column.looks == "far":
            far, n, low, high = column.shown
            yield (
                f"{name} is {far} in {n} rows, far from its other values ({low} to {high}); if "
                "that marks missing values, leave these cells empty"
            )
        elif column.looks == "totals":
            yield _of_totals(name, *column.shown)
        elif column.looks == "alike":
            yield f"{name} has labels that are the same but for blanks or case: {shown}"
        elif column.looks == "same":
            yield f"{name} has labels that are the same number: {shown}"
        elif column.looks == "merged":
            yield f"{name} holds numbers written in several ways, which are taken as one: {shown}"
        if column.tells and (note := _tells(name, column, info)):
            yield note
    for lacking, part, so in zip(info.absent, ("training", "test"), _ABSENT, strict=True):
        if lacking:
            what = "image" if info.image else "row"
            yield f"classes without a {part} {what}: {some(lacking, _SHOWN)}; {so}"
    n_leaked, n_other = info.leaked
    if n_leaked:
        other = f", {n_other:,} of them in another class" if n_other else ""
        yield (
            f"{n_leaked:,} of {info.n_test:,} test images are training images, too{other}: "
            "accuracy is not that on new images; leave them out of one part"
        )
    if info.copies.n_other:
        what = "images" if info.image else "rows"
        such = " and ".join(map(toml_value, info.copies.shown))
        yield (
            f"{info.copies.n_other:,} of {info.n_samples:,} {what} "
            f"{'is a copy of another' if info.copies.n_other == 1 else 'are copies of others'} in "
            f"another class{such and f', such as {such}'}: not all labels can be right"
        )
    if info.copies.n >= _MANY_COPIES * info.n_samples:
        together = "" if info.image else f", or name the column that keeps them together ({GROUP})"
        yield (
            f"{info.copies.n:,} of {info.n_samples:,} {'images' if info.image else 'rows'} are "
            "copies of others; where one trains and the other tests, accuracy is too high: leave "
            f"copies out{together}"
        )
    if same := alike(info.class_names):
        shown = some([*map(toml_value, same[0])], _SHOWN)
        yield f"classes are the same but for blanks or case: {shown}; {_MERGE}"
    if same := same_numbers(info.class_names):
        shown = some([*map(toml_value, same[0])], _SHOWN)
        yield f"classes are the same number: {shown}; {_MERGE}"
    if marks := [name for name in info.class_names if is_mark(name)]:
        shown = some([*map(toml_value, marks)], _SHOWN)
        yield (
            f"classes that may mark missing values: {shown}; classes = {{…}} without these leaves "
            "their rows out"
        )
    if scarce := _scarce(info):
        yield (
            f"classes with too few rows to be in training part and test set: {some(scarce, _SHOWN)}"
            f"; {_MERGE}, or leave their rows out"
        )


def _of_totals(name: str, word: str, *classes: str) -> str:
    """Say what shows that the last row sums up the others, and what becomes of it."""
    shows = f"{name} is {toml_value(word)}" if word else f"its {name} is the sum of those above"
    taken = f"taken as a row of class {classes[0]}; delete it" if classes else "left out"
    return f"the last row looks like totals, as {shows}; it is {taken}"


def _tells(name: str, column: ColumnInfo, info: DatasetInfo) -> str:
    """Say what a column tells of classes; of one that is left out, only which rows it joins."""
    shown, (values, least, most) = toml_value(column.name), column.rows
    left_out = f"if it is not a feature: ignore = [{shown}]"
    if column.tells == "target":
        target = info.canonical.get("target", "the class")
        return "" if column.kind == "ignored" else f"{name} {TELLS.format(target)}; {left_out}"
    if info.group_sizes or info.n_test_sets is not None or not column.name:
        return ""
    each = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return (
        f"{name}: {values:,} values, each in {each} rows of one class; rows of one {name} may be "
        f"on both sides of the split: group = {shown} keeps them together"
    )


def _scarce(info: DatasetInfo) -> list[str]:
    """Return the classes, with their rows, that training parts or test sets lack."""
    is_drawn = info.n_test_sets is None and info.n_test >= len(info.class_names)
    drawn = info.n_test / info.n_samples if is_drawn else 0.5
    least = 1 / (2 * min(drawn, 1 - drawn))  # a stratified draw is exact to half a row
    counts = info.class_counts or ()
    return [
        f"{name} ({count:,})"
        for name, count in zip(info.class_names, counts, strict=False)
        if count <= least
    ]


class Notes:
    """Collects notes on single values, and merges those that are alike."""

    def __init__(self) -> None:
        self._idle: dict[tuple[str, str], dict[str, None]] = {}
        self._unmoved: dict[tuple[str, str], list[tuple[str, ...]]] = {}
        self._same: dict[tuple[str, str], tuple[str, str]] = {}
        self._mirrored: dict[str, str] = {}
        self._steps: dict[tuple[str, str], tuple[int, int, int]] = {}
        self._rows: dict[tuple[str, int], dict[int, None]] = {}  # by dataset and rows there are
        self._coded: dict[tuple[str, str], tuple[int, str]] = {}
        self._others: list[str] = []
        self._expected: set[str] = set()  # of others, those that tell what is always so

    def resolved(self, fits: Iterable[Fit]) -> None:
        """Note what resolving axis values for datasets and classifiers showed."""
        for fit in fits:
            own = fit.pair.classifier.canonical
            if own.get("encode") == "raw" and (n := fit.pair.dataset.n_categorical):
                names = fit.names["classifier"], fit.names["dataset"]
                self._coded[names] = n, str(own["name"])
            for (axis, value), found in fit.cells.items():
                self._add(axis, value, fit.names, found)
                if axis == "train_fraction":
                    self._few_steps(fit, found.cell)
                    self._like_percent(fit, found.cell)

    def _add(self, axis: str, value: Any, names: Mapping[str, str], found: ResolvedCell) -> None:
        cell = found.cell
        scheme = {"augment": cell.augment, "test_augment": cell.test_augment}.get(axis, "")
        if scheme.startswith(CROP_FLIP):
            self._mirrored[names["dataset"]] = str(cell.dataset["source"])
        if axis in found.idle:
            where = names["classifier"] if axis == "perturb_hparams" else names["dataset"]
            self._idle.setdefault((axis, value), {})[where] = None
        elif axis == "perturb_hparams" and value != "none" and names["hparams"] != "tuned":
            self._unmoved.setdefault((names["classifier"], value), []).append(found.unmoved)

    def _few_steps(self, fit: Fit, cell: Cell) -> None:
        """Note if a batch size that the user can choose leaves few steps per epoch."""
        if not isinstance(batch := cell.hparams.get("batch"), int):
            return
        rows = n_points(cell.train_fraction, fit.pair.dataset.n_train)
        steps = (-(-rows // batch), rows, batch)
        if steps[0] < _FEW_STEPS:
            key = (fit.names["classifier"], fit.names["dataset"])
            self._steps[key] = min(steps, self._steps.get(key, steps))

    def _like_percent(self, fit: Fit, cell: Cell) -> None:
        """Note a number of training rows that may be meant as a percentage."""
        n, n_train = cell.train_fraction, fit.pair.dataset.n_train
        if isinstance(n, int) and n <= min(100, n_train - 1):
            self._rows.setdefault((fit.names["dataset"], n_train), {})[n] = None

    def same(self, other: tuple[str, str], kept: tuple[str, str]) -> None:
        """Note that a dataset and classifier have the same fits as others with other names."""
        self._same[other] = kept

    def facts_of(self, datasets: Mapping[str, DatasetInfo], used: Iterable[str]) -> None:
        """Note special facts of a plan's datasets."""
        for name in sorted(used):
            info = datasets[name]
            if info.n_dropped:
                self._others.append(
                    f"{name}: {are(info.n_dropped, 'sample')} left out: "
                    "classes does not list theirs"
                )
            if info.columns:
                self._columns(name, info.columns)
            self._others += [f"{name}: {note}" for note in data_notes(info)]
            if info.group_sizes:
                self._tell(_groups(name, info))
            if info.n_test_sets is not None:
                told = _official(name, info)
                # smaller test sets than one's own folds are for the user to know
                self._others.append(told) if info.largest_test > info.n_test else self._tell(told)

    def _columns(self, name: str, columns: Sequence[ColumnInfo]) -> None:
        """Note how a file's columns are used, and which of them a user should check."""
        kinds: dict[str, list[str]] = {"continuous": [], "categorical": [], "ignored": []}
        for column in columns:
            facts = [f"{column.n_labels:,}"] if column.kind == "categorical" else []
            facts += [f"{column.n_missing:,} missing"] if column.n_missing else []
            told = f" ({', '.join(facts)})" if facts else ""
            kinds[column.kind].append(f"{column.name or NAMELESS}{told}")
        listed = [f"{len(c)} {kind}: {some(c, _SHOWN)}" for kind, c in kinds.items() if c]
        self._tell(f"{name}: columns are interpreted as " + "; ".join(listed))
        for column in columns:
            if column.looks in _LOOKS:
                shown = toml_value(column.name)
                together = f", if rows that share it belong together: group = {shown}"
                is_shared = column.looks == "id" and column.rows[2] > 1 and not column.tells
                self._others.append(
                    f"{name}: {column.name or NAMELESS} {_LOOKS[column.looks]}; "
                    f"if it is not a feature: ignore = [{shown}]"
                    + (together if is_shared and column.name else "")
                )

    def grids(self, configurations: Mapping[str, Sequence[str]], used: set[str]) -> None:
        """Note the configurations of hparam grids, and the hparam grids that no grid uses."""
        for name, listed in configurations.items():
            if name in used:
                self._tell(f"The hparam grid of {name} is {_axes(listed)}")
            else:
                self._others.append(
                    f'the hparam grid of {name} is not used: add hparams = ["grid"] under [[grid]]'
                )

    def own_rates(self, classifier: str, ensemblings: Iterable[str]) -> None:
        """Note the methods with a learning rate of their own, which no scheme can move."""
        for name in ensemblings:
            line = f"perturb_hparams cannot move lr of {classifier} under {name}, which has its own"
            if line not in self._others:
                self._others.append(line)

    def unused(self, tables: Iterable[str]) -> None:
        """Note tables of the file that no grid uses."""
        self._others += [f"[{table}] is used by no grid" for table in tables]

    def not_trainable(self, kinds: Iterable[str]) -> None:
        """Note kinds of classifiers that need packages not installed here; nodes may have them."""
        if (line := not_trainable(kinds)) is not None:
            self._others.append(line)

    def own(self, notes: Mapping[str, Iterable[str]]) -> None:
        """Note the findings about users' own code, by the names of its tables."""
        for name, listed in notes.items():
            for note in listed:
                self._others.append(f"{name}: {note}")
                if note.startswith(_FOUND):
                    self._expected.add(self._others[-1])

    def _tell(self, line: str) -> None:
        self._others.append(line)
        self._expected.add(line)

    def unexpected(self) -> tuple[str, ...]:
        """Return the notes on what a user may want to change; other notes only tell how it is."""
        of_trees = self._codes(lambda entry: not _MEASURES.search(entry))
        expected = {*self._expected, *self._counted_rows(), *of_trees}
        return tuple(line for line in self.lines() if line not in expected)

    def _codes(self, wanted: Callable[[str], object]) -> list[str]:
        """Tell which of one's own classifiers get labels as numbers, of those that are wanted."""
        found: dict[tuple[str, int, bool], list[str]] = {}
        for (classifier, dataset), (n, entry) in self._coded.items():
            if wanted(entry):
                key = (dataset, n, bool(_MEASURES.search(entry)))
                found.setdefault(key, []).append(classifier)
        return [
            f"{some(names, _SHOWN)} on {dataset}: "
            f"labels ({counted(n, 'column')}) are codes 0, 1, 2, …, "
            "as trees can use them; linear models, networks and distances need "
            'encode = "dense"'
            for (dataset, n, _), names in found.items()
        ]

    def _counted_rows(self) -> list[str]:
        return [
            f"{dataset}: a train_fraction above 1 is a number of rows: "
            f"{some([*map(str, n)], _SHOWN)} of {n_train:,}; "
            f"for {next(iter(n))} % write {next(iter(n)) / 100:g}"
            for (dataset, n_train), n in self._rows.items()
        ]

    def lines(self) -> tuple[str, ...]:
        """Return all notes, as sentences without a full stop."""
        idle: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for (axis, value), names in self._idle.items():
            idle.setdefault((axis, tuple(names)), []).append(value)
        unmoved: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for (classifier, value), by_configuration in self._unmoved.items():
            if hparams := _merged(by_configuration):
                unmoved.setdefault((classifier, hparams), []).append(value)
        lines = [
            f"{axis} = {_values(values)} is the same as none on {some(names, _SHOWN)}: "
            f"no {_LACKING[axis]}"
            for (axis, names), values in idle.items()
        ]
        lines += [
            f"perturb_hparams = {_values(values)} cannot move these hparams of {classifier}: "
            + ", ".join(hparams)
            for (classifier, hparams), values in unmoved.items()
        ]
        lines += [
            f"{classifier} takes {steps} {'step' if steps == 1 else 'steps'} per epoch on "
            f"{dataset}: {rows:,} rows in batches of {batch:,}"
            for (classifier, dataset), (steps, rows, batch) in self._steps.items()
        ]
        lines += [
            f"{other[1]} on {other[0]} is the same as {kept[1]} on {kept[0]} and stored there"
            for other, kept in self._same.items()
        ]
        written = [name for name, source in self._mirrored.items() if source in _WRITTEN]
        if written:
            lines.append(
                f"{CROP_FLIP} mirrors half of the images: on {some(written, _SHOWN)} that makes "
                "other characters, with the class of the first"
            )
        return (*lines, *self._counted_rows(), *self._codes(str), *self._others)


def _merged(hparams: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the hparams of any configuration, and mark those that not all of them have."""
    common = set(hparams[0]).intersection(*hparams)
    names = dict.fromkeys(name for each in hparams for name in each)
    return tuple(name if name in common else f"{name} (at some configurations)" for name in names)


def _axes(configurations: Sequence[str]) -> str:
    """Describe an hparam grid: ``4 configurations: lr = 0.001 | 0.0003, width1 = 32 | 64``."""
    values: dict[str, dict[str, None]] = {}
    for each in configurations:
        for part in each.split(","):
            name, _, value = part.partition("=")
            values.setdefault(name, {})[value] = None
    axes = ", ".join(f"{name} = {_some(list(listed))}" for name, listed in values.items())
    n = len(configurations)
    return f"{n:,} {'configuration' if n == 1 else 'configurations'}: {axes}"


def _some(values: Sequence[str]) -> str:
    if len(values) <= 2 * _SHOWN:
        return " | ".join(values)
    return f"{' | '.join(values[:_SHOWN])} and {len(values) - _SHOWN} more"


def _values(values: list[str]) -> str:
    return " | ".join(map(toml_value, values))


def _official(name: str, info: DatasetInfo) -> str:
    """Describe how official test sets limit the number of repeats."""
    if info.n_test_sets == 1:
        return f"{name}: the official test set makes one repeat"
    text = f"{name}: {info.n_test_sets:,} official test sets make as many repeats at most"
    if info.largest_test > info.n_test:
        text += (
            f"; each has {info.n_test:,} rows, drawn from those of larger ones (up to "
            f"{info.largest_test:,})"
        )
    return text


def _groups(name: str, info: DatasetInfo) -> str:
    """Describe the groups of rows that are kept together, and the resulting test set size."""
    count, least, median, most = info.group_sizes
    rows = f"{least:,} rows" if least == most else f"{least:,} to {most:,} rows (median {median:,})"
    text = f"{name}: {count:,} groups of {rows} are never split"
    if info.n_test_asked is not None:
        asked = f"no groups have {info.n_test_asked:,} together"
        text += f"; test sets have {info.n_test:,} of {info.n_samples:,} rows, as {asked}"
    return text
