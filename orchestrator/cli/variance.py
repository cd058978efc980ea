"""``manyseed variance``."""

from __future__ import annotations

from typing import Annotated

from manyseed.orchestrator.cli.common import Directory, Json, where_option
from manyseed.orchestrator.cli.output import print_json, say


def variance(
    directory: Directory,
    where: Annotated[
        str | None, where_option("Which components: a condition over the table.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say where the variance comes from, in words, from the results of an analysis.

    Accuracy, and whether runs are wrong on the same points, are split over what varies between
    runs (init, batch, resampling, subsample, noise on data and hparams) and the test set, with
    95 % intervals. A source by itself is reported where the sweep has cells whose vary differs,
    such as init, batch and init+batch. A component that may be zero is reported as such.

    Examples:

        manyseed variance quickstart

        manyseed variance quickstart --where "metric = 'accuracy' AND classifier = 'mlp'"
    """
    from manyseed.orchestrator.sweep import Sweep

    found = Sweep(directory).variance(where)
    if as_json:
        groups = [
            {"name": one.name, "cell": one.cell, "words": one.words, "components": one.rows}
            for one in found
        ]
        print_json({"groups": groups})
        return
    if not found:
        say("No cell has a repeat of two runs or more: nothing is known of variance.")
    for one in found:
        say(one.name, style="bold")
        for metric, sentences in one.words.items():
            say(metric, indent=2)
            for sentence in sentences:
                say(sentence, indent=4)
