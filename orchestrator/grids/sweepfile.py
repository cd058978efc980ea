"""The sweep file: its schema and its defaults.

Types are checked here; for the values of datasets, classifiers and schemes, `expansion` asks
`jobs`. ``docs/sweep-file.md`` describes every key.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from datetime import date, time
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

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
    WithJsonSchema,
    create_model,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from manyseed.analysis.axes import AXES
from manyseed.analysis.options import CONVENTIONS, OWN_PATTERN, Convention, check
from manyseed.jobs.checks import Option
from manyseed.jobs.response import OPTIONS as MEASURED

LARGEST = 2**63 - 1
"""The largest integer in TOML, which has 64 bits."""

NAME = Option(
    pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
    called="text in quotes: 1 to 100 letters, digits, '.', '_' and '-', first a letter or digit",
)
"""What names of sweeps look like."""
_OWN_METRIC = Option(pattern=OWN_PATTERN, called='a metric of your own, "module:function"')

Scores = Literal["all", "margin", "none"]
Members = Literal["sizes", "all", "none"]
ScoreType = Literal["float32", "float16"]
SearchData = Literal["whole", "runs"]


def _wrong(message: str, kind: str = "sweep_file") -> PydanticCustomError:
    return PydanticCustomError(kind, message)


def _typed(expected: str, *types: type) -> BeforeValidator:
    """Return a type check with one message, instead of pydantic's messages for each type."""

    def check(value: Any) -> Any:
        if not isinstance(value, types) or isinstance(value, bool):
            raise _wrong(f"must be {expected}")
        return value

    return BeforeValidator(check)


class _By:
    """Has a key's value checked by an `Option`; the value stays as it was given."""

    def __init__(self, option: Option) -> None:
        self.option = option

    def __get_pydantic_core_schema__(self, _: object, __: object) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._checked)

    def __get_pydantic_json_schema__(self, _: object, __: object) -> dict[str, Any]:
        return self.option.schema()

    def _checked(self, value: Any) -> Any:
        self.option.check("", value)
        return value


def _plain_name(value: str) -> str:
    if not value or any(unicodedata.category(letter) in ("Cc", "Cs") for letter in value):
        raise _wrong("a name must not be empty or have control characters")
    return value


def _name(value: Any) -> Any:
    """Check the name of a class; what TOML types otherwise is given back in quotes."""
    if isinstance(value, str | int) and not isinstance(value, bool):
        return value
    if isinstance(value, bool | float | date | time):
        text = str(value).lower() if isinstance(value, bool) else str(value)
        raise _wrong(f'must be a name; write it in quotes, as in the data: "{text}"')
    raise _wrong("must be a name")


def _flag_or_condition(value: Any) -> Any:
    if not isinstance(value, bool | str) or value == "":
        raise _wrong("must be true, false or a condition in quotes")
    return value


def _list(value: Any) -> Any:
    if not isinstance(value, list):
        raise _wrong("must be a list", "list_type")
    if not value:
        raise _wrong("an empty list makes an empty grid")
    return value


def _patterns(value: Any) -> Any:
    """Return an exclusion's patterns for one axis as a list."""
    patterns = value if isinstance(value, list) else [value]
    if not patterns or any(
        isinstance(item, bool) or not isinstance(item, str | int | float) for item in patterns
    ):
        raise _wrong("must be a value, a pattern such as 'neighbour:*', or a list of them")
    return patterns


Text = Annotated[str, _By(Option())]
Flag = Annotated[bool, _By(Option(kind=bool))]
Models = Annotated[
    StrictBool | Annotated[StrictStr, Field(min_length=1)], BeforeValidator(_flag_or_condition)
]
Number = Annotated[int | float, _By(Option(kind=float))]
Name = Annotated[StrictStr | StrictInt, BeforeValidator(_name)]
Repeats = Annotated[int, _By(Option(kind=int, least=1, most=10_000))]
Runs = Annotated[int, _By(Option(kind=int, least=1, most=60_000))]
PlainName = Annotated[str, AfterValidator(_plain_name)]
Texts = Annotated[list[Text], Field(min_length=1), BeforeValidator(_list)]
Numbers = Annotated[list[Number], Field(min_length=1), BeforeValidator(_list)]
_PATTERN = {"type": ["string", "number"]}
Patterns = Annotated[
    list[Any],
    BeforeValidator(_patterns),
    WithJsonSchema(
        {
            "description": "A value, a pattern such as neighbour:*, or a list of these.",
            "anyOf": [_PATTERN, {"type": "array", "items": _PATTERN, "minItems": 1}],
        }
    ),
]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Keep(_Table):
    """What is stored of every prediction; changes no result. Labels are always kept."""

    scores: Annotated[Scores, _By(Option(words=get_args(Scores)))] | None = None
    """A score per class, one number per point, or nothing; by default "all" for 3 to 10 classes."""
    dtype: Annotated[ScoreType, _By(Option(words=get_args(ScoreType)))] | None = None
    """Type of stored scores; "float16" halves the store."""
    curves: Flag | None = None
    """For networks: loss and accuracy after every epoch."""
    train_accuracy: Flag | None = None
    """Accuracy of the final model on the rows that it was fitted on."""
    parameters: Models | None = None
    """For networks and linear models: all arrays of the trained model, of all runs, or of those
    that meet a condition, such as "run_index < 10"."""
    members: Annotated[Members, _By(Option(words=get_args(Members)))] | None = None
    """For ensembling methods: the ensembles of 1, 2, 3, 5, 7, 10, … members (the default if all
    scores are kept, or with two classes), every member, or only the whole ensemble."""

    def over(self, other: Keep) -> Keep:
        """Return these settings, with another's for those that are not set."""
        return Keep(**other.model_dump(exclude_none=True) | self.model_dump(exclude_none=True))

    def members_of(self, n_classes: int) -> Members:
        """Return what is kept of members: by default sizes, if probabilities can be computed."""
        scores = self.resolve(n_classes)[0]
        has_probabilities = scores == "all" or (scores == "margin" and n_classes == 2)
        return self.members or ("sizes" if has_probabilities else "none")

    def resolve(self, n_classes: int) -> tuple[Scores, ScoreType]:
        """Return which scores are kept, and their type: by default all for 3 to 10 classes."""
        default: Scores = "all" if 3 <= n_classes <= 10 else "margin"
        return self.scores or default, self.dtype or "float32"


class Exclusion(_Table):
    """A rule that removes combinations from a grid: those that match it in every axis it names."""

    dataset: Patterns | None = None
    classifier: Patterns | None = None
    train_fraction: Patterns | None = None
    perturb_continuous: Patterns | None = None
    perturb_categorical: Patterns | None = None
    perturb_hparams: Patterns | None = None
    hparams: Patterns | None = None
    vary: Patterns | None = None
    augment: Patterns | None = None
    ensembling: Patterns | None = None
    test_augment: Patterns | None = None
    perturb_labels: Patterns | None = None

    def patterns(self) -> dict[str, list[Any]]:
        """Return the patterns by axis."""
        return {axis: listed for axis in AXES if (listed := getattr(self, axis)) is not None}


class Grid(_Table):
    """Every combination of these lists, except those that `exclude` removes."""

    dataset: Texts
    """Sources such as "sklearn:digits", "suite:NAME", or names of tables [dataset.NAME]."""
    classifier: Texts
    """Classifiers, or names of tables [classifier.NAME]."""
    train_fraction: Numbers = [1.0]
    """Shares of the training part, or numbers of points from 2; 1 is all."""
    perturb_continuous: Texts = ["none"]
    """Noise on continuous features, such as "relative:0.1"."""
    perturb_categorical: Texts = ["none"]
    """Noise on categorical features, such as "value:0.1"."""
    perturb_hparams: Texts = ["none"]
    """Noise on hparams around their anchors, such as "sig-digit:0"."""
    hparams: Texts = ["default"]
    """"default": the anchors; "tuned": what a random search finds; "grid": every combination of the
    classifier's hparam grid; or values such as "lr=0.001,width1=64"."""
    vary: Texts = ["init+batch"]
    """What differs between the runs of a repeat: init, batch, train, joined by "+"; joined by "*",
    every value of each is combined with every value of the others."""
    augment: Texts = ["none"]
    """Random transforms of training images, drawn anew in each epoch, such as "crop-flip:4"."""
    ensembling: Texts = ["none"]
    """Methods that make several members in each training, such as "snapshot", or names of tables
    [ensembling.NAME]; "none": single models, of which deep ensembles are made."""
    test_augment: Texts = ["none"]
    """Random transforms of test images, drawn anew for each member, such as "crop-flip:4"."""
    perturb_labels: Texts = ["none"]
    """Noise on the labels of training rows, such as "flip:0.1"."""
    exclude: list[Exclusion] = []
    """Combinations to leave out."""
    zip: list[list[Text]] = []
    """Lists of axes that go in step."""
    repeats: Repeats | None = None
    """Test sets of each cell of this grid; by default the file's number."""
    runs: Runs | None = None
    """Fits that share a test set, in each cell of this grid; by default the file's number."""


def _by(name: str, option: Option) -> Any:
    """Return the field of an option that `jobs` declares; None where it is not given."""
    before = [BeforeValidator(_list)] if option.kind is list else []
    default = ... if name == "transforms" else None
    return Annotated[Any, _By(option), *before], Field(default, description=option.about)


if TYPE_CHECKING:
    _Measured = _Table
else:
    _Measured = create_model(
        "Measured",
        __base__=_Table,
        **{name: _by(name, option) for name, option in MEASURED.items()},
    )


class Response(_Measured):
    """Response curves of every trained model; changes no prediction."""

    given: Texts | None = None
    """Hparams of the grids that conditional mutual information conditions on; by default all."""
    least_train_accuracy: (
        Annotated[int | float, _By(Option(kind=float, least=0, most=1))] | None
    ) = None
    """Models below it are left out of the results for transforms of images (default: 0.8)."""
    combine: Annotated[bool, _By(Option(kind=bool))] | None = None
    """Whether scores are also combined over intra, inter and layers (default: false)."""

    def options(self) -> Mapping[str, Any]:
        """Return the options of the measurement, without those of its analysis."""
        return self.model_dump(
            exclude={"given", "least_train_accuracy", "combine"}, exclude_none=True
        )


class Tune(_Table):
    """The random search that ``hparams = ["tuned"]`` asks for."""

    draws: Repeats = 100
    """Fits of a search; there is one search for each dataset and classifier."""
    data: Annotated[SearchData, _By(Option(words=get_args(SearchData)))] = "whole"
    """What fits of a search see: their part of the training rows as they are, or data made of it
    as for runs, with a search for each fraction and noise on data."""
    hours: Annotated[int | float, _By(Option(kind=float, above=0))] | None = None
    """Core-hours of a search (with GPUs, their hours) after which no further draw begins."""


class _OwnMetrics(_Table):
    """How results are computed from the predictions; does not change predictions."""

    metrics: Annotated[list[Annotated[str, _By(_OWN_METRIC)]], BeforeValidator(_list)] = []
    """Metrics of your own, "module:function"; computed only if the command names them, too."""


def _convention(name: str, declared: Convention) -> Any:
    """Return the field of a convention; its range is checked where it is declared."""
    kind = {bool: "boolean", int: "integer", float: "number", str: "string"}[declared.kind]
    limits = {"minimum": declared.least, "maximum": declared.most}
    limits |= {"exclusiveMinimum": declared.above, "exclusiveMaximum": declared.below}
    schema: dict[str, object] = {"type": kind} | {
        key: limit for key, limit in limits.items() if limit is not None
    }
    if declared.choices:
        schema = {"enum": list(declared.choices)}
    if declared.own:
        schema = {"anyOf": [schema, {"type": "string", "pattern": OWN_PATTERN}]}
    if declared.several:
        schema = {"type": "array", "items": schema, "minItems": 1, "uniqueItems": True}
    meaning = f"{declared.meaning[0].upper()}{declared.meaning[1:]}"
    return (
        Annotated[Any, AfterValidator(partial(check, name)), WithJsonSchema(schema)],
        Field(None, description=f"{meaning} (default: {declared.default})."),
    )


if TYPE_CHECKING:
    AnalysisTable = _OwnMetrics
else:
    AnalysisTable = create_model(
        "Analysis",
        __base__=_OwnMetrics,
        __doc__=_OwnMetrics.__doc__,
        **{name: _convention(name, declared) for name, declared in CONVENTIONS.items()},
    )


class _OpenTable(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)

    def options(self) -> Mapping[str, Any]:
        """Return the options as the file gives them, without the kind."""
        return dict(self.model_extra or {})


class DatasetTable(_OpenTable):
    """A dataset with a name of its own; `jobs` checks further keys of its source."""

    source: Text | None = None
    """Where the data comes from; by default the table's name."""
    data: Text | None = None
    """Instead of a source, a function of your own that returns the data, "module:name"."""
    classes: dict[str, list[Name]] | None = None
    """Classes to keep or to merge, each with the source's classes that it consists of."""
    positive: Name | None = None
    """Which of two classes has index 1; by default the last."""
    test: (
        Annotated[
            StrictInt | StrictFloat | StrictStr,
            _typed('a share, a number of points or "official"', int, float, str),
        ]
        | None
    ) = None
    """A share (0.25 by default) or a number of points of the test set, or "official"."""
    keep: Keep = Keep()
    """Like the file's table [keep], for this dataset; takes precedence."""

    def options(self) -> Mapping[str, Any]:
        """Return the options of the dataset itself, without its source."""
        return {
            key: getattr(self, key)
            for key in sorted(self.model_fields_set)
            if key not in ("source", "data", "keep") and getattr(self, key) is not None
        }


class ClassifierTable(_OpenTable):
    """A classifier with a name of its own; `jobs` checks its options."""

    kind: Text | None = None
    """The classifier, for a name of your own."""


class EnsemblingTable(_OpenTable):
    """An ensembling method with options of its own, which `jobs` checks."""

    kind: Text | None = None
    """The method, for a name of your own."""


class SweepFile(_Table):
    """A sweep file as the user wrote it, typed and with defaults filled in."""

    name: Annotated[str, _By(NAME)]
    """Name of the sweep, and of its directory if none is given."""
    seed: Annotated[int, _By(Option(kind=int, least=0, most=LARGEST))]
    """Seed of all random streams; another seed makes another sweep."""
    repeats: Repeats = 10
    """Number of test sets."""
    runs: Runs = 10
    """Number of fits that share a test set."""
    keep: Keep = Keep()
    """What is stored of every prediction."""
    tune: Tune = Tune()
    """The random search that "tuned" hparams ask for."""
    response: Response | None = None
    """Response curves of every trained model."""
    analysis: AnalysisTable = AnalysisTable()
    """How results are computed from the predictions."""
    grid: Annotated[list[Grid], Field(min_length=1), BeforeValidator(_list)]
    """Combinations of lists; a file may hold several grids."""
    dataset: dict[PlainName, DatasetTable] = {}
    """Datasets with names of your own, or with options."""
    classifier: dict[PlainName, ClassifierTable] = {}
    """Classifiers with names of your own, or with options."""
    ensembling: dict[PlainName, EnsemblingTable] = {}
    """Ensembling methods with names of your own, or with options."""

    def keep_of(self, dataset: str) -> Keep:
        """Return what is kept of a dataset: the settings of its own table, then the file's."""
        table = self.dataset.get(dataset)
        return self.keep if table is None else table.keep.over(self.keep)
