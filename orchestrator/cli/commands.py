"""The app with all commands, one per verb."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import typer
from rich.markup import escape

from manyseed.orchestrator.cli.analyze import analyze, report
from manyseed.orchestrator.cli.answers import answers
from manyseed.orchestrator.cli.begin import begin
from manyseed.orchestrator.cli.cancel import cancel
from manyseed.orchestrator.cli.cluster import app as cluster
from manyseed.orchestrator.cli.common import Command
from manyseed.orchestrator.cli.compact import compact
from manyseed.orchestrator.cli.compare import compare
from manyseed.orchestrator.cli.datasets import app as datasets
from manyseed.orchestrator.cli.dee import dee
from manyseed.orchestrator.cli.docs import docs
from manyseed.orchestrator.cli.doctor import doctor
from manyseed.orchestrator.cli.drop import drop
from manyseed.orchestrator.cli.example import example
from manyseed.orchestrator.cli.export import export
from manyseed.orchestrator.cli.howmany import howmany
from manyseed.orchestrator.cli.importing import import_
from manyseed.orchestrator.cli.init import init
from manyseed.orchestrator.cli.logs import logs
from manyseed.orchestrator.cli.pause import pause
from manyseed.orchestrator.cli.plan import plan
from manyseed.orchestrator.cli.plot import plot
from manyseed.orchestrator.cli.query import QueryCommand, query
from manyseed.orchestrator.cli.rerun import rerun
from manyseed.orchestrator.cli.respond import respond
from manyseed.orchestrator.cli.resume import resume
from manyseed.orchestrator.cli.run import run
from manyseed.orchestrator.cli.schema import schema
from manyseed.orchestrator.cli.show import show
from manyseed.orchestrator.cli.status import status
from manyseed.orchestrator.cli.submit import submit
from manyseed.orchestrator.cli.testcluster import app as testcluster
from manyseed.orchestrator.cli.throttle import throttle
from manyseed.orchestrator.cli.tune import tune
from manyseed.orchestrator.cli.variance import variance
from manyseed.orchestrator.cli.verify import verify

__all__ = ["app"]

app = typer.Typer(
    name="manyseed",
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
        begin(Path())


_PANELS = {
    "Train": (
        *(example, init, run, plan, schema, tune, submit, status, logs),
        *(resume, cancel, pause, throttle),
    ),
    "Keep": (verify, compact, export, import_, rerun, drop),
    "Learn": (
        *(respond, analyze, answers, query, howmany, compare, dee),
        *(variance, plot, report, show),
    ),
}
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        _class = QueryCommand if _command is query else Command
        app.command(_command.__name__.rstrip("_"), cls=_class, rich_help_panel=_panel)(_command)
app.command("docs", rich_help_panel="Help")(docs)
app.command("doctor", rich_help_panel="Help")(doctor)
app.add_typer(datasets, name="datasets", rich_help_panel="Data")
app.add_typer(cluster, name="cluster", rich_help_panel="Clusters")
app.add_typer(testcluster, name="testcluster", rich_help_panel="Clusters")


def _help(docstring: str) -> str:
    """Return a docstring as help text that wraps at any width, with markup escaped."""
    text = re.sub(r"(?<=\S)\n(?=\S)", " ", inspect.cleandoc(docstring))
    return escape(re.sub(r"^    (?=\S)", "$ ", text, flags=re.MULTILINE))


for _app in (app, datasets, cluster, testcluster):
    for _registered in _app.registered_commands:
        _registered.cls = _registered.cls or Command
        assert _registered.callback is not None
        _registered.help = _help(_registered.callback.__doc__ or "")
