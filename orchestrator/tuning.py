"""Search for the hparams of tuned cells, on this machine, in as many processes as asked.

Each draw that was judged is a line below ``tasks/tuning``, so that a search that is interrupted
goes on; a search that is complete becomes a file below ``plan/tuned`` and is never done again.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

from jobs.run import MachineError
from jobs.tuning import Draw, best, evaluate_in_process, n_draws
from orchestrator import origin
from orchestrator.devices import gpus
from orchestrator.errors import DamagedFile, RunsError, UnavailableError
from orchestrator.files import locked, read_records, write_json
from orchestrator.paths import SweepPaths
from orchestrator.plans.data import require_fetched
from orchestrator.plans.plan import Plan
from orchestrator.plans.tuned import Search, searches
from orchestrator.working.child import belong_to_parent
from orchestrator.working.pool import ONE_THREAD

Tell = Callable[[int, int], None]


def tune(paths: SweepPaths, *, workers: int, tell: Tell = lambda done, of: None) -> list[Search]:
    """Do every search of a sweep that is still to be done; return these.

    Parameters
    ----------
    paths : SweepPaths
    workers : int
        Processes, one thread each.
    tell : callable
        Told after each draw: (draws that are judged, all draws).

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
        todo = searches(paths, Plan.read(paths).cells)
        require_fetched({s.dataset: s.cell.dataset for s in todo}, paths.sweep_file)
        gpu = next(iter(gpus().values()), None)
        todo = [search if gpu else replace(search, device="cpu") for search in todo]
        recipes = {"cpu": origin.recipe(), "gpu": origin.recipe(gpu)}
        logs = {search.id: _Log(paths, search, recipes[search.device]) for search in todo}
        open_draws = [
            (search, number)
            for search in todo
            for number in range(n_draws(search.cell))
            if number not in logs[search.id].draws
        ]
        total = sum(n_draws(search.cell) for search in todo)
        done = total - len(open_draws)
        tell(done, total)
        for search, number, draw in _judged(open_draws, workers):
            logs[search.id].add(number, draw)
            done += 1
            tell(done, total)
        for search in todo:
            logs[search.id].close(lease.check)
    return todo


class _Log:
    """The draws of one search that were judged, kept line by line until all of them are there."""

    def __init__(self, paths: SweepPaths, search: Search, recipe: dict[str, Any]) -> None:
        self._search, self._recipe = search, recipe
        self._result = paths.tuned(search.id)
        self._file = paths.tasks / "tuning" / f"{search.id}.jsonl"
        self.draws = self._judged_before()
        self._file.parent.mkdir(parents=True, exist_ok=True)
        # written anew, because a last line may be torn
        text = [recipe, *({"number": n, "draw": asdict(d)} for n, d in self.draws.items())]
        self._file.write_text("".join(json.dumps(line) + "\n" for line in text))

    def _judged_before(self) -> dict[int, Draw]:
        """Return the draws that are in the file; none if another recipe judged, or it is damaged.

        What another recipe judged is not comparable, and what is damaged can be judged again.
        """
        try:
            told = read_records(self._file, dict[str, Any])
            if told[:1] != [self._recipe]:
                return {}
            return {int(line["number"]): Draw(**line["draw"]) for line in told[1:]}
        except (DamagedFile, LookupError, TypeError, ValueError):
            return {}

    def add(self, number: int, draw: Draw) -> None:
        self.draws[number] = draw
        with self._file.open("a") as file:
            file.write(json.dumps({"number": number, "draw": asdict(draw)}) + "\n")

    def close(self, before_rename: Callable[[], None]) -> None:
        """Write what was found."""
        draws = [self.draws[number] for number in range(n_draws(self._search.cell))]
        try:
            chosen = best(draws)
        except ValueError as error:
            search = self._search
            raise RunsError(f"{search.classifier} × {search.dataset}: {error}") from None
        self._result.parent.mkdir(parents=True, exist_ok=True)
        write_json(
            self._result,
            {
                "dataset": self._search.dataset,
                "classifier": self._search.classifier,
                "search": dict(self._search.cell.hparams),
                "hparams": draws[chosen].hparams,
                "draw": chosen,
                "accuracy": draws[chosen].accuracy,
                "recipe": self._recipe,
                "draws": [asdict(draw) for draw in draws],
            },
            before_rename=before_rename,
        )
        self._file.unlink()


def _judged(draws: list[tuple[Search, int]], workers: int) -> Iterator[tuple[Search, int, Draw]]:
    """Yield draws as they are judged."""
    if not draws:
        return
    with _one_thread(), _pool(min(workers, len(draws))) as pool:
        try:
            waiting: dict[Future[Draw], tuple[Search, int]] = {
                pool.submit(evaluate_in_process, s.cell.canonical(), number, s.device): (s, number)
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
        except (MachineError, ImportError, MemoryError, OSError) as error:
            raise UnavailableError(f"the search cannot go on: {error}") from None


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool that, left by an error or Ctrl-C, begins no further draw."""
    # started afresh: a fork of a process that has used polars hangs
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, spawn, belong_to_parent)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let processes that are started here use one thread each, and import nobody's modules."""
    wanted = {**ONE_THREAD, "PYTHONSAFEPATH": "1"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:  # other threads may read all the others meanwhile
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
