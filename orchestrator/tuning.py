"""Search for the hparams of tuned cells, on this machine, in as many processes as asked.

Each draw that was judged is a line below ``tasks/tuning``, so that a search that is interrupted
goes on; a search that is complete becomes a file below ``plan/tuned`` and is never done again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace

from manyseed.jobs.run import MachineError
from manyseed.jobs.tuning import Draw, best, evaluate_in_process, n_draws
from manyseed.orchestrator.devices import gpus
from manyseed.orchestrator.disk.records import locked, read_records
from manyseed.orchestrator.errors import DamagedFile, RunsError, UnavailableError
from manyseed.orchestrator.machine import remedy
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.code import CodeHere
from manyseed.orchestrator.plans.data import require_fetched
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.tuned import Search, TunedHparams, searches
from manyseed.orchestrator.provenance import Recipe
from manyseed.orchestrator.working.spawned import spawned

Report = Callable[[int, int], None]


def tune(
    paths: SweepPaths, *, workers: int, report: Report = lambda done, of: None
) -> list[Search]:
    """Do every search of a sweep that is still to be done; return these.

    Parameters
    ----------
    paths : SweepPaths
    workers : int
        Processes, one thread each.
    report : callable
        Called after each draw with (draws that are judged, all draws).

    Raises
    ------
    UserError
        Where data is not on this machine, or another command is at work on the sweep.
    UnavailableError
        Where data, packages or a process fail.
    RunsError
        Where every draw of a search failed.
    """
    with locked(paths.tuning_lock, "tuning") as lease:
        cells = Plan.read(paths).cells
        todo = searches(paths, cells)
        require_fetched({s.dataset: s.cell.dataset for s in todo}, paths.sweep_file)
        gpu = next(iter(gpus().values()), None)
        todo = [search if gpu else replace(search, device="cpu") for search in todo]
        recipes = {"cpu": Recipe.here(), "gpu": Recipe.here(gpu)}
        here = CodeHere(paths, cells.filter(hparams="tuned"))
        here.copy()
        todo = [replace(search, code=here.of(search.cell.classifier)) for search in todo]
        logs = {
            search.id: _Log(
                paths, search, replace(recipes[search.device], own=here.recipe(search.cell))
            )
            for search in todo
        }
        open_draws = [
            (search, number)
            for search in todo
            for number in range(n_draws(search.cell))
            if number not in logs[search.id].draws
        ]
        total = sum(n_draws(search.cell) for search in todo)
        done = total - len(open_draws)
        report(done, total)
        try:
            for search, number, draw in _judged(open_draws, workers):
                logs[search.id].add(number, draw)
                done += 1
                report(done, total)
        except (MachineError, ImportError, MemoryError, OSError) as error:
            said = f"the search cannot go on: {error}{remedy(error, paths)}"
            raise UnavailableError(said) from None
        for search in todo:
            logs[search.id].close(lease.check)
    return todo


@dataclass(frozen=True, slots=True)
class _Judged:
    """A draw that was judged; the first line of a file, which is the recipe, is of none."""

    number: int = -1
    draw: Draw | None = None


class _Log:
    """The draws of one search that were judged, kept line by line until all of them are there."""

    def __init__(self, paths: SweepPaths, search: Search, recipe: Recipe) -> None:
        self._search, self._recipe = search, recipe
        self._result, self._file = paths.tuned(search.id), paths.tuning(search.id)
        self.draws = self._judged_before()
        self._file.parent.mkdir(parents=True, exist_ok=True)
        # written anew, because a last line may be torn
        self._file.write_text(json.dumps(recipe.to_json()) + "\n")
        for number, draw in self.draws.items():
            self._append(number, draw)

    def _judged_before(self) -> dict[int, Draw]:
        """Return the draws that are in the file; none if another recipe judged, or it is damaged.

        What another recipe judged is not comparable, and what is damaged can be judged again.
        """
        try:
            recipe, judged = read_records(self._file, Recipe)[:1], read_records(self._file, _Judged)
        except DamagedFile:
            return {}
        if recipe != [self._recipe]:
            return {}
        return {one.number: one.draw for one in judged if one.draw is not None}

    def add(self, number: int, draw: Draw) -> None:
        self.draws[number] = draw
        self._append(number, draw)

    def _append(self, number: int, draw: Draw) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps(asdict(_Judged(number, draw))) + "\n")

    def close(self, before_rename: Callable[[], None]) -> None:
        """Write what was found."""
        draws = [self.draws[number] for number in range(n_draws(self._search.cell))]
        try:
            draw = draws[chosen := best(draws)]
        except ValueError as error:
            search = self._search
            raise RunsError(f"{search.classifier} × {search.dataset}: {error}") from None
        self._result.parent.mkdir(parents=True, exist_ok=True)
        assert draw.accuracy is not None
        TunedHparams(
            self._search.dataset,
            self._search.classifier,
            self._search.cell.hparams,
            hparams=draw.hparams,
            draw=chosen,
            accuracy=draw.accuracy,
            recipe=self._recipe,
            draws=tuple(draws),
        ).write(self._result, before_rename)
        self._file.unlink()


def _judged(draws: list[tuple[Search, int]], workers: int) -> Iterator[tuple[Search, int, Draw]]:
    """Yield draws as they are judged."""
    if not draws:
        return
    with spawned(min(workers, len(draws))) as pool:
        try:
            waiting: dict[Future[Draw], tuple[Search, int]] = {
                pool.submit(evaluate_in_process, s.cell.canonical(), number, s.device, s.code): (
                    s,
                    number,
                )
                for s, number in draws
            }
            for future in as_completed(waiting):
                search, number = waiting.pop(future)
                yield search, number, future.result()
        except BrokenProcessPool:
            raise UnavailableError(
                "a process of the search was killed; is there enough memory? "
                "The same command goes on where it stopped"
            ) from None
