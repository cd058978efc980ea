"""Search for the hparams of tuned cells, then for scales of posteriors, on this machine.

Each evaluated fit becomes a line below ``tasks/tuning``, so that an interrupted search can
continue; a complete search becomes a file below ``plan/tuned`` and is never repeated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from manyseed.jobs.run import MachineError
from manyseed.jobs.scales import Trial
from manyseed.jobs.tuning import Draw
from manyseed.orchestrator.devices import gpus
from manyseed.orchestrator.disk.records import locked, read_records, write_records
from manyseed.orchestrator.errors import DamagedFile, RunsError, UnavailableError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.code import CodeHere, remedy, require_fetched, timeout_of
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.searches import KINDS, Search, fitted, searches
from manyseed.orchestrator.provenance import Recipe
from manyseed.orchestrator.working.pool import spawned

Report = Callable[[int, int], None]
Evaluation = Callable[[], Draw | Trial]


def tune(
    paths: SweepPaths, *, workers: int, report: Report = lambda done, of: None
) -> list[Search]:
    """Do all searches of a sweep that are not done yet; return them.

    `workers`: number of processes, one thread each. `report`: called after each draw with
    (evaluated draws, all draws).
    """
    with locked(paths.tuning_lock, "tuning") as lease:
        cells = Plan.read(paths).cells
        todo = searches(paths, cells)
        require_fetched({search.dataset: search.cell.dataset for search in todo}, paths.sweep_file)
        gpu = next(iter(gpus().values()), None)
        here = CodeHere(paths, cells.filter(hparams="tuned"))
        here.copy()
        recipes = {"cpu": Recipe.here(), "gpu": Recipe.here(gpu)}
        done, total = 0, sum(search.n_fits for search in todo)

        def advance(fits: int = 1) -> None:
            nonlocal done
            done += fits
            report(done, total)

        def ready(search: Search, number: int) -> Search:
            """Return a search of `KINDS[number]` with all that its fits need."""
            classifier = search.cell.classifier
            return replace(
                search,
                code=here.of(classifier),
                timeout=timeout_of(paths, search.classifier, classifier),
                device=search.device if gpu else "cpu",
                fitted=fitted(paths, search.cell, KINDS[:number]),
            )

        try:
            for number, kind in enumerate(KINDS):  # a later kind takes what an earlier one found
                batch = [ready(search, number) for search in todo if search.kind is kind]
                logs = {}
                for search in batch:
                    recipe = replace(recipes[search.device], own=here.recipe(search.cell))
                    logs[search.id] = _Log(paths, search, recipe)
                advance(sum(len(log.draws) for log in logs.values()))
                open_fits = (one for search in batch for one in logs[search.id].open(search))
                for (search_id, fit), draw in spawned(
                    open_fits, workers, "a process of the search"
                ):
                    logs[search_id].add(fit, draw)
                    advance()
                for search in batch:
                    logs[search.id].close(lease.check)
                    advance(search.n_fits - len(logs[search.id].draws))
        except (MachineError, ImportError, MemoryError, OSError) as error:
            message = f"the search cannot continue: {error}{remedy(error, paths)}"
            raise UnavailableError(message) from None
    return todo


def searched(paths: SweepPaths) -> tuple[int, int]:
    """Return how many searches are complete, and how many lines those hold that are not."""
    logs = paths.tuning("").parent.glob("*.jsonl")
    return len(paths.all_tuned()) + len(paths.all_scales()), sum(
        file.read_bytes().count(b"\n") for file in logs
    )


@dataclass(frozen=True, slots=True)
class _Judged:
    """An evaluated fit as a line; the first line of a file is the recipe instead."""

    number: int = -1
    draw: Draw | None = None
    trial: Trial | None = None


class _Log:
    """The evaluated fits of one search, kept line by line until the search is complete."""

    def __init__(self, paths: SweepPaths, search: Search, recipe: Recipe) -> None:
        self._search, self._recipe = search, recipe
        self._result = search.kind.file(paths, search.id)
        self._file = paths.tuning(search.id)
        self.draws = self._judged_before()
        # rewritten, because the last line may be torn
        lines = [self._line(number, draw) for number, draw in self.draws.items()]
        write_records(self._file, [recipe.to_json(), *lines])

    def _judged_before(self) -> dict[int, Draw | Trial]:
        """Return the fits in the file; none if they are of another recipe, or it is damaged.

        Fits of another recipe are not comparable, and damaged ones can be evaluated again.
        """
        try:
            recipe, judged = read_records(self._file, Recipe)[:1], read_records(self._file, _Judged)
        except DamagedFile:
            return {}
        if recipe != [self._recipe]:
            return {}
        found = ((one.number, one.draw or one.trial) for one in judged)
        return {number: one for number, one in found if one is not None}

    def open(self, search: Search) -> Iterator[tuple[tuple[str, int], Evaluation]]:
        """Yield the fits that are still to be evaluated, until the search's time is used up.

        Those before one that was evaluated are, however much time is left: a search holds its first
        draws without gaps.
        """
        last = max(self.draws, default=0)
        for fit in range(search.n_fits):
            if fit > last and self._seconds() >= search.seconds:
                return
            if fit not in self.draws:
                yield (search.id, fit), _evaluation(search, fit)

    def _seconds(self) -> float:
        return sum(draw.seconds for draw in self.draws.values())

    def add(self, number: int, draw: Draw | Trial) -> None:
        self.draws[number] = draw
        with self._file.open("a") as file:
            file.write(json.dumps(self._line(number, draw)) + "\n")

    def _line(self, number: int, draw: Draw | Trial) -> dict[str, object]:
        return {"number": number, self._search.kind.entry: asdict(draw)}

    def close(self, before_rename: Callable[[], None]) -> None:
        """Write the result of the search, and remove the file of lines."""
        search = self._search
        self._result.parent.mkdir(parents=True, exist_ok=True)
        fits: list[Any] = [self.draws[number] for number in sorted(self.draws)]
        try:
            result = search.kind.result.of(search, fits, self._recipe)
        except ValueError as error:
            raise RunsError(f"{search.classifier} × {search.dataset}: {error}") from None
        result.write(self._result, before_rename)
        self._file.unlink()


def _evaluation(search: Search, number: int) -> Evaluation:
    """Return the call that evaluates a fit in another process."""
    cell = (search.fitted or search.cell).canonical()
    evaluate = search.kind.evaluate
    return partial(evaluate, cell, number, search.device, search.code, search.timeout)
