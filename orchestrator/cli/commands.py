"""All commands: one verb each."""

from __future__ import annotations

import inspect
import re

import typer
from rich.markup import escape

from orchestrator.cli.analyze import analyze, report
from orchestrator.cli.ask import howmany, query
from orchestrator.cli.cluster import app as cluster
from orchestrator.cli.datasets import app as datasets
from orchestrator.cli.export import export
from orchestrator.cli.importing import import_
from orchestrator.cli.logs import logs
from orchestrator.cli.one import drop, rerun, show
from orchestrator.cli.pause import cancel, pause, throttle
from orchestrator.cli.plan import plan
from orchestrator.cli.run import run
from orchestrator.cli.status import status
from orchestrator.cli.submit import resume, submit
from orchestrator.cli.testcluster import app as testcluster
from orchestrator.cli.tune import tune
from orchestrator.cli.verify import compact, verify

__all__ = ["app"]

app = typer.Typer(
    name="manyseed",
    help="Train the same classifier thousands of times and learn how much the results vary.",
    no_args_is_help=True,
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
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    pass


_PANELS = {
    "Train": (run, plan, tune, submit, status, logs, resume, cancel, pause, throttle),
    "Keep": (verify, compact, export, import_, rerun, drop),
    "Learn": (analyze, query, howmany, report, show),
}
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        app.command(_command.__name__.rstrip("_"), rich_help_panel=_panel)(_command)
app.add_typer(datasets, name="datasets", rich_help_panel="Data")
app.add_typer(cluster, name="cluster", rich_help_panel="Clusters")
app.add_typer(testcluster, name="testcluster", rich_help_panel="Clusters")


def _help(docstring: str) -> str:
    """Return a docstring as help for a terminal of any width, without markup."""
    text = re.sub(r"(?<=\S)\n(?=\S)", " ", inspect.cleandoc(docstring))
    return escape(re.sub(r"^    (?=\S)", "$ ", text, flags=re.MULTILINE))


for _app in (app, datasets, cluster, testcluster):
    for _registered in _app.registered_commands:
        assert _registered.callback is not None
        _registered.help = _help(_registered.callback.__doc__ or "")
