"""A sweep from Python: the same verbs as the command's, the same errors as exceptions."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import UserError
from orchestrator.paths import open_sweep
from orchestrator.store.lease import LeaseWatch
from orchestrator.submission import Submission, submissions
from orchestrator.submission import submit as submit_missing
from orchestrator.survey import Survey, survey
from orchestrator.watch import progress
from slurm import local

if TYPE_CHECKING:
    import polars as pl
    import xarray as xr

    from analysis.group import Progress
    from analysis.options import Options
    from orchestrator.drop import Drop
    from orchestrator.howmany import GroupAnswers
    from orchestrator.store.compact import Compaction
    from orchestrator.tuned import Search

_FAILURES_SHOWN = 3


class Sweep:
    """A sweep directory.

    Parameters
    ----------
    directory : path
        As ``manyseed plan`` or `Sweep.plan` made it.

    Raises
    ------
    orchestrator.errors.UserError
        When it is not a sweep.

    Examples
    --------
    >>> sweep = Sweep.plan("sweep.toml", "my-sweep")          # doctest: +SKIP
    >>> sweep.submit(); sweep.wait()                           # doctest: +SKIP
    >>> sweep.analyze(); sweep.results["cells"]                # doctest: +SKIP
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self.paths = open_sweep(self.directory)

    @classmethod
    def plan(cls, sweep_file: str | Path, directory: str | Path | None = None) -> Sweep:
        """Plan a sweep file, into a new directory or as an addition to the sweep there.

        Parameters
        ----------
        sweep_file : path
        directory : path
            By default the sweep's name, in the working folder.
        """
        from orchestrator.planning import plan_sweep
        from orchestrator.sweepfile import read_sweep_file

        file = Path(sweep_file)
        target = Path(read_sweep_file(file).name if directory is None else directory)
        plan_sweep(file, target)
        return cls(target)

    @cached_property
    def name(self) -> str:
        """The sweep's name."""
        from orchestrator.sweepfile import read_sweep_file

        return read_sweep_file(self.paths.sweep_file).name

    def submit(
        self, *, workers: int | None = None, failed: bool = False, other_recipe: bool = False
    ) -> Submission | None:
        """Submit what is missing (or exactly what failed); return None where nothing is.

        Parameters
        ----------
        workers : int
            Training processes, never more; by default the cores that this process may use.
        failed : bool
            Submit the failed runs instead of the missing ones.
        other_recipe : bool
            Go on although versions or CPU differ from those of earlier runs.
        """
        from orchestrator.tuned import require_hparams

        require_hparams(self.paths)
        return submit_missing(
            self.paths,
            workers=workers or local.available_cores(),
            failed=failed,
            other_recipe=other_recipe,
        )

    def tune(
        self,
        *,
        workers: int | None = None,
        progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> list[Search]:
        """Search for the hparams that tuned cells still need; return the searches that were done.

        Parameters
        ----------
        workers : int
            Processes; by default the cores that this process may use.
        progress : callable
            Told after each draw: (draws that are judged, all draws).
        """
        from orchestrator.tuning import tune

        return tune(self.paths, workers=workers or local.available_cores(), tell=progress)

    def running(self) -> list[Submission]:
        """Return the submissions of which something still lives."""
        return [submission for submission in submissions(self.paths) if submission.is_alive()]

    @property
    def is_running(self) -> bool:
        """Whether anything of the sweep still trains."""
        return bool(self.running())

    def wait(self) -> None:
        """Wait until nothing of the sweep runs any more."""
        while self.is_running:
            time.sleep(0.1)

    def cancel(self) -> int:
        """Ask everything that runs to stop after the fits in flight; return how many were asked."""
        running = self.running()
        for submission in running:
            submission.ask_to_stop()
        return len(running)

    def survey(self) -> Survey:
        """Return the state of every run."""
        return survey(self.paths)

    def status(self) -> dict[str, Any]:
        """Return runs by state, submissions and the most frequent failures, as JSON values."""
        state = self.survey()
        errors = Counter(failure["error"] for failure in state.failures.values())
        files = {failure["error"]: failure["file"] for failure in state.failures.values()}
        return {
            "directory": str(self.directory),
            "runs": state.counts,
            "duplicates": state.duplicates,
            "groups": state.by_group.drop("group").to_dicts(),
            "tasks": [self._task(submission) for submission in submissions(self.paths)],
            "failures": [
                {"error": error, "count": count, "file": files[error]}
                for error, count in errors.most_common(_FAILURES_SHOWN)
            ],
        }

    def _task(self, submission: Submission) -> dict[str, Any]:
        now = progress(submission)
        return {
            "number": submission.number,
            "cluster": submission.intent["cluster"],
            "state": now.state,
            "runs": now.runs,
            "done": now.done,
            "failed": now.failed,
            "set_aside": now.set_aside,
            "workers": now.workers,
            "submitted": submission.intent["submitted"],
            "reason": now.reason,
        }

    def show(self, address: str) -> dict[str, Any]:
        """Return everything that defines the run ``CELL:REPEAT:RUN``, and how it was made."""
        from orchestrator.show import show

        return show(self.paths, address)

    def rerun(self, address: str) -> dict[str, Any]:
        """Train the run ``CELL:REPEAT:RUN`` again; return how it compares with what is stored."""
        from orchestrator.rerun import rerun

        return rerun(self.paths, address)

    def drop(self, where: str, *, dry_run: bool = False) -> Drop:
        """Take the cells that meet a condition in SQL out of the plan for good.

        Raises
        ------
        orchestrator.errors.UserError
            For what is no condition, one that no cell meets, or while something trains.
        """
        from orchestrator.drop import drop, to_drop

        if dry_run:
            return to_drop(self.paths, where)
        if self.is_running:
            raise UserError(
                "the sweep is being trained",
                file=self.directory,
                remedy=f"wait for it, or stop it with: manyseed cancel {self.directory}",
            )
        return drop(self.paths, where)

    @property
    def predictions(self) -> xr.DataTree:
        """All predictions, lazily: a tree /dataset/classifier of xarray datasets."""
        from orchestrator.store.lazy import open_store

        return open_store(self.paths.store)

    def compact(self) -> Compaction:
        """Publish what journals hold, remove what is no longer needed, consolidate metadata.

        Raises
        ------
        orchestrator.store.errors.LeaseHeld
            While something of the sweep runs.
        """
        from orchestrator.checkpoints import remove_stale
        from orchestrator.store.compact import Compaction, compact

        if not self.paths.store.exists():
            return Compaction(0, 0, (), 0)
        done = compact(self.paths.store, self.paths.journals, LeaseWatch(self.paths.leases))
        remove_stale(self.paths)
        return done

    def verify(self, *, repair: bool = False) -> dict[str, Any]:
        """Check every finished run; with `repair`, set what is wrong back to missing.

        Returns
        -------
        dict
            runs_checked, runs_wrong, findings (group, problem, rows); after a repair also
            runs_healed (restored from journals) and runs_set_back.
        """
        from orchestrator.keeping import verify

        return verify(self.paths, repair=repair)

    def export(self, output: str | Path) -> Path:
        """Write one portable copy of what is finished: a Zarr zip, or a Parquet table of labels.

        Parameters
        ----------
        output : path
            A new file whose name ends in ``.zip`` or ``.parquet``.

        Raises
        ------
        orchestrator.errors.UserError
            Where it exists, or has another ending.
        """
        from orchestrator.keeping import export

        # without journals nothing is to be done: a sweep that may only be read is exported too
        if not self.is_running and any(self.paths.journals.glob("*.journal")):
            self.compact()
        return export(self.paths, Path(output))

    def analyze(
        self,
        options: Options | None = None,
        *,
        dask: str = "threads",
        workers: int | None = None,
        progress: Progress | None = None,
    ) -> dict[str, pl.DataFrame]:
        """Compute the result tables of all that is finished, and write them.

        What did not change since they were written is not computed again.

        Parameters
        ----------
        options : Options
            By default those of the sweep file's table ``[analysis]``.
        dask : str
            threads, processes, or a dask scheduler's address.
        workers : int
            Threads or processes; by default the cores that this process may use.
        progress : callable
            Told of each block that is done: (done, all).
        """
        from orchestrator.conventions import conventions
        from orchestrator.results import analyze
        from orchestrator.schedulers import scheduler

        if not self.is_running:
            self.compact()
        with scheduler(dask) as chosen:
            return analyze(
                self.paths,
                options or conventions(self.paths),
                scheduler=chosen,
                workers=workers or local.available_cores(),
                progress=progress,
            )

    @property
    def results(self) -> dict[str, pl.DataFrame]:
        """The result tables by name; ``docs/results.md`` describes each."""
        from orchestrator.tables import read_results

        return read_results(self.paths)

    def query(self, table: str = "cells", **options: Any) -> pl.DataFrame:
        """Return rows of a result table; `orchestrator.query.query` says how."""
        from orchestrator.query import query

        return query(self.results, table, **options)

    def howmany(
        self,
        *,
        accuracy: float = 0.005,
        consistency: float = 0.02,
        where: str | None = None,
        draws: int = 500,
        workers: int | None = None,
    ) -> list[GroupAnswers]:
        """Say how many runs are needed; `orchestrator.howmany.howmany` says of what."""
        from orchestrator.howmany import howmany

        return howmany(
            self.paths,
            accuracy=accuracy,
            consistency=consistency,
            where=where,
            draws=draws,
            workers=workers or local.available_cores(),
        )

    def report(self) -> Path:
        """Write the report's page; return where it is."""
        from orchestrator.reporting import report

        return report(self.paths, self.name)
