"""``manyseed variance``."""

from __future__ import annotations

from typing import Annotated

from manyseed.orchestrator.cli.arguments import Directory, Json, where_option
from manyseed.orchestrator.cli.output import print_json, say


def variance(
    directory: Directory,
    where: Annotated[
        str | None, where_option("Only components that meet a condition on the table.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say where the variance comes from, in words, from the results of an analysis.

    The variance of accuracy, and of errors on the same points, is split into what varies between
    runs (init, batch, resampling, subsample, noise on data and hparams) and the test set, with
    95 % intervals. Single sources are reported if the sweep has cells whose vary differs, such as
    init, batch and init+batch. Components that may be zero are reported as such.

    Examples:

        manyseed variance quickstart

        manyseed variance quickstart --where "metric = 'accuracy' AND classifier = 'mlp'"
    """
    from manyseed.analysis.questions.intervals import TEST_SETS, too_few
    from manyseed.orchestrator.sweep import Sweep

    groups = Sweep(directory).variance(where)
    if as_json:
        values = [
            {"name": group.name, "cell": group.cell, "words": group.words, "components": group.rows}
            for group in groups
        ]
        print_json({"groups": values})
        return
    if not groups:
        say("No cell has a repeat with two or more runs, so its variance is unknown.")
    for group in groups:
        say(group.name, style="bold")
        for metric, sentences in group.words.items():
            say(metric, indent=2)
            for sentence in sentences:
                say(sentence, indent=4)
    rows = (row for group in groups for row in group.rows if row["over"] == TEST_SETS)
    if few := too_few(min((row["n_repeats"] for row in rows), default=0)):
        say(few, style="dim")
