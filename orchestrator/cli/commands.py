"""The app with all commands, one per verb, whose module is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from manyseed.orchestrator.cli.common import Command, shown_help, without_conversion

__all__ = ["app"]

_PANELS = {
    "Train": (
        *("example", "init", "run", "plan", "schema", "tune", "submit", "status", "logs"),
        *("resume", "cancel", "pause", "throttle"),
    ),
    "Keep": ("verify", "compact", "export", "import", "rerun", "drop"),
    "Learn": (*("respond", "analyze", "answers", "query", "plot", "report", "show"),),
    "Help": ("docs", "doctor"),
    "Data": ("datasets",),
    "Clusters": ("cluster", "testcluster"),
}
"""The verbs, in the order of the help."""

_MODULES = {"import": "importing", "report": "analyze"}
"""Modules that are not called like their verb."""


_QUESTIONS = ("howmany", "compare", "dee", "variance")
"""Questions that were verbs of their own, and still are: hidden."""


class _Verbs(MutableMapping[str, Any]):
    """Commands by verb, made when they are looked up."""

    def __init__(self) -> None:
        self._panels = {verb: panel for panel, verbs in _PANELS.items() for verb in verbs}
        self._panels |= dict.fromkeys(_QUESTIONS, "")
        self._made: dict[str, Any] = {}

    def __getitem__(self, verb: str) -> Any:
        if verb not in self._made:
            self._made[verb] = _command(verb, self._panels[verb])
        return self._made[verb]

    def __setitem__(self, verb: str, command: Any) -> None:
        self._panels[verb], self._made[verb] = "", command

    def __delitem__(self, verb: str) -> None:
        del self._panels[verb]

    def __iter__(self) -> Iterator[str]:
        return iter(self._panels)

    def __len__(self) -> int:
        return len(self._panels)


class _Root(TyperGroup):
    """All commands; imports those that are asked for."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Verbs()

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the verbs, without importing them."""
        return [verb for verb in self.commands if verb not in _QUESTIONS]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments before the verb."""
        without_conversion(self.get_params(ctx))
        return super().parse_args(ctx, args)


def _command(verb: str, panel: str) -> Any:
    """Return the command, or the group of commands, of a verb."""
    if verb in _QUESTIONS:
        return import_module("manyseed.orchestrator.cli.answers").verb_of(verb)
    module = import_module(f"manyseed.orchestrator.cli.{_MODULES.get(verb, verb)}")
    parent = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")
    if hasattr(module, "app"):
        parent.add_typer(module.app, name=verb, rich_help_panel=panel)
        registered = module.app.registered_commands
    else:
        function = getattr(module, verb, None) or getattr(module, f"{verb}_")
        cls = getattr(module, "QueryCommand", Command)
        parent.command(verb, cls=cls, rich_help_panel=panel)(function)
        registered = parent.registered_commands
    for one in registered:
        one.cls = one.cls or Command
        one.help = shown_help(one.callback.__doc__ or "")
    return typer.main.get_group(parent).commands[verb]


app = typer.Typer(
    name="manyseed",
    cls=_Root,
    help="Train the same classifier thousands of times and learn how much the results vary.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"manyseed {version('manyseed')}")
        raise typer.Exit


@app.callback()
def _main(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    if context.invoked_subcommand is None:
        from manyseed.orchestrator.cli.begin import begin

        begin(Path())
