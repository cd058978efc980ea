"""Arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from manyseed.orchestrator.cli.formats import is_pipe
from manyseed.orchestrator.errors import UserError

if TYPE_CHECKING:
    from rich.text import Text

    from manyseed.orchestrator.sweep import Sweep

Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="The sweep directory.", show_default=False)
]
SweepToml = Annotated[
    Path, typer.Argument(metavar="SWEEP.toml", help="The sweep file.", show_default=False)
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="The sweep directory.", show_default="./<name>"),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A value in the place of the file's, as classifier.mlp.epochs=5; may be repeated.",
        show_default=False,
    ),
]
By = Annotated[
    str,
    typer.Option(
        "--by",
        metavar="COLUMN,…",
        help="Answer together for cells that agree in these, such as dataset,classifier.",
        show_default="each cell by itself",
    ),
]
Only = Annotated[
    str | None,
    typer.Option("--only", metavar="SQL", help="Only these cells: classifier = 'mlp'."),
]


class Command(TyperCommand):
    """A command whose help names its options whole in a narrow terminal."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Break names that there is no room for, where they would be cut."""
        from typer import rich_utils

        for name in ("highlighter", "negative_highlighter"):
            if not isinstance(style := getattr(rich_utils, name), _Breaking):
                setattr(rich_utils, name, _Breaking(style))
        super().format_help(ctx, formatter)


class _Breaking:
    """Styles names as another does, and lets them be broken."""

    def __init__(self, style: Callable[[str], Text]) -> None:
        self.style = style

    def __call__(self, text: str) -> Text:
        found = self.style(text)
        found.overflow = "fold"
        return found


def where_option(meaning: str, completing: Callable[..., list[str]] | None = None) -> Any:
    """Return the option ``--where`` of commands that answer; `meaning` is its help."""
    return typer.Option("--where", "-w", metavar="SQL", help=meaning, autocompletion=completing)


def workers_option(meaning: str, default: str = "the cores this process may use") -> Any:
    """Return the option ``--workers``; `meaning` is its help."""
    return typer.Option("--workers", min=1, help=meaning, show_default=default)


Workers = Annotated[int | None, workers_option("Training processes on this machine; never more.")]
Cluster = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="NAME",
        help="A cluster profile, its file, or local: this machine. auto: where runs were last "
        "submitted to, else SLURM where it is, else this machine.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
OtherRecipe = Annotated[
    bool,
    typer.Option(
        "--other-recipe",
        help="Go on with other versions or another CPU than before; results mark the repeats.",
    ),
]
OwnMetrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric", metavar="MODULE:FUNCTION", help="A metric of your own; may be repeated."
    ),
]


def names(text: str) -> list[str]:
    """Return what stands between commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def whole_numbers(text: str, key: str, example: str) -> list[int]:
    """Return the whole numbers that stand between commas.

    Raises
    ------
    UserError
        Where something else does.
    """
    try:
        return [int(name) for name in names(text)]
    except ValueError:
        remedy = f"such as: {key} {example}"
        raise UserError("no list of whole numbers", key=key, value=text, remedy=remedy) from None


def require_outside(output: Path | None, sweep: Sweep, key: str = "--output") -> None:
    """Refuse to write among the files of a sweep."""
    if output is None or is_pipe(output):
        return
    target, paths = output.resolve(), sweep.paths
    own = (paths.plan, paths.results, paths.tasks, paths.store, paths.sweep_file)
    if any(target.is_relative_to(place.resolve()) for place in own):
        remedy = "write elsewhere: what is there is the sweep's own"
        raise UserError("is among its files", key=key, value=str(output), remedy=remedy)
