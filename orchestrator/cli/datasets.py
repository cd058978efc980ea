"""``manyseed datasets``: list datasets, and fetch data to this machine."""

from __future__ import annotations

import typer
from rich.text import Text

from manyseed.orchestrator.cli.common import Json, SweepToml
from manyseed.orchestrator.cli.output import console, counted, print_json, print_table, say

app = typer.Typer(help="List datasets, and fetch those of a sweep.", no_args_is_help=True)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the datasets known by name, with their shapes, without downloading anything.

    Examples:

        manyseed datasets list
    """
    from manyseed.jobs import datasets

    columns = ("source", "samples", "features", "categorical", "classes", "fetched")
    rows = []
    for name in datasets.names():
        if name.startswith("synthetic:"):
            continue
        info = datasets.resolve(name)
        fetched = datasets.is_fetched(info.canonical)
        classes = len(info.class_names)
        rows.append((name, info.n_samples, info.n_features, info.n_categorical, classes, fetched))
    if as_json:
        print_json({"datasets": [dict(zip(columns, row, strict=True)) for row in rows]})
        return
    print_table(None, columns, rows)
    say("\nAlso: synthetic:gaussian, and file:PATH for CSV, Parquet and NPZ.")


@app.command()
def fetch(sweep_file: SweepToml) -> None:
    """Fetch and prepare the data of a sweep file, once, on a machine that can reach it.

    Compute nodes only read the prepared copies, in the folder that MANYSEED_DATA names.

    Examples:

        manyseed datasets fetch sweep.toml
    """
    from manyseed.orchestrator.grids.expansion import expand
    from manyseed.orchestrator.grids.loading import read_sweep_file
    from manyseed.orchestrator.paths import SweepPaths
    from manyseed.orchestrator.plans.code import own_code
    from manyseed.orchestrator.plans.data import fetch_datasets

    own = own_code(sweep_file, SweepPaths(sweep_file.absolute().parent)).of_data()
    expansion = expand(read_sweep_file(sweep_file), sweep_file, own)
    with console.status("fetching") as status:
        made = fetch_datasets(
            expansion.datasets, lambda name: status.update(Text(f"fetching {name}"))
        )
    existing = len(expansion.datasets) - len(made)
    say(f"Prepared {counted(len(made), 'dataset')}; already here: {existing:,}.")
