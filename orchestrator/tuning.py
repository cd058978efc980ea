"""Search for the hparams of tuned cells, then for scales of posteriors, on this machine.

Each evaluated fit becomes a line below ``tasks/tuning``, so that an interrupted search can
continue; a complete search becomes a file below ``plan/tuned`` and is never repeated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

from manyseed.jobs import scales
from manyseed.jobs.run import MachineError
from manyseed.jobs.scales import NETWORKS, Trial
from manyseed.jobs.tuning import Draw, best, evaluate_in_process, n_draws
from manyseed.orchestrator.devices import gpus
from manyseed.orchestrator.disk.records import locked, read_records, write_records
from manyseed.orchestrator.errors import DamagedFile, RunsError, UnavailableError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.code import CodeHere, timeout_of
from manyseed.orchestrator.plans.data import remedy, require_fetched
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.scales import FoundScale
from manyseed.orchestrator.plans.tuned import (
    Search,
    TunedHparams,
    scale_searches,
    searches,
    with_hparams,
)
from manyseed.orchestrator.provenance import Recipe
from manyseed.orchestrator.working.pool import spawned

Report = Callable[[int, int], None]


def tune(
    paths: SweepPaths, *, workers: int, report: Report = lambda done, of: None
) -> list[Search]:
    """Do all searches of a sweep that are not done yet; return them.

    Parameters
    ----------
    paths : SweepPaths
    workers : int
        Number of processes, one thread each.
    report : callable
        Called after each draw with (evaluated draws, all draws).

    Raises
    ------
    UserError
        If data is not on this machine, or another command holds the sweep's lock.
    UnavailableError
        If data, packages or a process fail.
    RunsError
        If every draw of a search failed.
    """
    with locked(paths.tuning_lock, "tuning") as lease:
        cells = Plan.read(paths).cells
        todo, later = searches(paths, cells), scale_searches(paths, cells)
        require_fetched({s.dataset: s.cell.dataset for s in [*todo, *later]}, paths.sweep_file)
        gpu = next(iter(gpus().values()), None)
        here = CodeHere(paths, cells.filter(hparams="tuned"))
        here.copy()
        todo = [
            replace(
                search,
                code=here.of(search.cell.classifier),
                timeout=timeout_of(paths, search.classifier, search.cell.classifier),
            )
            for search in todo
        ]
        recipes = {"cpu": Recipe.here(), "gpu": Recipe.here(gpu)}
        done, total = 0, sum(_n_fits(search) for search in [*todo, *later])

        def advance(fits: int = 1) -> None:
            nonlocal done
            done += fits
            report(done, total)

        def search_all(planned: Sequence[Search]) -> None:
            batch = [search if gpu else replace(search, device="cpu") for search in planned]
            logs = {}
            for search in batch:
                recipe = replace(recipes[search.device], own=here.recipe(search.cell))
                logs[search.id] = _Log(paths, search, recipe)
            advance(sum(len(log.draws) for log in logs.values()))
            open_fits = [
                ((search.id, number), _evaluation(search, number))
                for search in batch
                for number in range(_n_fits(search))
                if number not in logs[search.id].draws
            ]
            for (search_id, number), draw in spawned(open_fits, workers, "a process of the search"):
                logs[search_id].add(number, draw)
                advance()
            for search in batch:
                logs[search.id].close(lease.check)

        try:
            search_all(todo)
            if later:  # tuned cells take the hparams that were found just now
                search_all([replace(one, fitted=with_hparams(paths, one.cell)) for one in later])
        except (MachineError, ImportError, MemoryError, OSError) as error:
            message = f"the search cannot continue: {error}{remedy(error, paths)}"
            raise UnavailableError(message) from None
    return [*todo, *later]


def _n_fits(search: Search) -> int:
    return NETWORKS if search.ensembling else n_draws(search.cell)


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
        self._result = (paths.scale if search.ensembling else paths.tuned)(search.id)
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

    def add(self, number: int, draw: Draw | Trial) -> None:
        self.draws[number] = draw
        with self._file.open("a") as file:
            file.write(json.dumps(self._line(number, draw)) + "\n")

    def _line(self, number: int, draw: Draw | Trial) -> dict[str, object]:
        return {"number": number, "trial" if self._search.ensembling else "draw": asdict(draw)}

    def close(self, before_rename: Callable[[], None]) -> None:
        """Write the result of the search, and remove the file of lines."""
        search, found = self._search, [self.draws[n] for n in range(_n_fits(self._search))]
        draws = [one for one in found if isinstance(one, Draw)]
        trials = [one for one in found if isinstance(one, Trial)]
        pair = search.dataset, search.classifier
        self._result.parent.mkdir(parents=True, exist_ok=True)
        try:
            if search.ensembling:
                scale, log_likelihood = scales.best(trials)
                FoundScale(
                    *pair,
                    search.ensembling,
                    search.cell.canonical(),
                    scale=scale,
                    log_likelihood=log_likelihood,
                    recipe=self._recipe,
                    trials=tuple(trials),
                ).write(self._result, before_rename)
            else:
                draw = draws[chosen := best(draws)]
                assert draw.accuracy is not None
                TunedHparams(
                    *pair,
                    search.cell.hparams,
                    hparams=draw.hparams,
                    draw=chosen,
                    accuracy=draw.accuracy,
                    recipe=self._recipe,
                    draws=tuple(draws),
                ).write(self._result, before_rename)
        except ValueError as error:
            raise RunsError(f"{search.classifier} × {search.dataset}: {error}") from None
        self._file.unlink()


def _evaluation(search: Search, number: int) -> Callable[[], Draw | Trial]:
    """Return the call that evaluates a fit in another process."""
    evaluate = scales.evaluate_in_process if search.ensembling else evaluate_in_process
    cell = (search.fitted or search.cell).canonical()
    return partial(evaluate, cell, number, search.device, search.code, search.timeout)
