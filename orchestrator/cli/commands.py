"""The app with all commands, one per verb, whose module is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from manyseed.orchestrator.cli.arguments import (
    Command,
    shown_help,
    with_options,
    without_conversion,
)
from manyseed.orchestrator.cli.unknown import asking_told

_SHOWN = (
    ("Train", "plan", ("init", "plan")),
    ("Train", "train", ("run", "submit")),
    ("Train", "status", ("status", "logs")),
    ("Train", "train", ("resume", "cancel")),
    ("Keep", "keep", ("verify", "export", "import", "rerun")),
    ("Ask", "analyze", ("analyze",)),
    ("Ask", "answers", ("answers",)),
    ("Ask", "query", ("query", "plot")),
    ("Ask", "analyze", ("report", "respond")),
    ("Clusters", "clusters", ("cluster",)),
    ("Help", "guide", ("docs",)),
)
"""Panels, modules and verbs, in the order of the help."""

_HIDDEN = {
    "plan": {
        "datasets": "init --datasets; and for fetch: manyseed plan SWEEP.toml --fetch",
        "drop": "plan DIR --drop SQL",
    },
    "train": {
        "tune": "plan DIR --tune",
        "calibrate": "submit DIR --calibrate",
        "pause": "cancel DIR --pause",
        "throttle": "cancel DIR --throttle N",
    },
    "status": {"show": "status DIR RUN"},
    "keep": {"compact": "verify DIR --compact", "seal": "", "split": "", "merge": ""},
    "answers": dict.fromkeys(("howmany", "compare", "dee", "variance", "methods"), ""),
    "clusters": {"testcluster": "cluster test", "doctor": "cluster check"},
    "guide": {"example": "init --example NAME", "schema": "docs --schema"},
}
"""Verbs by module that the help does not list, and what does the same now unless it is clear."""


class _Verbs(MutableMapping[str, Any]):
    """Commands by verb, made when they are looked up."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}
        self.only_listed = False
        """Whether names, panels and help are enough, so that no options are looked up."""
        self._places = {
            verb: (module, panel, "") for panel, module, verbs in _SHOWN for verb in verbs
        }
        self.shown = [*self._places]
        for module, verbs in _HIDDEN.items():
            self._places |= {verb: (module, "", now) for verb, now in verbs.items()}

    def __getitem__(self, verb: str) -> Any:
        if self.only_listed:
            return _listed(verb, *self._places[verb])
        if verb not in self._made:
            self._made[verb] = _command(verb, *self._places[verb])
        return self._made[verb]

    def __setitem__(self, verb: str, command: Any) -> None:
        self._places[verb], self._made[verb] = ("", "", ""), command

    def __delitem__(self, verb: str) -> None:
        del self._places[verb]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class _Root(TyperGroup):
    """All commands; imports those that are asked for."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = self._verbs = _Verbs()

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the verbs that the help shows, without importing them."""
        return self._verbs.shown

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help; what gives verbs their options is not imported for it."""
        self._verbs.only_listed = True
        super().format_help(ctx, formatter)
        self._verbs.only_listed = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments before the verb."""
        without_conversion(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command of a verb."""
        with asking_told(args):
            return super().resolve_command(ctx, args)


def _listed(verb: str, module: str, panel: str, _now: str) -> Any:
    """Return a command with the help of a verb, without its options."""
    imported = import_module(f"manyseed.orchestrator.cli.{module}")
    if getattr(imported, f"{verb}_app", None):
        return _command(verb, module, panel, "")
    function = getattr(imported, verb, None) or getattr(imported, f"{verb}_")
    return TyperCommand(verb, help=shown_help(function.__doc__ or ""), rich_help_panel=panel)


def _command(verb: str, module: str, panel: str, now: str) -> Any:
    """Return the command, or the group of commands, of a verb; `now` does what a hidden one did."""
    imported = import_module(f"manyseed.orchestrator.cli.{module}")
    parent = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")
    shown: dict[str, Any] = {"rich_help_panel": panel} if panel else {"hidden": True}
    if group := getattr(imported, f"{verb}_app", None):
        parent.add_typer(group, name=verb, **shown)
    else:
        function = getattr(imported, verb, None) or getattr(imported, f"{verb}_")
        with_options(function)
        parent.command(verb, cls=getattr(function, "cls", Command), **shown)(function)
    _explain(parent)
    made = typer.main.get_group(parent).commands[verb]
    for one in (made, *getattr(made, "commands", {}).values()):
        one.now = now
    return made


def _explain(app: typer.Typer) -> None:
    """Give the commands of an app their help, and those of its groups."""
    for one in app.registered_commands:
        one.cls = Command if one.cls in (None, TyperCommand) else one.cls
        one.help = shown_help(one.callback.__doc__ or "") if one.callback else ""
    for group in app.registered_groups:
        if group.typer_instance:
            _explain(group.typer_instance)


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
        from manyseed.orchestrator.cli.guide import begin

        begin(Path())
