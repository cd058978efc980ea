"""``manyseed rerun``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyseed.orchestrator.cli import completing
from manyseed.orchestrator.cli.common import Directory, Json, require_outside, where_option
from manyseed.orchestrator.cli.output import console, counted, print_json, say
from manyseed.orchestrator.cli.progress import bar
from manyseed.orchestrator.cli.show import print_values
from manyseed.orchestrator.errors import RunsError, UserError, command, flag

if TYPE_CHECKING:
    from manyseed.orchestrator.runs.rerun import Differences, Rerun


def rerun(
    directory: Directory,
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]",
            help="Cell, repeat and run, counted from 0: 12:0:3. Or use --where and --best.",
            show_default=False,
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit code 1 unless it is equal bit for bit.")
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save",
            metavar="FILE|FOLDER",
            help="Write the model: .pt or .npz for networks, .npz for lr-sgd and svm-sgd, .json "
            "for xgb, .skops for estimators. For several runs, a folder with a file each. manyseed "
            "show says how to read it.",
        ),
    ] = None,
    where: Annotated[
        str | None,
        where_option("Runs that meet a condition on the table runs.", completing.condition),
    ] = None,
    best: Annotated[
        int | None,
        typer.Option("--best", metavar="N", min=1, help="The N most accurate runs of each cell."),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Train also runs whose file is already in the folder."),
    ] = False,
    other_recipe: Annotated[
        bool,
        typer.Option(
            "--other-recipe",
            help="For several runs: with other versions or another CPU, write a model even if its "
            "labels differ from those stored.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Train one run or several again, and compare them with the stored predictions.

    With its original recipe, a run must be equal bit for bit; with another recipe, the command
    reports how much differs. Several runs are chosen in the result tables, so analyze first.

    Examples:

        manyseed rerun sweep 12:0:3 --check

        manyseed rerun sweep 12:0:3 --save model.pt

        manyseed rerun sweep --best 1 --save models

        manyseed rerun sweep --where "classifier = 'mlp' AND accuracy > 0.9" --save models
    """
    from manyseed.orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    require_outside(save, sweep, "--save")
    options: dict[str, Any] = {"where": where, "best": best}
    options |= {"overwrite": overwrite, "other_recipe": other_recipe}
    if run is None:
        if where is None and best is None:
            remedy = "name a run, such as 12:0:3; or several with --where SQL, --best N"
            raise UserError("which run?", key="RUN", remedy=remedy)
        _several(partial(sweep.rerun_where, save=save, **options), save, check, as_json)
        return
    for name, given in options.items():
        if given not in (None, False):
            raise UserError(f"is for several runs, not for {run}", key=flag(name), value=given)
    value = sweep.rerun(run, save)
    if as_json:
        print_json(value)
    else:
        print_values(value)
    if check and value["same_recipe"] and not value["equal"]:
        raise RunsError(
            f"run {run} trained again in its own recipe differs: {value['labels_differ']:,} of "
            f"{value['labels']:,} labels\n  check what is stored with: "
            f"{command('verify', directory)}"
        )


def _several(
    train: Callable[..., list[Rerun]], save: Path | None, check: bool, as_json: bool
) -> None:
    """Train several runs again, report each, and exit with 1 if something is wrong."""
    with bar(quiet=as_json or not console.is_terminal) as progress:
        task = progress.add_task("training", total=None, note="runs")

        def tell(one: Rerun, total: int) -> None:
            progress.update(task, advance=1, total=total)
            if not as_json:
                say(_line(one))

        done = train(tell=tell)
    if as_json:
        print_json({"runs": [one.to_json() for one in done]})
    else:
        for text in _summary(done, save):
            say(text)
    if wrong := [one for one in done if one.problem or (check and _is_wrong(one))]:
        which = ", ".join(one.address for one in wrong[:5]) + (", …" if len(wrong) > 5 else "")
        raise RunsError(
            f"of {counted(len(done), 'run')}, {len(wrong):,} could not be trained again or differ: "
            f"{which}"
        )


def _is_wrong(one: Rerun) -> bool:
    found = one.comparison
    return found is not None and found["same_recipe"] and not found["equal"]


def _line(one: Rerun) -> str:
    """Return the outcome of a run."""
    if one.was_there:
        return f"{one.address}  {one.file} exists already"
    parts = []
    if (found := one.comparison) is not None and not one.problem:
        parts = ["equal bit for bit" if found["equal"] else _difference(found)]
    if one.problem:
        parts.append(one.problem)
    if one.file is not None:
        parts.append(str(one.file))
    return f"{one.address}  {'; '.join(parts)}"


def _difference(found: Differences) -> str:
    largest = found["largest_difference"]
    scores = "" if largest is None else f", scores by {largest:.2g} at most"
    recipe = "" if found["same_recipe"] else ", with another recipe"
    if "recipe_unknown" in found:
        recipe = f", with an unknown recipe: {found['recipe_unknown']}"
    return f"{found['labels_differ']:,} of {found['labels']:,} labels differ{scores}{recipe}"


def _summary(done: list[Rerun], folder: Path | None) -> list[str]:
    """Return the outcome of all runs, and how to read the models."""
    from manyseed.jobs.saving import READ

    trained = [one.comparison for one in done if one.comparison is not None]
    equal = sum(found["equal"] for found in trained)
    lines = [f"{counted(len(trained), 'run')} trained again, {equal:,} equal bit for bit."]
    if folder is not None:
        files = [one.file for one in done if one.file is not None]
        old = sum(one.was_there for one in done)
        before = f", {old:,} of them from before (--overwrite trains them again)" if old else ""
        lines.append(f"{counted(len(files), 'model')} in {folder}{before}.")
        lines += [f"Load: {READ[ending]}" for ending in sorted({file.suffix for file in files})]
    return lines
