"""What a sweep's predictions say: the verbs of `Sweep` that open, analyse, ask and report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyseed.orchestrator.grids.loading import read_sweep_file
from manyseed.orchestrator.paths import SweepPaths, open_sweep
from manyseed.orchestrator.results.query import Question, ask
from manyseed.orchestrator.results.tables import Results, read_results

if TYPE_CHECKING:
    import polars as pl
    import xarray as xr

    from manyseed.analysis.graph.group import ReportProgress
    from manyseed.analysis.options import Options
    from manyseed.orchestrator.results.compared import Compared
    from manyseed.orchestrator.results.dee import DeepAnswers
    from manyseed.orchestrator.results.howmany import GroupAnswers
    from manyseed.orchestrator.results.job import AnalysisJob
    from manyseed.orchestrator.results.plotting import Plots
    from manyseed.orchestrator.results.variance import VarianceSplit
    from manyseed.orchestrator.submissions.submission import Submission


class Learning:
    """The verbs that `Sweep` has for predictions and results."""

    paths: SweepPaths

    @cached_property
    def name(self) -> str:
        """The sweep's name."""
        return read_sweep_file(self.paths.sweep_file).name

    @property
    def predictions(self) -> xr.DataTree:
        """The predictions of finished runs, lazily: a tree /dataset/classifier of datasets.

        Paths are percent-encoded. What is published is there; `compact` publishes all that is
        finished where nothing trains.
        """
        from manyseed.orchestrator.stored import open_finished_runs

        return open_finished_runs(self.paths)

    def runs(self, dataset: str, classifier: str) -> xr.Dataset:
        """Return the finished runs of a dataset and classifier, lazily, with coordinates in words.

        Parameters
        ----------
        dataset, classifier : str
            As the sweep file names them.

        Returns
        -------
        xarray Dataset
            Dimensions ``run``, ``sample`` and others as in `predictions`. Coordinates of each run:
            ``cell``, ``repeat_index``, ``run_index``, ``train_fraction``, and in the sweep file's
            words ``perturb_continuous``, ``perturb_categorical``, ``perturb_hparams``, ``hparams``
            and ``vary``. ``y_true`` is each run's own: (run, sample).

        Raises
        ------
        orchestrator.errors.UserError
            Where the sweep has not both.

        Examples
        --------
        >>> runs = sweep.runs("digits", "mlp")
        >>> right = runs.label.isel(epoch=-1) == runs.y_true
        >>> right.mean("sample").groupby("perturb_continuous").std()
        """
        from manyseed.orchestrator.stored import open_named_runs

        return open_named_runs(self.paths, dataset, classifier)

    @property
    def raw_predictions(self) -> xr.DataTree:
        """As `predictions`, with all rows of the store, also those that hold no predictions.

        Only where ``status`` is 1 or 2 is there anything: other labels, and test sets of padding,
        look like class 0.
        """
        from manyseed.orchestrator.stored import open_all_rows

        return open_all_rows(self.paths)

    def analyze(
        self,
        options: Options | None = None,
        *,
        dask: str = "threads",
        cluster: str | None = None,
        workers: int | None = None,
        metrics: Sequence[str] = (),
        progress: ReportProgress | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> Results:
        """Compute the result tables of all that is finished, and write them.

        What did not change since they were written is not computed again. One analysis of a sweep
        goes on at a time.

        Parameters
        ----------
        options : Options
            By default those of the sweep file's table ``[analysis]``.
        dask : str
            threads, processes, or a dask scheduler's address; slurm: jobs that are workers of this
            process's scheduler.
        cluster : str
            Whose jobs, with slurm: a cluster profile, its file, or auto.
        workers : int
            Threads or processes; by default the cores that this process may use. With slurm: jobs,
            4 by default.
        metrics : sequence of str
            Without `options`: metrics of your own, ``"module:function"``, to compute beside the
            others. Those that the sweep file names are code that may come from anybody; they are
            left out, with a warning, unless they are named here, too.
        progress : callable
            Called after each block with (done, all).
        tell : callable
            Called with what has become of the jobs, with slurm.
        """
        from manyseed.orchestrator.results.conventions import conventions
        from manyseed.orchestrator.results.here import analyze

        return analyze(
            self.paths,
            options or conventions(self.paths, own=metrics),
            dask=dask,
            cluster=cluster,
            workers=workers,
            progress=progress,
            report=tell or (lambda text: None),
        )

    def submit_analysis(
        self,
        options: Options | None = None,
        *,
        cluster: str = "auto",
        dask: str = "threads",
        workers: int | None = None,
    ) -> Submission | None:
        """Submit the analysis as one job; return None where the same one waits or runs already.

        Parameters
        ----------
        options, dask, workers
            As in `analyze`, within the job.
        cluster : str
            A cluster profile, its file, or auto; the job asks for what its ``cpu`` class says.
        """
        from manyseed.orchestrator.results.job import submit

        return submit(self.paths, options, cluster=cluster, dask=dask, workers=workers)

    def analysis_job(self) -> AnalysisJob | None:
        """Return what has become of the analysis that was submitted last; None where none was."""
        from manyseed.orchestrator.results.job import look

        return look(self.paths)

    @property
    def results(self) -> Results:
        """The result tables by name, read when asked for; ``docs/results.md`` describes each."""
        return read_results(self.paths)

    def query(
        self,
        table: str = "cells",
        *,
        others: Sequence[Learning | str | Path] = (),
        sql: str | None = None,
        **options: Any,
    ) -> pl.DataFrame:
        """Return rows of a result table, of this sweep and of others; or what SQL asks of all.

        Parameters
        ----------
        table : str
            Its name.
        others : sequence of Sweep or path
            Sweeps whose rows stand below; the column ``sweep`` says which directory a row is of.
        sql : str
            One SELECT over the tables, instead of all else (`orchestrator.results.sql`).
        **options
            `where`, `columns`, `by`, `sort` and `agg`, as
            `orchestrator.results.query.Question` has them.
        """
        beside = [o.paths if isinstance(o, Learning) else open_sweep(Path(o)) for o in others]
        sweeps = {str(paths.directory): read_results(paths) for paths in (self.paths, *beside)}
        if sql is not None:
            from manyseed.orchestrator.results.sql import ask_sql

            return ask_sql(sweeps, sql)
        return ask(sweeps, Question(table, **options))

    def howmany(self, **options: Any) -> list[GroupAnswers]:
        """Say how many runs are needed; `orchestrator.results.howmany.howmany` says of what."""
        from manyseed.orchestrator.results.howmany import howmany

        return howmany(self.paths, **options)

    def compare(self, other: Learning | str | Path | None = None, **options: Any) -> list[Compared]:
        """Compare cells of this sweep, or this one with another: A with B.

        `orchestrator.results.comparing.compare_cells` says which, its options, and what it returns.
        """
        from manyseed.orchestrator.results.comparing import compare_cells

        if isinstance(other, str | Path):
            return compare_cells(self.paths, open_sweep(Path(other)), **options)
        second = None if other is None else other.paths
        return compare_cells(self.paths, second, **options)

    def dee(self, **options: Any) -> list[DeepAnswers]:
        """Say what averaging runs is worth; `orchestrator.results.dee.dee` says of what."""
        from manyseed.orchestrator.results.dee import dee

        return dee(self.paths, **options)

    def variance(self, where: str | None = None) -> list[VarianceSplit]:
        """Say where the variance comes from (`orchestrator.results.variance.variance`)."""
        from manyseed.orchestrator.results.variance import variance

        return variance(self.results, where)

    def answers(self) -> list[str]:
        """Return what the page begins with: what the tables say, in sentences."""
        from manyseed.orchestrator.results.reporting import answers

        return [one.text for one in answers(self.paths)]

    @property
    def plot(self) -> Plots:
        """The figures of the results: ``sweep.plot.accuracy(by="perturb_continuous")``.

        ``sweep.plot.kinds`` lists them; `orchestrator.results.plotting` says more.
        """
        from manyseed.orchestrator.results.plotting import Plots

        return Plots(self.paths)

    def report(self, tell: Callable[[str], None] | None = None) -> Path:
        """Write the report's page; return where it is.

        `tell` gets what files are lost without which the page says less: it says so, too.
        """
        from manyseed.orchestrator.results.reporting import report

        return report(self.paths, self.name, tell)
