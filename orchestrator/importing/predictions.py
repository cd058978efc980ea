"""Predictions of a dataset and classifier, whatever their format: what readers give, one check."""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.axes import LATER
from manyseed.analysis.counts import some
from manyseed.jobs.cells import UNPERTURBED
from manyseed.jobs.checks import Option, quoted, same_spelling
from manyseed.jobs.run import Probability
from manyseed.orchestrator.errors import UserError, given, require_one_of
from manyseed.orchestrator.grids.sweepfile import Keep as ArrayFields
from manyseed.orchestrator.importing.classes import Predicted, codes, texts
from manyseed.orchestrator.importing.orders import far_better
from manyseed.orchestrator.paths import WARNED, encode_name
from manyseed.orchestrator.store.schema import GroupSpec, Keep, ScoreType

Positions = NDArray[np.int64]

DEFAULTS: Mapping[str, Any] = {
    **{axis: level for axis, level in UNPERTURBED.items() if axis not in LATER},
    "hparams": "default",
    "vary": "init+batch",
}
"""The attributes that distinguish cells, with their default values."""

ATTRIBUTES: Mapping[str, Option] = {
    **{name: Option(default=value) for name, value in DEFAULTS.items()},
    "train_fraction": Option("Share of the training rows.", float, 1.0, above=0, most=1e12),
    "repeat": Option("The test set.", int, 0, least=0, most=2**15 - 2),  # stored as int16
    "run": Option("The run of its repeat.", int, least=0, most=2**16 - 1),  # and uint16
    "fit_seconds": Option("Time of the fit.", float, least=0, most=1e9, called="seconds"),
}
_TYPES: Mapping[type, Any] = {int: pl.Int64(), float: pl.Float64(), str: pl.String()}
_MAX_WORD = 200  # letters of an attribute's value
_MAX_CLASS_NAME = 1000
MAX_CLASSES = 2**16 - 1
_MAX_POINT = 2**31 - 1
TEST_SETS_BYTES = 2**31 - 2**20  # limit for a chunk that holds all of them


@dataclass(frozen=True, slots=True)
class Names:
    """The names that the user gave for the dataset and the classifier of predictions."""

    dataset: str | None = None
    classifier: str | None = None


@dataclass(frozen=True, slots=True)
class Entries:
    """What a reader gives: the predictions of runs, read on demand, and what is known of them.

    `file`: for messages. `y_true`, array (sample,) or (repeat, sample): names or indices of
    classes. `read`: takes positions, returns their predictions. `attributes`: some of `ATTRIBUTES`
    by name, each a list of values, one per run. `copy`: whether each run is a copy of another run
    of its repeat. `score_type`: type of scores; None for labels alone. `are_probabilities`: whether
    scores are logarithms of probabilities, which softmax recovers. `origin`: recorded as the
    origin; by default the file's name. `are_classes_seen`: whether classes are those that occur.
    `places`: where each run comes from, for messages. `numbered`: see `PredictionFile`.
    """

    file: Path
    names: Names
    class_names: tuple[str, ...]
    n_runs: int
    n_samples: int
    y_true: NDArray[Any]
    read: Callable[[Positions], Predicted]
    attributes: Mapping[str, Any]
    test_index: NDArray[Any] | None = None
    copy: pl.Series | None = None
    epochs: tuple[int, ...] = (0,)
    score_type: ScoreType | None = None
    are_probabilities: bool = False
    origin: str | None = None
    are_classes_seen: bool = False
    places: Sequence[str] = ()
    numbered: bool | None = None


@dataclass(frozen=True, slots=True)
class PredictionFile:
    """Predictions of one dataset and classifier, read on demand.

    `file`: for messages. `origin`: recorded as the origin: the file's name. `keep` and `dtype`:
    which scores are stored, and their type. `probability`: how scores become probabilities.
    `y_true` and `test_index`, integer arrays (repeat, sample). `runs`: one row per run, in the
    order of positions: `ATTRIBUTES` and `copy` (whether it is a copy of another run of its repeat).
    `read`: takes positions, returns their predictions. `numbered`: whether the file itself numbers
    its runs, instead of their order. `are_classes_seen`: whether the classes are those that occur,
    instead of being named or having scores. `places`: where each run comes from, for messages.
    """

    file: Path
    origin: str
    dataset: str
    classifier: str
    class_names: tuple[str, ...]
    epochs: tuple[int, ...]
    keep: Keep
    dtype: ScoreType
    probability: Probability
    y_true: NDArray[np.integer[Any]]
    test_index: NDArray[np.integer[Any]]
    runs: pl.DataFrame
    read: Callable[[Positions], Predicted]
    numbered: bool = True
    are_classes_seen: bool = False
    places: Sequence[str] = ()

    @property
    def canonical(self) -> dict[str, str]:
        """The description of the dataset: equal test sets make equal datasets."""
        digest = hashlib.sha256(json.dumps(self.class_names).encode())
        for array in (self.y_true, self.test_index):
            digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
        return {"source": "imported", "digest": digest.hexdigest()[:32]}


@contextmanager
def unheard() -> Iterator[None]:
    """Hide what polars' threads print on standard error about a damaged file: an error tells it."""
    try:
        kept = os.dup(2)
    except OSError:  # there is none
        yield
        return
    try:
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def unreadable(file: Path, what: str, error: BaseException, key: str | None = None) -> UserError:
    """Return the error for a file of which a library could not make `what`, in our own words."""
    if isinstance(error, MemoryError):
        reason = "needs more memory than there is"
    elif isinstance(error, OSError) and error.strerror:
        reason = f"cannot be read: {error.strerror}"
    else:
        reason = f"is damaged, or is not {what}"
    return UserError(reason, file=file, key=key, remedy="copy it again, or write it anew")


def require_apart(sources: Sequence[PredictionFile], known: Mapping[str, Iterable[str]]) -> None:
    """Refuse names of datasets and classifiers of which two only look the same.

    `known`: the names that there are already, by "dataset" and "classifier".
    """
    for key in ("dataset", "classifier"):
        names = {*known.get(key, ())}
        for source in sources:
            require_spelt([getattr(source, key)], key, source.file, names)
            names.add(getattr(source, key))


def require_spelt(words: Iterable[str], key: str, file: Path, known: Collection[str] = ()) -> None:
    """Refuse words of which two only look the same, unless both are known already."""
    for same in same_spelling({*words, *known}):
        if not {*same} <= {*known}:
            shown = " and ".join(map(quoted, same))
            remedy = "write each in one way"
            raise UserError(f"{shown} only look the same", file=file, key=key, remedy=remedy)


def prediction_file(entries: Entries, probability: Probability) -> PredictionFile:
    """Check what a reader gave, and return it as predictions that a sweep can hold."""
    file, class_names = entries.file, entries.class_names
    runs = attributes(entries.attributes, entries.n_runs, file)
    if entries.copy is not None:
        runs = runs.with_columns(copy=entries.copy)
    y_true = codes(np.asarray(entries.y_true), class_names, "y_true", file)
    index = np.arange(entries.n_samples) if entries.test_index is None else entries.test_index
    source = PredictionFile(
        file=file,
        origin=entries.origin or file.name,
        dataset=entries.names.dataset or file.stem,
        classifier=entries.names.classifier or "imported",
        class_names=class_names,
        epochs=entries.epochs,
        keep="none" if entries.score_type is None else ArrayFields().resolve(len(class_names))[0],
        dtype=entries.score_type or "float32",
        probability="softmax"
        if entries.are_probabilities and probability == "ovr"
        else probability,
        y_true=_test_sets(y_true, "y_true", runs, entries.n_samples, file),
        test_index=_test_sets(index, "test_index", runs, entries.n_samples, file),
        runs=runs,
        read=entries.read,
        numbered="run" in entries.attributes if entries.numbered is None else entries.numbered,
        are_classes_seen=entries.are_classes_seen,
        places=entries.places or _places(file, entries.n_runs),
    )
    _check(source)
    return source


def _places(file: Path, n_runs: int) -> list[str]:
    return [file.name] if n_runs == 1 else [f"run {run} of {file.name}" for run in range(n_runs)]


def _test_sets(
    values: NDArray[Any], key: str, runs: pl.DataFrame, n_samples: int, path: Path
) -> NDArray[Any]:
    """Return values of test points as (repeat, sample)."""
    repeats = int(runs["repeat"].to_numpy().max()) + 1
    if values.shape == (n_samples,):
        return np.broadcast_to(values, (repeats, n_samples))
    if values.shape != (repeats, n_samples):
        noun = "repeat" if repeats == 1 else "repeats"
        raise UserError(
            f"has shape {values.shape}; predictions of {n_samples:,} points in {repeats} {noun} "
            f"need ({n_samples},) or ({repeats}, {n_samples})",
            file=path,
            key=key,
        )
    return values


def _check(source: PredictionFile) -> None:
    """Refuse predictions that a sweep can't hold, before anything is written."""

    def refuse(key: str, message: str, value: object = None, remedy: str | None = None) -> NoReturn:
        shown = {} if value is None else {"value": value}
        raise UserError(message, file=source.file, key=key, remedy=remedy, **shown)

    for key, name in (("dataset", source.dataset), ("classifier", source.classifier)):
        if not name or not _is_plain(name):
            remedy = f"give another with --{key} NAME"
            refuse(key, "a name must not be empty or have control characters", name, remedy)
        try:
            encode_name(name)
        except ValueError as error:
            refuse(key, str(error), name, f"give another with --{key} NAME")
    if not 2 <= len(source.class_names) <= MAX_CLASSES:
        refuse("class_names", f"there are {len(source.class_names):,} classes, not 2 to 65,535")
    for name in source.class_names:
        if not 1 <= len(name) <= _MAX_CLASS_NAME or not _is_plain(name):
            limits = f"1 to {_MAX_CLASS_NAME} letters and no control characters"
            refuse("class_names", f"a class may have {limits}", name)
    epochs = source.epochs
    if list(epochs) != sorted(set(epochs)) or not 0 <= epochs[0] <= epochs[-1] <= _MAX_POINT:
        refuse("epoch", "epochs must be increasing whole numbers from 0")
    for key, values in (("y_true", source.y_true), ("test_index", source.test_index)):
        if values.dtype.kind not in "iub" or values.ndim != 2 or not values.size:
            refuse(key, f"has dtype {values.dtype}; whole numbers are needed")
        most = len(source.class_names) - 1 if key == "y_true" else _MAX_POINT
        if not 0 <= int(values.min()) <= int(values.max()) <= most:
            refuse(key, f"goes from {values.min()} to {values.max()}, not from 0 to {most:,}")
    if source.y_true.shape != source.test_index.shape:
        refuse("test_index", f"has shape {source.test_index.shape}, not {source.y_true.shape}")
    for repeat, index in enumerate(source.test_index):
        places, counts = np.unique(index, return_counts=True)
        if (counts > 1).any():
            refuse(
                "test_index",
                f"names the point {places[counts > 1][0]} twice in repeat {repeat}",
                remedy="give each point of a test set a number of its own, or leave test_index out",
            )
    if 8 * source.y_true.size > TEST_SETS_BYTES:
        shape = " × ".join(f"{n:,}" for n in source.y_true.shape)
        refuse("repeat", f"{shape} (repeats × points) are more test sets than a sweep can hold")


def _is_plain(text: str) -> bool:
    return not any(unicodedata.category(letter) in ("Cc", "Cs") for letter in text)


def attributes(given: Mapping[str, Any], n_runs: int, file: Path) -> pl.DataFrame:
    """Return the attributes of each run, with defaults filled in."""
    for name, values in given.items():
        require_one_of(name, ATTRIBUTES, "not an attribute of a run", file=file)
        if np.ndim(values) != 1:
            raise UserError("is not a list of values, one per run", file=file, key=name)
        if len(values) != n_runs:
            raise UserError(
                f"has {len(values):,} values, but there are {n_runs:,} runs", file=file, key=name
            )
    columns = {
        name: pl.Series(name, _plain(given[name], name, file))
        if name in given
        else pl.repeat(value, n_runs, eager=True).alias(name)
        for name, value in {"repeat": 0, "fit_seconds": None, **DEFAULTS}.items()
    }
    frame = pl.DataFrame(columns)
    cell = [*DEFAULTS, "repeat"]
    numbers = (
        pl.Series(_plain(given["run"], "run", file))
        if "run" in given
        else pl.int_range(pl.len()).over(cell)
    )
    frame = frame.with_columns(run=numbers, copy=pl.lit(False))
    frame = _typed(frame, file)
    duplicates = frame.filter(pl.struct(*cell, "run").is_duplicated())
    if not duplicates.is_empty():
        repeat, run = duplicates.select("repeat", "run").row(0)
        raise UserError(
            f"repeat {repeat}, run {run} occurs twice in one cell",
            file=file,
            remedy="number the runs of a repeat with the attribute run",
        )
    return frame


def _typed(frame: pl.DataFrame, file: Path) -> pl.DataFrame:
    for name, option in ATTRIBUTES.items():
        try:
            frame = frame.with_columns(pl.col(name).cast(_TYPES[option.kind]))
        except pl.exceptions.PolarsError:
            raise UserError("must be numbers", file=file, key=name) from None
        if name == "fit_seconds":
            frame = frame.with_columns(pl.col(name).fill_nan(None))
        elif frame[name].has_nulls():
            raise UserError("has missing values", file=file, key=name)
        if option.kind is str:
            _check_words(frame[name].unique(), name, file)
            continue
        ordered = frame[name].drop_nulls().sort()  # NaN is last
        for end in (*ordered.head(1), *ordered.tail(1)):
            given(name, end, option, file=file)
    return frame.select(*ATTRIBUTES, "copy")


def _check_words(words: pl.Series, name: str, file: Path) -> None:
    """Refuse invalid words, and more different ones than the store can number in int16."""
    for word in words:
        if not word or any(letter.isspace() for letter in word):
            raise UserError("must not be empty or have spaces", file=file, key=name, value=word)
        if len(word) > _MAX_WORD or not _is_plain(word):
            message = f"must have at most {_MAX_WORD} letters, and no control characters"
            raise UserError(message, file=file, key=name, value=word)
    require_spelt(words, name, file)
    if len(words) > 2**15 - 1:
        raise UserError(f"has {len(words):,} different values, too many", file=file, key=name)


def _plain(values: Any, key: str, file: Path) -> Any:
    array = np.asarray(values)
    return texts(array, key, file).tolist() if array.dtype.kind in "US" else values


_SEED = re.compile(
    r"(?:^|[\W_]+)(?:(?:random|model)?[\W_]*(?:seeds?|runs?|reps?|repeats?|trials?|folds?|s|r))?"
    r"[\W_]*[0-9]*$",
    re.IGNORECASE,
)


def common_name(files: Sequence[Path]) -> str:
    """Return what to call files of one dataset: what their names share but for the seed.

    Or else their folder.
    """
    start, end = shared_ends([file.stem for file in files])
    kept = _SEED.sub("", start) or end.strip("-_. ")
    return kept or files[0].resolve().parent.name or "imported"


_NUMBERED = re.compile(
    r"(?P<kind>.+?)(?P<form>(?:[\W_]+(?:(?:random|model)?[\W_]*(?:seeds?|runs?|reps?|repeats?|trials?"
    r"|folds?|s|r))?[\W_]*)?)[0-9]+(?P<rest>[^0-9]*)",
    re.IGNORECASE,
)


def models_of(files: Sequence[Path]) -> tuple[str, dict[str, int]]:
    """Return the pattern of numbered files' paths, and how many begin with each name before it.

    The pattern has ``{classifier}`` for the names if there are several; "" if there is none.
    """
    top = os.path.commonpath([file.absolute().parent for file in files])
    paths = [file.absolute().relative_to(top).as_posix() for file in files]
    found = [each for path in paths if (each := _NUMBERED.fullmatch(path))]
    forms = {f"{each['form']}{{run}}{each['rest']}" for each in found}
    counts = Counter(each["kind"] for each in found)
    if len(found) < len(paths) or len(forms) > 1 or any("/" in name for name in counts):
        return "", {}
    named = "{classifier}" if len(counts) > 1 else next(iter(counts))
    return f"{named}{forms.pop()}", dict(counts)


def shared_ends(names: Iterable[str]) -> tuple[str, str]:
    """Return how all names begin, and how they end after that."""
    first, last = min(names := [*names]), max(names)
    start = _shared(first, last)
    backwards = [name[len(start) :][::-1] for name in names]
    return start, _shared(min(backwards), max(backwards))[::-1]


def _shared(one: str, other: str) -> str:
    differ = (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return one[: next(differ, len(one))]


def with_told(text: str, told: Iterable[str]) -> str:
    """Return a sweep file's text with what an import warned of, as comments: results repeat it."""
    first, *rest = text.split("\n")
    plain = ("".join(filter(str.isprintable, " ".join(one.split()))) for one in told)
    new = [f"{WARNED}{one}" for one in plain]  # TOML has no control characters in comments
    return "\n".join([first, *(line for line in new if line not in rest), *rest])


def require_last_of_classes(shape: tuple[int, ...], y_true: NDArray[Any], file: Path) -> None:
    """Refuse scores taken as (run, sample, class) of which the first axis may be the classes."""
    n, (first, _, last) = len(np.unique(y_true)), shape
    if first == n != last:
        raise UserError(
            f"may hold {first} runs of {last} classes, or {last} runs of {n}, as y_true has",
            file=file,
            key="scores",
            remedy="save it as (run, sample, class), or name all classes with class_names",
        )


_MOST_POINTS = 5000  # that are looked at for other axes
_MOST_BYTES = 2**27
_AXES = ("run", "sample", "class")


def require_axes(
    array: Any, given: Mapping[str, Any], key: str, class_names: Sequence[str], file: Path
) -> None:
    """Refuse arrays that fit the truth far better with other axes, which their lengths allow.

    `array`: (run, sample, class) of scores, or (run, sample) of labels or scores, read by
    positions. `given`: `y_true`, and maybe `repeat` and `class_names`.
    """
    truth = codes(np.asarray(given["y_true"]), class_names, "y_true", file)
    truth = truth[0] if truth.ndim == 2 and len(truth) == 1 else truth
    if truth.ndim == 2 and np.shape(given.get("repeat", ())) == array.shape[:1]:
        repeat = np.asarray(given["repeat"])
        if repeat.dtype.kind not in "iu" or not 0 <= repeat.min() <= repeat.max() < len(truth):
            return  # refused later
        truth = truth[repeat]
    if truth.shape in (array.shape[1:2], array.shape[:2]):
        n_classes = len(class_names) if "class_names" in given else len(np.unique(truth))
        _require_axes(array, truth, key, n_classes, file)


def _require_axes(
    array: Any, truth: NDArray[np.integer[Any]], key: str, n_classes: int, file: Path
) -> None:
    """Do so for the truth (sample,), or (run, sample); the last axis may have so many classes."""
    shape = array.shape
    if array.dtype.itemsize * np.prod(shape, dtype=float) > _MOST_BYTES:
        return
    orders = [
        order
        for order in [*permutations(range(len(shape)))][1:]
        if shape[order[1]] == shape[1]
        and (len(shape) == 2 or shape[order[2]] in (shape[2], n_classes))
        and (truth.ndim == 1 or shape[order[0]] == shape[0])
    ]
    if not orders:
        return
    whole = array[np.arange(shape[0])]
    points = np.linspace(0, shape[1] - 1, min(shape[1], _MOST_POINTS)).astype(np.intp)

    def right(order: Sequence[int]) -> NDArray[Any]:
        values = whole.transpose(order)[:, points]
        if key == "scores":
            values = values.argmax(axis=2) if values.ndim == 3 else values >= 0
        return np.asarray(values == truth[..., points])

    given = right(range(len(shape)))
    for order in orders:
        other = right(order)
        n_runs = min(len(given), len(other))
        truths = np.broadcast_to(truth[..., points], given.shape)[:n_runs]
        parts = given[:n_runs].ravel(), other[:n_runs].ravel()
        if (recalls := far_better(truths.ravel(), *parts, n_runs)) is not None:
            asked = ", ".join(_AXES[: len(shape)])
            read = ", ".join(_AXES[order.index(axis)] for axis in range(len(shape)))
            raise UserError(
                f"has shape {shape}: as ({asked}) its mean recall is {recalls[0]:.2f}, as ({read}) "
                f"{recalls[1]:.2f}",
                file=file,
                key=key,
                remedy=f"save {key}.transpose{order}",
            )


_SHOWN = 10  # rows in a message


def rows_alone(first: PredictionFile, source: PredictionFile) -> str:
    """Return which rows one of two sources lacks."""
    rows = [str(row) for row in np.setxor1d(source.test_index[0], first.test_index[0])]
    are = "is" if len(rows) == 1 else "are"
    return f" (row_id {some(rows, _SHOWN)} {are} in one of them alone)" if rows else ""


def where_unlike(first: PredictionFile, source: PredictionFile) -> str:
    """Return in how many points two sources differ, and how in the first."""
    n = min(len(first.y_true), len(source.y_true))
    if not np.array_equal(first.test_index[:n], source.test_index[:n]):
        return rows_alone(first, source)
    repeats, points = np.nonzero(first.y_true[:n] != source.y_true[:n])
    at = repeats[0], points[0]
    one, other = (each.class_names[each.y_true[at]] for each in (source, first))
    return (
        f" in {len(points):,} of {n * first.y_true.shape[1]:,} points: the true class is "
        f"{quoted(one)} in row {source.test_index[at]}, not {quoted(other)}"
    )


def merged(parts: Sequence[tuple[NDArray[np.bool_], NDArray[Any] | None]]) -> NDArray[Any] | None:
    """Combine parts, each given as a mask of its rows in the result and their values."""
    if len(parts) == 1 or parts[0][1] is None:
        return parts[0][1]
    arrays = [(chosen, values) for chosen, values in parts if values is not None]
    rows = len(arrays[0][0])
    dtype = np.result_type(*(values.dtype for _, values in arrays))
    result = np.empty((rows, *arrays[0][1].shape[1:]), dtype=dtype)
    for chosen, values in arrays:
        result[chosen] = values
    return result


def forms(source: PredictionFile, spec: GroupSpec) -> Iterator[tuple[str, str, str]]:
    """Yield each property of form by name, as the source and as the group have it."""
    kept = {"none": "labels alone"}
    yield "scores", kept.get(source.keep, source.keep), kept.get(spec.scores, spec.scores)
    if source.keep != "none":
        yield "dtype", source.dtype, spec.dtype
        yield "probability", source.probability, spec.probability
    yield "epochs", str([*source.epochs]), str([*spec.epochs])
