"""The sweep file: its schema, its defaults, and reading it.

Types are checked here; what the values of datasets, classifiers and schemes mean, `expansion`
asks `jobs`. ``docs/sweep-file.md`` describes every key.
"""

from __future__ import annotations

import math
import tomllib
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
)

from orchestrator.errors import UserError
from orchestrator.grids.schema_errors import key_text, user_error

AXES = (
    "dataset",
    "classifier",
    "train_fraction",
    "perturb_continuous",
    "perturb_categorical",
    "perturb_hparams",
    "hparams",
    "vary",
)
"""What a grid varies: the keys of a ``[[grid]]`` table, and columns of every result."""

_LARGEST = 2**63 - 1  # TOML's whole numbers have 64 bits

Scores = Literal["all", "margin", "none"]
ScoreType = Literal["float32", "float16"]


def _typed(expected: str, *types: type) -> BeforeValidator:
    """Return a check with one message, whatever pydantic would say of each type by itself."""

    def check(value: Any) -> Any:
        if not isinstance(value, types) or isinstance(value, bool):
            raise ValueError(f"must be {expected}")
        return value

    return BeforeValidator(check)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


def _plain_name(value: str) -> str:
    if not value or any(unicodedata.category(letter) in ("Cc", "Cs") for letter in value):
        raise ValueError("a name has one letter or more, and no control characters")
    return value


def _flag(value: Any) -> Any:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _list(value: Any) -> Any:
    if not isinstance(value, list):
        raise ValueError("must be a list")
    if not value:
        raise ValueError("an empty list makes an empty grid")
    return value


def _patterns(value: Any) -> Any:
    """Return what an exclusion gives for one axis as a list."""
    patterns = value if isinstance(value, list) else [value]
    if not patterns or any(
        isinstance(item, bool) or not isinstance(item, str | int | float) for item in patterns
    ):
        raise ValueError("must be a value, a pattern such as 'neighbour:*', or a list of them")
    return patterns


Text = Annotated[StrictStr, _typed("text in quotes", str)]
Whole = Annotated[StrictInt, _typed("a whole number", int)]
Flag = Annotated[StrictBool, BeforeValidator(_flag)]
Number = Annotated[StrictInt | StrictFloat, _typed("a number", int, float), AfterValidator(_finite)]
Name = Annotated[StrictStr | StrictInt, _typed("a name", str, int)]
Repeats = Annotated[Whole, Field(ge=1, le=10_000)]
Runs = Annotated[Whole, Field(ge=1, le=60_000)]
PlainName = Annotated[str, AfterValidator(_plain_name)]
Texts = Annotated[list[Text], BeforeValidator(_list)]
Numbers = Annotated[list[Number], BeforeValidator(_list)]
Patterns = Annotated[list[Any], BeforeValidator(_patterns)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Keep(_Table):
    """What is stored of every prediction; changes no result. Labels are always kept."""

    scores: Scores | None = None
    dtype: ScoreType | None = None
    curves: Flag | None = None

    def over(self, other: Keep) -> Keep:
        """Return these settings, and another's where these say nothing."""
        return Keep(
            scores=self.scores or other.scores,
            dtype=self.dtype or other.dtype,
            curves=other.curves if self.curves is None else self.curves,
        )

    def resolve(self, n_classes: int) -> tuple[Scores, ScoreType]:
        """Return what is kept of a dataset: by default all scores for 3 to 10 classes."""
        default: Scores = "all" if 3 <= n_classes <= 10 else "margin"
        return self.scores or default, self.dtype or "float32"


class Exclusion(_Table):
    """A rule that takes combinations out of a grid: those that match it in every axis it names."""

    dataset: Patterns | None = None
    classifier: Patterns | None = None
    train_fraction: Patterns | None = None
    perturb_continuous: Patterns | None = None
    perturb_categorical: Patterns | None = None
    perturb_hparams: Patterns | None = None
    hparams: Patterns | None = None
    vary: Patterns | None = None

    def patterns(self) -> dict[str, list[Any]]:
        """Return the patterns by axis."""
        return {axis: found for axis in AXES if (found := getattr(self, axis)) is not None}


class Grid(_Table):
    """Every combination of these lists, less what `exclude` takes out."""

    dataset: Texts
    classifier: Texts
    train_fraction: Numbers = [1.0]
    perturb_continuous: Texts = ["none"]
    perturb_categorical: Texts = ["none"]
    perturb_hparams: Texts = ["none"]
    hparams: Texts = ["default"]
    vary: Texts = ["init+batch"]
    exclude: list[Exclusion] = []
    zip: list[list[Text]] = []
    repeats: Repeats | None = None
    runs: Runs | None = None


class Tune(_Table):
    """The random search that ``hparams = ["tuned"]`` asks for."""

    draws: Annotated[Whole, Field(ge=1, le=10_000)] = 100


class Analysis(_Table):
    """Conventions of the analysis, as `analysis.options` has them; changes no prediction."""

    metrics: Annotated[
        list[Annotated[Text, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]],
        BeforeValidator(_list),
    ] = []
    resamples: Annotated[Whole, Field(ge=2, le=1_000_000)] | None = None
    epsilon: Annotated[Number, Field(gt=0, lt=1)] | None = None
    empty_union: Annotated[Number, Field(ge=0, le=1)] | None = None
    alpha_mode: Literal["exact", "paper"] | None = None
    alpha_reference: Literal["others", "half", "loo_ensemble", "ensemble"] | None = None
    max_references: Annotated[Whole, Field(ge=3, le=1_000_000)] | None = None
    probe: Literal["gap", "true_margin"] | None = None
    clip: Annotated[Number, Field(gt=0)] | None = None
    standardise: bool | None = None
    ece_bins: Annotated[Whole, Field(ge=1, le=10_000)] | None = None
    max_pair_runs: Annotated[Whole, Field(ge=0, le=1_000_000)] | None = None


class DatasetTable(BaseModel):
    """A dataset under a name of the file's; what a source takes besides, `jobs` checks."""

    model_config = ConfigDict(extra="allow", frozen=True)

    source: Text | None = None
    classes: dict[str, list[Name]] | None = None
    positive: Name | None = None
    test: (
        Annotated[
            StrictInt | StrictFloat | StrictStr,
            _typed('a share, a number of points or "official"', int, float, str),
        ]
        | None
    ) = None
    keep: Keep = Keep()

    def options(self) -> dict[str, Any]:
        """Return what the table says of the dataset itself, without its source."""
        return {
            key: getattr(self, key)
            for key in (*sorted(self.model_fields_set),)
            if key not in ("source", "keep") and getattr(self, key) is not None
        }


class ClassifierTable(BaseModel):
    """A classifier under a name of the file's; its options, `jobs` checks."""

    model_config = ConfigDict(extra="allow", frozen=True)

    kind: Text | None = None

    def options(self) -> dict[str, Any]:
        """Return the options as the file gives them, without the kind."""
        return dict(self.model_extra or {})


class SweepFile(_Table):
    """A sweep file as the user wrote it, typed and with defaults filled in."""

    name: Annotated[Text, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
    seed: Annotated[Whole, Field(ge=0, lt=2**63)]
    repeats: Repeats = 10
    runs: Runs = 10
    keep: Keep = Keep()
    tune: Tune = Tune()
    analysis: Analysis = Analysis()
    grid: Annotated[list[Grid], BeforeValidator(_list)]
    dataset: dict[PlainName, DatasetTable] = {}
    classifier: dict[PlainName, ClassifierTable] = {}

    def keep_of(self, dataset: str) -> Keep:
        """Return what is kept of a dataset: its own table's settings go before the file's."""
        table = self.dataset.get(dataset)
        return self.keep if table is None else table.keep.over(self.keep)


def _whole_numbers(
    value: Any, location: tuple[int | str, ...] = ()
) -> Iterator[tuple[tuple[int | str, ...], int]]:
    """Yield every whole number of a file with its place."""
    if isinstance(value, dict | list):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in entries:
            yield from _whole_numbers(inner, (*location, key))
    elif isinstance(value, int):
        yield location, value


def read_sweep_file(path: Path) -> SweepFile:
    """Read and check a sweep file.

    Raises
    ------
    UserError
        With the file, the first wrong key, its value and a remedy.
    """
    return load_sweep_file(path)[0]


def load_sweep_file(path: Path) -> tuple[SweepFile, bytes]:
    """Return a checked sweep file, and its text as it lies on disk."""
    try:
        content = path.read_bytes()
    except OSError as error:
        remedy = None
        if path.is_dir():
            remedy = f"this takes the file; a planned sweep goes on with: manyseed resume {path}"
        raise UserError(
            f"cannot read the sweep file: {error.strerror}", file=path, remedy=remedy
        ) from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError("the sweep file is not UTF-8 text", file=path) from None
    return parse_sweep_file(text, path), content


def parse_sweep_file(text: str, path: Path) -> SweepFile:
    """Check the text of a sweep file; `path` is named in messages."""
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also of whole numbers of thousands of digits
        raise UserError(f"not valid TOML: {error}", file=path) from None
    for location, number in _whole_numbers(table):
        if not -_LARGEST <= number <= _LARGEST:
            raise UserError(
                "a whole number lies between -2^63 and 2^63",
                file=path,
                key=key_text(location),
                value=number,
            )
    try:
        return SweepFile.model_validate(table)
    except ValidationError as error:
        raise user_error(error.errors()[0], SweepFile, path) from None
