"""Predictions of a dataset and classifier, whatever their format: what readers give, one check."""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.axes import LATER
from manyseed.jobs.cells import UNPERTURBED
from manyseed.jobs.checks import Option, quoted, same_spelling
from manyseed.jobs.run import Probability
from manyseed.orchestrator.errors import UserError, given, require_one_of, toml_value
from manyseed.orchestrator.grids.sweepfile import Keep as ArrayFields
from manyseed.orchestrator.importing.classes import MAX_CLASSES, codes, texts
from manyseed.orchestrator.importing.scores import Predicted
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
    `places`: where each run comes from, for messages. `numbered`, `ids`: see `PredictionFile`.
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
    ids: pl.Series | None = None


@dataclass(frozen=True, slots=True)
class PredictionFile:
    """Predictions of one dataset and classifier, read on demand.

    `file`: for messages. `origin`: recorded as the origin: the file's name. `keep` and `dtype`:
    which scores are stored, and their type. `probability`: how scores become probabilities.
    `y_true` and `test_index`, integer arrays (repeat, sample). `runs`: one row per run, in the
    order of positions: `ATTRIBUTES` and `copy` (whether it is a copy of another run of its repeat).
    `read`: takes positions, returns their predictions. `numbered`: whether the file itself numbers
    its runs, instead of their order. `are_classes_seen`: whether the classes are those that occur,
    instead of being named or having scores. `places` and `files`: where each run comes from, for
    messages. `ids`: what its points are called, by `test_index`, if that is text. `is_placed`:
    whether `test_index` numbers points by their places, as the file does not say which they are.
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
    files: Sequence[Path] = ()
    ids: pl.Series | None = None
    is_placed: bool = False

    @property
    def canonical(self) -> dict[str, str]:
        """The description of the dataset: equal test sets make equal datasets."""
        digest = hashlib.sha256(json.dumps(self.class_names).encode())
        for array in (self.y_true, self.test_index):
            digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
        return {"source": "imported", "digest": digest.hexdigest()[:32]}

    def rows(self, repeat: int) -> NDArray[Any]:
        """Return what the points of a test set are called: their ids or numbers (sample,)."""
        index = self.test_index[repeat]
        return index if self.ids is None else self.ids.gather(index).to_numpy()


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
    true = _test_sets(y_true, "y_true", runs, entries.n_samples, file)
    index = _by_place(true) if entries.test_index is None else entries.test_index
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
        y_true=true,
        test_index=_test_sets(index, "test_index", runs, entries.n_samples, file),
        runs=runs,
        read=entries.read,
        numbered="run" in entries.attributes if entries.numbered is None else entries.numbered,
        are_classes_seen=entries.are_classes_seen,
        places=entries.places or _places(file, entries.n_runs),
        files=[file] * entries.n_runs,
        ids=entries.ids,
        is_placed=entries.test_index is None,
    )
    _check(source)
    return source


def _by_place(y_true: NDArray[Any]) -> NDArray[np.int64]:
    """Return numbers of the points of test sets (repeat, sample): their places.

    Test sets with other true classes have other points, so these are numbered on; with equal ones,
    a place is taken as one point.
    """
    places = np.arange(y_true.size).reshape(y_true.shape)
    return places if (y_true != y_true[:1]).any() else places[:1].repeat(len(y_true), axis=0)


def shown_below(files: Sequence[Path]) -> dict[Path, str]:
    """Return what to call each file: its name, or its path below the folder if names are alike."""
    if len({file.name for file in files}) == len({*files}):
        return {file: file.name for file in files}
    top = Path(os.path.commonpath([file.parent for file in files]))
    return {file: file.relative_to(top).as_posix() for file in files}


def _is_below(name: str | None, file: Path) -> bool:
    return name is not None and name != file.name


def placed_below(sources: Sequence[PredictionFile], files: Sequence[Path]) -> list[PredictionFile]:
    """Return arrays whose runs are told by the paths of their files, if names are alike."""
    names = shown_below(files)
    return [
        replace(
            one,
            places=[
                place.removesuffix(of.name) + names[of] if _is_below(names.get(of), of) else place
                for place, of in zip(one.places, one.files, strict=True)
            ],
        )
        for one in sources
    ]


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


TRUTHS = ("y_true", "truth")
"""How a file of true classes in a folder is called."""


def left_out(files: Sequence[Any], options: Sequence[str | Path | None]) -> list[Any]:
    """Return the files but those that are given to an option, maybe by another path."""
    own = {(found.st_dev, found.st_ino) for one in options if one and (found := _found(one))}
    return [
        file
        for file in files
        if not own or not (found := _found(file)) or (found.st_dev, found.st_ino) not in own
    ]


def _found(file: Any) -> os.stat_result | None:
    with suppress(OSError, ValueError, TypeError):
        return Path(file).stat()
    return None


def require_once(named: Sequence[tuple[Path, Names]]) -> None:
    """Refuse a file that is given twice for one classifier: its runs would count twice."""
    seen = set()
    for file, names in named:
        if (place := (file.resolve(), names)) in seen:
            raise UserError("is given twice", file=file, remedy="name each file once")
        seen.add(place)


def sweep_text(sources: Sequence[PredictionFile], directory: Path, repeats: int, runs: int) -> str:
    """Return the text of the sweep file for sources of so many repeats and runs."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", directory.name).lstrip("._-") or "imported"
    lines = [
        "# Made by manyseed import: these predictions were made elsewhere and can't be planned.",
        f"name    = {toml_value(name[:100])}",
        "seed    = 0",
        f"repeats = {min(repeats, 10_000)}",
        f"runs    = {min(runs, 60_000)}",
    ]
    for source in sources:
        lines += grid_lines(source.dataset, source.classifier)
    return "\n".join(lines) + "\n"


def grid_lines(dataset: str, classifier: str) -> list[str]:
    """Return the grid of a dataset and a classifier, as lines of a sweep file."""
    return [
        "",
        "[[grid]]",
        f"dataset    = {toml_value([dataset])}",
        f"classifier = {toml_value([classifier])}",
    ]


def with_told(text: str, told: Iterable[str]) -> str:
    """Return a sweep file's text with what an import warned of, as comments: results repeat it."""
    first, *rest = text.split("\n")
    new = [f"{WARNED}{as_comment(one)}" for one in told]
    return "\n".join([first, *(line for line in new if line not in rest), *rest])


def as_comment(told: str) -> str:
    """Return a text on one line without control characters, which no comment of TOML has."""
    return "".join(filter(str.isprintable, " ".join(told.split())))


def ids_by_group(sources: Sequence[PredictionFile]) -> Iterator[tuple[int, pl.Series]]:
    """Yield the number of each dataset's first source, which is its group's, and points' ids."""
    for dataset in dict.fromkeys(source.dataset for source in sources):
        own = {n: source for n, source in enumerate(sources) if source.dataset == dataset}
        named = [source for source in own.values() if source.ids is not None]
        if named:  # the one with most repeats knows all points
            ids = max(named, key=lambda source: len(source.y_true)).ids
            assert ids is not None
            yield min(own), ids


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
