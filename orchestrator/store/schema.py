"""The layout of a group: its arrays, their shards and chunks, and its attributes.

Frozen as `LAYOUT_VERSION`; ``docs/store.md`` describes it for other readers and writers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from manyseed.jobs.run import Probability
from manyseed.orchestrator.errors import LayoutTooNew, StoreError
from manyseed.orchestrator.paths import encode_name
from manyseed.orchestrator.store.arrays import (
    FLAGS,
    LATER_FLAGS,
    ArrayFields,
    ArraySpec,
    arrays_of,
    itemsize,
    label_dtype,
    method_of,
)
from manyseed.orchestrator.store.coordinates import (
    DECLARED,
    PARAMETERS,
    RESPONSE,
    Coordinate,
    OptionalArray,
    UnknownArray,
)

if TYPE_CHECKING:
    from manyseed.jobs.response import ResponseDesign

LAYOUT_VERSION = 3
"""The highest version that can be read. Groups that keep parameters of some runs only have layout
3; others with optional arrays, or with `GroupSpec.ensembling`, 2; all others 1."""
ATTRIBUTE = "manyseed"

COORDINATE_ROWS = 2**16

_NESTED = ("response", "parameters")
"""Fields that hold JSON as text, and are nested JSON in a group's attributes."""
_TEXTS = ("ensembling", "parameters_where", *_NESTED)
_LATER = ("curves", "optional", "coordinates", *_TEXTS)

Keep = Literal["all", "margin", "none"]
ScoreType = Literal["float32", "float16"]


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """What is fixed when a group, the runs of one dataset and classifier, is created."""

    number: int  # identifies the group in journals; unique in a store
    dataset: str
    classifier: str  # names as in the sweep file; percent-encoded, they form the group's path
    samples: int  # points in a test set
    class_names: tuple[str, ...]  # with two classes, class 1 is the positive one
    epochs: tuple[int, ...]  # epochs trained at each snapshot; (0,) for a classifier without epochs
    scores: Keep  # what is stored besides labels
    dtype: ScoreType  # dtype of stored scores, margins and confidences
    probability: Probability  # how scores become probabilities
    shard_length: int
    chunk_length: int
    """Runs published together, and runs read together; the first is a multiple of the second."""
    split_length: int  # repeats in one chunk of `y_true` and `test_index`
    curves: bool = False
    """Whether learning curves are kept: a number for each epoch up to the last snapshot."""
    optional: tuple[OptionalArray, ...] = ()
    """Further arrays, in the order in which they are stored."""
    coordinates: tuple[Coordinate, ...] = ()
    """Coordinates of the dimensions that only those arrays have."""
    ensembling: str = ""
    """Cells with the axes of `arrays.LATER_FLAGS` have separate groups: their ensembling method or
    ``none``, followed by suffixes (`arrays.SEEN`). Empty for other groups."""
    response: str = ""
    """Which response curves are measured: a `ResponseDesign` as JSON, or empty."""
    parameters: str = ""
    """If `optional` contains parameters, which arrays the models have: a list of
    `jobs.parameters.ModelArrays` as JSON. Otherwise empty."""
    parameters_where: str = ""
    """The runs whose parameters are kept: an SQL condition (`plans.keptmodels`). Empty for all."""

    def __post_init__(self) -> None:
        for name, kind in (("scores", Keep), ("dtype", ScoreType), ("probability", Probability)):
            if getattr(self, name) not in get_args(kind):
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; there are {', '.join(get_args(kind))}"
                )
        if len(self.class_names) < 2:
            raise ValueError(f"a classifier needs two classes, got {self.class_names!r}")
        if not self.epochs or list(self.epochs) != sorted(set(self.epochs)):
            raise ValueError(f"epochs must rise, got {self.epochs!r}")
        if self.curves and self.epochs[-1] == 0:
            raise ValueError(f"{self.classifier} has no epochs, so no learning curves")
        if min(self.samples, self.chunk_length, self.shard_length, self.split_length) < 1:
            raise ValueError(f"a group needs at least one sample, row and repeat: {self!r}")
        if self.shard_length % self.chunk_length:
            raise ValueError(
                f"a shard of {self.shard_length} is no multiple of a chunk of {self.chunk_length}"
            )
        self._check_optional()

    def _check_optional(self) -> None:
        names = [array.name for array in self.arrays]
        if len(set(names)) < len(names):
            raise ValueError(f"two of these arrays have the same name: {', '.join(names)}")
        lengths = self._lengths(1, 1)
        for array in self.optional:
            for dim, length in zip(array.dims, array.shape, strict=True):
                if lengths.setdefault(dim, length) != length:
                    raise ValueError(f"{array.name} has {dim} {length}, others {lengths[dim]}")
        own = {dim: lengths[dim] for dim in lengths.keys() - self._lengths(1, 1).keys()}
        for coordinate in self.coordinates:
            for dim, length in zip(coordinate.declared.dims, coordinate.shape, strict=True):
                if own.get(dim) != length:
                    raise ValueError(f"{coordinate.name} has {dim} {length}, arrays {own.get(dim)}")

    @property
    def path(self) -> str:
        """Path of the group inside the store."""
        return f"{encode_name(self.dataset)}/{encode_name(self.named)}"

    @property
    def named(self) -> str:
        """The classifier, followed by ``~`` and `ensembling` if the group has it."""
        return own_name(self.classifier, self.ensembling)

    @property
    def method(self) -> str:
        """The ensembling method's name, or ``none``."""
        return method_of(self.ensembling) or "none"

    @property
    def flags(self) -> tuple[str, ...]:
        """Names of the coordinates that hold codes for words."""
        if not self.ensembling:
            return FLAGS
        return (*FLAGS, *(name for name, mark in LATER_FLAGS.items() if mark in self.ensembling))

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def score_name(self) -> str | None:
        """Name of the array that holds scores or margins; None if neither is kept."""
        return {"all": "score", "margin": "margin", "none": None}[self.scores]

    @property
    def has_confidence(self) -> bool:
        """Whether the confidence of the predicted class is stored with the margin."""
        return self.scores == "margin" and self.n_classes > 2

    @property
    def has_clipped(self) -> bool:
        """Whether values beyond the range of float16 are counted."""
        return self.dtype == "float16" and self.scores != "none"

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the optional arrays measured for every trained model, without `response`."""
        names = (array.name for array in self.optional)
        return tuple(name for name in names if DECLARED[name].keep != RESPONSE)

    def measures_of(self, *, models: bool) -> tuple[str, ...]:
        """Return a run's `measures`, without parameters unless its model is kept (`models`)."""
        return tuple(name for name in self.measures if models or name != PARAMETERS.name)

    @property
    def asked(self) -> ResponseDesign | None:
        """Which response curves are measured, if any."""
        if not self.response:
            return None
        from manyseed.jobs.response import ResponseDesign

        return ResponseDesign.from_attributes(json.loads(self.response))

    @property
    def arrays(self) -> tuple[ArraySpec, ...]:
        """All arrays, published ones in the order in which their files are replaced."""
        return arrays_of(
            ArrayFields(
                n_classes=self.n_classes,
                scores=self.scores,
                dtype=self.dtype,
                probability=self.probability,
                has_clipped=self.has_clipped,
                curves=self.curves,
                optional=self.optional,
                coordinates=self.coordinates,
                flags=self.flags,
                parameters=self.parameters,
                parameters_where=self.parameters_where,
            )
        )

    def of_role(self, *roles: str) -> list[ArraySpec]:
        """Return the arrays of these roles, in the order of `arrays`."""
        return [array for array in self.arrays if array.role in roles]

    def array(self, name: str) -> ArraySpec:
        """Return one array's description."""
        return next(array for array in self.arrays if array.name == name)

    def shape(self, array: ArraySpec, rows: int, repeats: int) -> tuple[int, ...]:
        """Return the shape of an array in a group with this many rows and repeats."""
        return tuple(self._length(dim, rows, repeats) for dim in array.dims)

    def shards(self, array: ArraySpec) -> tuple[int, ...]:
        """Return the shape that one file of an array holds."""
        run = COORDINATE_ROWS if array.role == "coordinate" else self.shard_length
        return tuple(self._length(dim, run, self.split_length) for dim in array.dims)

    def chunks(self, array: ArraySpec) -> tuple[int, ...]:
        """Return the shape that is compressed, checked and read together."""
        shards = self.shards(array)
        return (self.chunk_length, *shards[1:]) if array.role == "prediction" else shards

    def _length(self, dim: str, run: int, repeat: int) -> int:
        lengths = self._lengths(run, repeat)
        for array in self.optional:
            lengths |= dict(zip(array.dims, array.shape, strict=True))
        return lengths[dim]

    def _lengths(self, run: int, repeat: int) -> dict[str, int]:
        """Return the lengths of the dimensions that every group has."""
        return {
            "run": run,
            "repeat": repeat,
            "epoch": len(self.epochs),
            "trained_epoch": self.epochs[-1],
            "sample": self.samples,
            "class": self.n_classes,
        }

    def part_shape(self, array: ArraySpec) -> tuple[int, ...]:
        """Return the shape of one row of a published array."""
        return self.shape(array, 1, 1)[1:]

    @property
    def array_bytes(self) -> dict[str, int]:
        """Bytes of one run in each prediction array, uncompressed as in journals."""
        return {
            array.name: math.prod(self.part_shape(array)) * itemsize(array.dtype)
            for array in self.of_role("prediction")
        }

    @property
    def part_bytes(self) -> tuple[int, int, int, int]:
        """Bytes of one run's labels, scores or margins, confidences, and everything else."""
        sizes = self.array_bytes
        main = sizes["label"], sizes.get(self.score_name or "", 0), sizes.get("confidence", 0)
        return *main, sum(sizes.values()) - sum(main)

    @property
    def row_bytes(self) -> int:
        """Bytes of one run before compression."""
        return sum(self.part_bytes)

    def padded(self, n_runs: int) -> int:
        """Return the rows that `n_runs` take, rounded up to whole shards."""
        return math.ceil(n_runs / self.shard_length) * self.shard_length

    def to_attributes(self) -> dict[str, object]:
        """Return the group's attributes as JSON; fields that came later are absent if empty."""
        fields = asdict(self)
        for field in _LATER:
            if not fields[field]:
                del fields[field]
        for field in _NESTED:
            if text := getattr(self, field):
                fields[field] = json.loads(text)
        layout = 2 if self.optional or self.ensembling else 1
        return {"layout": 3 if self.parameters_where else layout, **fields}

    @classmethod
    def from_attributes(
        cls, value: Mapping[str, Any], where: Path | str = "the predictions"
    ) -> GroupSpec:
        """Read what `to_attributes` returned; `where` it is stored appears in errors."""
        version = value.get("layout")
        if not isinstance(version, int):
            raise StoreError("no layout version, so not a group of manyseed")
        if version > LAYOUT_VERSION:
            raise LayoutTooNew(
                f"{where}: layout version {version} is newer than what this manyseed reads "
                f"({LAYOUT_VERSION}): upgrade manyseed"
            )
        absent = {"curves": False, "optional": [], "coordinates": []}
        value = {**absent, **dict.fromkeys(_TEXTS, ""), **value}
        if missing := [field for field in cls.__dataclass_fields__ if field not in value]:
            raise StoreError(f"{', '.join(missing)} missing: restore the file")
        known = {field: value[field] for field in cls.__dataclass_fields__}
        for field in _NESTED:
            if known[field]:
                known[field] = json.dumps(known[field], sort_keys=True)
        for field in ("class_names", "epochs"):
            known[field] = tuple(known[field])
        try:
            known["optional"] = tuple(map(OptionalArray.from_attributes, known["optional"]))
            known["coordinates"] = tuple(map(Coordinate.from_attributes, known["coordinates"]))
        except UnknownArray as error:
            raise LayoutTooNew(
                f"{where}: this manyseed does not know the array {error.name}: upgrade manyseed"
            ) from None
        _require_types(known)
        spec = cls(**known)
        if spec.to_attributes()["layout"] != version:
            raise StoreError(f"its arrays are not those of layout {version}: restore the file")
        return spec


def _require_types(values: Mapping[str, Any]) -> None:
    """Check the types of attributes."""
    lengths = [values[name] for name in ("shard_length", "chunk_length", "split_length")]
    for number in (values["number"], values["samples"], *lengths, *values["epochs"]):
        if type(number) is not int or not 0 <= number < 2**31:
            raise ValueError(f"{number!r} is not a whole number from 0 to 2^31 - 1")
    for text in (values["dataset"], values["classifier"], *values["class_names"]):
        if not isinstance(text, str) or not text:
            raise TypeError(f"{text!r} is not a name")
    for field in _TEXTS:
        if not isinstance(values[field], str):
            raise TypeError(f"{field} = {values[field]!r} is not text")
    if type(values["curves"]) is not bool:
        raise TypeError(f"curves = {values['curves']!r} is neither true nor false")


def own_name(classifier: str, ensembling: str) -> str:
    """Return a group's name among those of its dataset, such as ``mlp`` or ``mlp~none``."""
    return f"{classifier}~{ensembling}" if ensembling else classifier


_INDEX_BYTES = 16  # per inner chunk in a shard's index


def stored_bytes(
    spec: GroupSpec,
    n_runs: int,
    repeats: int = 1,
    n_models: int | None = None,
    n_chunks: int | None = None,
) -> int:
    """Estimate bytes on disk: labels at their bits, scores uncompressed, the rest at a quarter.

    `n_models` is the number of runs whose parameters are kept, by default all; `n_chunks` that of
    the chunks that hold the runs, by default as few as possible.
    """
    total, bits = 0, (spec.n_classes - 1).bit_length()
    chunks = math.ceil(n_runs / spec.chunk_length) if n_chunks is None else n_chunks
    for array in spec.arrays:
        each = math.prod(spec.shape(array, 1, 1)) * itemsize(array.dtype)
        if array.role == "prediction":
            if array.name == PARAMETERS.name and spec.parameters_where:  # NaN of others compresses
                values = each * (n_runs if n_models is None else n_models)
            elif array.compressed:  # labels, which compress to their bits
                values = each * n_runs * bits // (8 * itemsize(array.dtype))
            else:
                values = each * chunks * spec.chunk_length
            total += values + _INDEX_BYTES * chunks
        elif array.role == "split":
            total += each * repeats
        else:
            total += each * n_runs // 4 + each * n_runs * (array.role == "record")  # kept twice
    return total + 1024 * (len(spec.arrays) + 1)


def count_files(spec: GroupSpec, n_rows: int, repeats: int = 1) -> int:
    """Count files and folders, including the group's folder, of runs and the padding between."""
    # the group's folder and description, the checksums of test sets, and each shard's records again
    total = 3 + math.ceil(n_rows / spec.shard_length)
    for array in spec.arrays:
        shape = spec.shape(array, spec.padded(n_rows), repeats)
        pieces = (math.ceil(n / shard) for n, shard in zip(shape, spec.shards(array), strict=True))
        total += 2 + math.prod(pieces)
    return total


SHARD_RUNS = 1000
SHARD_BYTES = 256 * 10**6  # of one array, which a publisher holds in memory
SPLIT_BYTES = 256 * 10**6  # of one file of test sets, which a worker reads whole to add one
CHUNK_BYTES = 2**20  # smaller inner chunks are several times slower to read
LARGE_CHUNK_BYTES = 2**26
CODEC_BYTES = 2**31 - 2**10  # the compressor's maximum
RECORD_BYTES = 2**32 - 1  # the maximum of one part in a journal record
WASTE = 0.1
"""Maximum number of unused rows in the last inner chunk, as a fraction of the planned runs."""


UNSIZED: Mapping[str, Any] = {"shard_length": 1, "chunk_length": 1, "split_length": 1}
"""Lengths of a group before `planned_group` chooses them."""


def planned_group(spec: GroupSpec, *, repeats: int = 1, runs: int | None = None) -> GroupSpec:
    """Choose the lengths of a group's shards and chunks.

    Shards hold about 1000 runs, or fewer if one array of a shard would exceed 256 MB. Chunks hold
    at least 1 MiB of labels, unless chunks of scores would exceed 64 MiB. If the last chunk would
    be mostly empty with the planned number of runs, chunks are shorter: as long as possible with
    empty rows for at most a tenth of the runs, but at least 1 MiB of the largest array.

    `repeats`: number of test sets. `runs`: number of planned runs.
    """
    points = spec.samples * len(spec.epochs)
    smallest = points * itemsize(label_dtype(spec.n_classes))
    columns = {"all": spec.n_classes, "margin": 1, "none": 0}[spec.scores]
    largest = max(
        smallest, points * columns * itemsize(spec.dtype), *map(_row_bytes, spec.optional)
    )
    index = spec.samples * itemsize("int64")
    if index > CODEC_BYTES or largest > RECORD_BYTES or smallest > CODEC_BYTES:
        raise ValueError(
            f"{spec.samples:,} points in a test set, at {len(spec.epochs):,} snapshots and of "
            f"{spec.n_classes:,} classes, are more than a run can store"
        )
    target = max(1, min(SHARD_RUNS, SHARD_BYTES // largest))
    least = math.ceil(CHUNK_BYTES / largest)
    wanted = min(math.ceil(CHUNK_BYTES / smallest), LARGE_CHUNK_BYTES // largest)
    chunks = max(1, target // max(wanted, least))
    if runs is not None:
        chunks = _fitting(runs, target, chunks, max(1, target // least))
    chunk = round(target / chunks)
    split = max(1, min(repeats, SPLIT_BYTES // index))
    return replace(spec, shard_length=chunks * chunk, chunk_length=chunk, split_length=split)


def _row_bytes(array: OptionalArray) -> int:
    return math.prod(array.shape) * itemsize(array.dtype)


def _fitting(runs: int, shard: int, fewest: int, most: int) -> int:
    """Return the number of chunks in a shard of about `shard` runs, so that few rows stay empty.

    The smallest number within bounds that leaves at most a tenth of `runs` empty; if there is
    none, the one that leaves the fewest.
    """

    def waste(chunks: int) -> int:
        length = round(shard / chunks)
        return math.ceil(runs / length) * length - runs

    # chunk lengths are whole numbers of runs, so many short chunks may miss the shard's length
    numbers = [n for n in range(fewest, most + 1) if abs(round(shard / n) * n - shard) < shard / 20]
    fitting = (n for n in numbers if waste(n) <= WASTE * runs)
    return next(fitting, min(numbers, key=waste, default=fewest))
