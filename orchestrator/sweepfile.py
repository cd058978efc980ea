"""The sweep file: its schema, its defaults, and the messages for what is wrong in it.

The values of datasets, classifiers and schemes are checked by `grid`, which asks `jobs`.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
)
from pydantic_core import ErrorDetails

from orchestrator.errors import UserError, nearest, toml_value

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

Scores = Literal["all", "margin", "none"]


def _list(value: Any) -> Any:
    if isinstance(value, list) and not value:
        raise ValueError("an empty list makes an empty grid")
    if isinstance(value, list) and len({repr(item) for item in value}) < len(value):
        raise ValueError("a value stands twice in the list")
    return value


Strings = Annotated[list[StrictStr], BeforeValidator(_list)]
Fractions = Annotated[list[StrictInt | StrictFloat], BeforeValidator(_list)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Keep(_Table):
    """What is stored of every prediction; changes no result. Labels are always kept."""

    scores: Scores | None = None
    dtype: Literal["float32", "float16"] = "float32"

    def resolve(self, n_classes: int) -> Scores:
        """Return what is kept for a dataset: by default all scores for 3 to 10 classes."""
        return self.scores or ("all" if 3 <= n_classes <= 10 else "margin")


class Grid(_Table):
    """Every combination of these lists."""

    dataset: Strings
    classifier: Strings
    train_fraction: Fractions = [1.0]
    perturb_continuous: Strings = ["none"]
    perturb_categorical: Strings = ["none"]
    perturb_hparams: Strings = ["none"]
    hparams: Strings = ["default"]
    vary: Strings = ["init+batch"]


class SweepFile(_Table):
    """A sweep file as the user wrote it, typed and with defaults filled in."""

    name: Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
    seed: Annotated[StrictInt, Field(ge=0, lt=2**63)]
    repeats: Annotated[StrictInt, Field(ge=1, le=10_000)] = 10
    runs: Annotated[StrictInt, Field(ge=1, le=60_000)] = 10
    keep: Keep = Keep()
    grid: Annotated[list[Grid], Field(min_length=1)]
    dataset: dict[str, dict[str, Any]] = {}
    classifier: dict[str, dict[str, Any]] = {}


def read_sweep_file(path: Path) -> SweepFile:
    """Read and check a sweep file.

    Raises
    ------
    UserError
        With the file, the first wrong key, its value and a remedy.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UserError(f"cannot read the sweep file: {reason}", file=path) from None
    return parse_sweep_file(text, path)


def parse_sweep_file(text: str, path: Path) -> SweepFile:
    """Check the text of a sweep file; `path` is named in messages."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"not valid TOML: {error}", file=path) from None
    try:
        return SweepFile.model_validate(table)
    except ValidationError as error:
        raise _user_error(error.errors()[0], path) from None


def _user_error(detail: ErrorDetails, path: Path) -> UserError:
    # pydantic adds the tried types of a union to the location; users know only keys and indices
    location = [
        part for part in detail["loc"] if isinstance(part, int) or re.fullmatch(r"[\w.-]+", part)
    ]
    location = [part for part in location if part not in ("int", "float", "constrained-int")]
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    key = key.removeprefix(".")
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        model = _model_at(location[:-1])
        return UserError(
            "unknown key", file=path, key=key, remedy=nearest(str(location[-1]), model.model_fields)
        )
    if kind == "missing":
        return UserError("this key is missing", file=path, key=key, remedy=f"add {key} = …")
    message = str(context["error"]) if "error" in context else _plain(detail["msg"])
    remedy = None
    if kind == "literal_error":
        message = "not a valid value"
        options = re.findall(r"'([^']*)'", str(context["expected"]))
        remedy = nearest(str(value), options)
    elif kind == "list_type":
        remedy = (
            f"write a list: {toml_value([value])}"
            if not isinstance(value, dict)
            else "write a list"
        )
    elif kind == "string_pattern_mismatch":
        message = "a name has letters, digits, '.', '_' and '-' and begins with a letter or digit"
    return UserError(message, file=path, key=key, value=value, remedy=remedy)


def _plain(message: str) -> str:
    message = message.replace("Input should be", "must be").replace("a valid ", "a ")
    return re.sub(r"a dictionary( or instance of \w+)?", "a table", message)


def _model_at(location: list[int | str]) -> type[BaseModel]:
    if location and location[0] == "grid":
        return Grid
    return Keep if location and location[0] == "keep" else SweepFile
