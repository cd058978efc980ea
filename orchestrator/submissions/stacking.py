"""Measure how many runs are best trained at once, before any is trained: ``stack = "auto"``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from functools import partial

from manyseed.jobs.packages import install
from manyseed.jobs.run import MachineError
from manyseed.jobs.training.handling import Device
from manyseed.orchestrator.disk.records import write_json
from manyseed.orchestrator.errors import UnavailableError, UserError
from manyseed.orchestrator.grids.resolver import lacking_packages, not_trainable
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.code import remedy
from manyseed.orchestrator.plans.searches import fitted
from manyseed.orchestrator.plans.stacks import AUTO, Choice, Stackable, choices, in_words
from manyseed.orchestrator.provenance import cpu_class
from manyseed.orchestrator.working.pool import spawned


def choose(
    paths: SweepPaths,
    stacks: Sequence[Stackable],
    begun: Collection[int],
    *,
    gpu: str | None,
    is_here: bool,
    check: Callable[[], None],
    report: Callable[[str], None],
) -> None:
    """Record, once, how many runs of each shape with ``stack = "auto"`` are trained at once.

    The processors of a cluster are taken to choose as this machine's does; of its GPUs nothing is
    known, so runs are trained there one by one.

    `begun`: cells whose form is fixed, as they have finished runs. `gpu`: the model of this
    machine's GPU. `is_here`: whether this machine trains. `check`: called before a file is written.
    """
    known = choices(paths)
    todo = [each for each in stacks if each.asked == AUTO and each.key not in known]
    for each in todo:
        if each.number in begun:
            raise UserError(
                f"runs of {each.classifier} were trained before a number was chosen for them",
                file=paths.sweep_file,
                key=f"classifier.{each.classifier}.stack",
                value=AUTO,
                remedy="write the number that they were trained with (1 if none was given), or mix "
                "recipes knowingly with --other-recipe: results mark the repeats",
            )
    if not todo:
        return
    report("Measuring how many seeds a step are fastest.")
    from manyseed.jobs.stacking import best, seconds_a_run, sizes

    shapes = {each.key: each for each in reversed(todo)}
    kinds = dict.fromkeys(each.cell.classifier["name"] for each in todo)
    if (reason := not_trainable(kinds)) is not None:
        raise UnavailableError(f"{reason}\n  {install(lacking_packages(kinds))}")
    devices: dict[str, Device] = {
        key: "gpu" if each.device == "gpu" and (gpu or not is_here) else "cpu"
        for key, each in shapes.items()
    }
    made = []

    def keep(key: str, seconds: dict[int, float]) -> None:
        each, where = shapes[key], gpu if devices[key] == "gpu" else cpu_class()
        choice = Choice(
            each.dataset,
            each.classifier,
            each.runs,
            best(seconds, each.runs) if seconds else 1,
            where if seconds else None,
            {str(members): value for members, value in seconds.items()},
        )
        write_json(paths.stack(key), asdict(choice), before_rename=check)
        made.append(choice)

    calls = []
    for key, each in shapes.items():
        if is_here or devices[key] == "cpu":
            cell = fitted(paths, each.cell).canonical()
            calls.append((key, partial(seconds_a_run, cell, sizes(each.runs), devices[key])))
        else:
            keep(key, {})
    try:
        for key, seconds in spawned(calls, 1, "a process that measures stacks"):
            keep(key, seconds)
    except (MachineError, ImportError, MemoryError, OSError) as error:
        raise UnavailableError(f"cannot measure stacks: {error}{remedy(error, paths)}") from None
    for text in in_words(made):
        report(text)
