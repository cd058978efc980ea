"""``manyseed rerun``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from manyseed.orchestrator.cli.common import Directory, Json, require_outside
from manyseed.orchestrator.cli.output import print_json
from manyseed.orchestrator.cli.show import Address, print_values
from manyseed.orchestrator.errors import RunsError


def rerun(
    directory: Directory,
    run: Address,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 unless it is equal bit for bit.")
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save",
            metavar="FILE",
            help="Write the model: .pt or .npz of networks, .npz of lr-sgd and svm-sgd, .json of "
            "xgb, .skops of estimators. manyseed show says how to read it.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train one run again and compare it with what is stored.

    In the recipe that it was made in it must be equal, bit for bit; in another one this reports how
    much differs.

    Examples:

        manyseed rerun sweep 12:0:3 --check

        manyseed rerun sweep 12:0:3 --save model.pt
    """
    from manyseed.orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    require_outside(save, sweep, "--save")
    value = sweep.rerun(run, save)
    if as_json:
        print_json(value)
    else:
        print_values(value)
    if check and value["same_recipe"] and not value["equal"]:
        raise RunsError(
            f"run {run} trained again in its own recipe differs: {value['labels_differ']:,} of "
            f"{value['labels']:,} labels\n  check what is stored with: manyseed verify {directory}"
        )
