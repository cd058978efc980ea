"""How many runs of a cell are trained at once: as the sweep file says, or as was measured.

With ``stack = "auto"``, what a timed probe chose is a file below ``plan/stacks``, which never
changes: whatever is submitted later is trained in the same form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from manyseed.orchestrator.disk.records import read_record
from manyseed.orchestrator.paths import SweepPaths

if TYPE_CHECKING:
    import polars as pl

    from manyseed.jobs.run import Cell
    from manyseed.orchestrator.plans.plan import Plan

AUTO: Literal["auto"] = "auto"


@dataclass(frozen=True, slots=True)
class Choice:
    """How many runs of cells of a shape are trained at once, and why.

    `dataset` and `classifier`: their names in the sweep file. `runs`: of a repeat, when the cells
    were planned. `device_class`: where it was measured; None if it was not. `seconds`: of a run
    alone ("1") and at so many at once.
    """

    dataset: str
    classifier: str
    runs: int
    members: int
    device_class: str | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def speed_up(self) -> float:
        """How many times as fast as one by one, with runs beyond the last that are trained too."""
        blocks = -(-self.runs // self.members)
        whole = self.seconds[str(self.members)] * blocks * self.members
        return self.seconds["1"] * self.runs / whole


@dataclass(frozen=True, slots=True)
class Stackable:
    """A cell of a plan whose runs can be trained at once.

    `number`, `dataset`, `classifier` and `device`: of the plan. `cell`: its description. `runs`: of
    a repeat, when it was planned: if it grows, its blocks stay. `asked`: how many at once.
    """

    number: int
    dataset: str
    classifier: str
    device: str
    cell: Cell
    runs: int
    asked: int | Literal["auto"]

    @property
    def key(self) -> str:
        """The identity of what the best number depends on."""
        from manyseed.jobs.run import IDENTITY_VERSION, identity
        from manyseed.jobs.training.network import RATES

        hparams = {name: value for name, value in self.cell.hparams.items() if name not in RATES}
        return identity(
            {
                "v": IDENTITY_VERSION,
                "search": "stack",
                "dataset": dict(self.cell.dataset),
                "classifier": dict(self.cell.classifier),
                "hparams": hparams,
                "runs": self.runs,
                "device": self.device,
            }
        )


def stacks(paths: SweepPaths, plan: Plan, cells: pl.DataFrame) -> list[Stackable]:
    """Return the cells whose runs may be trained several at once, as the sweep file has it now.

    `cells`: some of the plan's.
    """
    import polars as pl  # a task's own process never imports it

    from manyseed.jobs.classifiers import stacks as can_stack
    from manyseed.jobs.classifiers.record import STACK
    from manyseed.jobs.run import Cell
    from manyseed.orchestrator.plans.code import of_table

    asked = {
        name: of_table(paths, name, lambda table: STACK["stack"].check("stack", table["stack"]), 1)
        for name in cells["classifier"].unique()
    }
    names = [name for name, members in asked.items() if members != 1]
    if not names:
        return []
    chosen = cells.filter(~cells["identical"] & cells["classifier"].is_in(names))
    columns = chosen.select("cell", "part", "dataset", "classifier", "device", "canonical")
    first = {
        part: dict(plan.parts[part - 1].group_by("cell").agg(1 + pl.col("run").max()).iter_rows())
        for part in chosen["part"].unique()
    }
    found = [
        Stackable(number, dataset, name, device, cell, first[part].get(number, 0), asked[name])
        for number, part, dataset, name, device, text in columns.iter_rows()
        if can_stack(cell := Cell.from_text(text))
    ]
    return [each for each in found if each.runs > 1]


def members_of(paths: SweepPaths, stacks: Sequence[Stackable]) -> dict[int, int]:
    """Return, by cell, how many runs are trained at once, if several.

    Those for which nothing was chosen yet are left out.
    """
    chosen = {key: choice.members for key, choice in choices(paths).items()}
    members = {
        each.number: chosen.get(each.key, 1) if each.asked == AUTO else min(each.asked, each.runs)
        for each in stacks
    }
    return {number: several for number, several in members.items() if several > 1}


def choices(paths: SweepPaths) -> dict[str, Choice]:
    """Return what was chosen, by `Stackable.key`."""
    return {file.stem: read_record(file, Choice) for file in paths.all_stacks()}


def in_words(choices: Sequence[Choice]) -> Iterator[str]:
    """Yield a sentence for each classifier for which numbers were chosen."""
    for name in dict.fromkeys(choice.classifier for choice in choices):
        own = [choice for choice in choices if choice.classifier == name]
        several = [choice for choice in own if choice.members > 1]
        if not several:
            is_measured = any(choice.seconds for choice in own)
            why = "as stacks are not faster" if is_measured else "as stacks were not measured"
            yield f"{name}: one seed a step, {why}."
            continue
        numbers = _range([choice.members for choice in own], "{:,}")
        ratios = _range([choice.speed_up for choice in several], "{:.1f}")
        yield f"{name}: {numbers} seeds a step, {ratios} × sequential."


def _range(values: Sequence[float], form: str) -> str:
    ends = dict.fromkeys(form.format(value) for value in (min(values), max(values)))
    return " to ".join(ends)
