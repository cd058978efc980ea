"""The verbs of `Sweep` for predictions and results: open, analyse, ask and report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from manyseed.orchestrator.calls import from_python, further
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.paths import SweepPaths, open_sweep

if TYPE_CHECKING:
    import polars as pl
    import xarray as xr

    from manyseed.analysis.graph.group import ReportProgress
    from manyseed.analysis.options import Options
    from manyseed.analysis.questions.question import Answer
    from manyseed.orchestrator.analyses.jobstate import AnalysisJob
    from manyseed.orchestrator.computing.tables import Results
    from manyseed.orchestrator.results.answers.comparison import Compared
    from manyseed.orchestrator.results.answers.dee import DeepAnswers
    from manyseed.orchestrator.results.answers.howmany import GroupAnswers
    from manyseed.orchestrator.results.answers.likeness import Alike
    from manyseed.orchestrator.results.answers.variance import VarianceSplit
    from manyseed.orchestrator.results.figures import Plots
    from manyseed.orchestrator.store.lazy import FinishedRuns
    from manyseed.orchestrator.submissions.submission import Submission


@from_python("Sweep")
class Learning:
    """The verbs of `Sweep` for predictions and results."""

    paths: SweepPaths

    @cached_property
    def name(self) -> str:
        """The sweep's name."""
        import tomllib

        with suppress(OSError, ValueError, LookupError, RecursionError):
            name = tomllib.loads(self.paths.sweep_file.read_bytes().decode("utf-8-sig"))["name"]
            if isinstance(name, str):
                return name
        from manyseed.orchestrator.grids.loading import read_sweep_file  # says what is wrong

        return read_sweep_file(self.paths.sweep_file).name

    @property
    def predictions(self) -> xr.DataTree:
        """The predictions of finished runs, lazily: a tree /dataset/classifier of datasets.

        Paths are percent-encoded. Only published runs are included; `compact` publishes all
        finished runs if nothing trains.
        """
        from manyseed.orchestrator.stored import open_finished_runs

        return open_finished_runs(self.paths)

    def runs(self, dataset: str, classifier: str, *, words: bool = False) -> FinishedRuns:
        """Return the finished runs of a dataset and classifier, lazily, with coordinates in words.

        Parameters
        ----------
        dataset, classifier : str
            As the sweep file names them.
        words : bool
            Whether ``label`` and ``y_true`` are names of classes instead of their numbers. Numbers
            compare with names, too: ``runs.y_true == "benign"``.

        Returns
        -------
        xarray Dataset
            Dimensions ``run``, ``sample`` and others as in `predictions`. Coordinates of each run:
            ``cell``, ``repeat_index``, ``run_index``, ``train_fraction``, ``is_copy``, and in the
            sweep file's words ``perturb_continuous``, ``perturb_categorical``, ``perturb_hparams``,
            ``hparams`` and ``vary``. ``y_true`` is each run's own: (run, sample). It may hold runs
            of several cells, and says so when it is printed; ``accuracy_by_cell()`` returns the
            accuracy of each. Where ``where`` leaves labels missing, comparisons are missing, too.

        Raises
        ------
        orchestrator.errors.UserError
            If the sweep has no such combination.

        Examples
        --------
        >>> runs = sweep.runs("digits", "mlp")
        >>> runs.accuracy_by_cell()
        >>> right = runs.label.isel(epoch=-1) == runs.y_true
        >>> right.mean("sample").groupby("perturb_continuous").std()
        """
        from manyseed.orchestrator.stored import open_named_runs

        return open_named_runs(self.paths, dataset, classifier, names=words)

    @property
    def raw_predictions(self) -> xr.DataTree:
        """As `predictions`, but with all rows of the store, even those without predictions.

        Only rows whose ``status`` is 1 or 2 have predictions: in others, and in padded test sets,
        labels look like class 0.
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
        """Compute and write the result tables of all finished runs.

        Results whose inputs have not changed are not computed again. Only one analysis of a sweep
        runs at a time.

        Parameters
        ----------
        options : Options
            By default those of the sweep file's table ``[analysis]``.
        dask : str
            threads, processes, or a dask scheduler's address; slurm: jobs that are workers of this
            process's scheduler.
        cluster : str
            With slurm, the cluster: a cluster profile, its file, or auto.
        workers : int
            Number of threads or processes; by default the cores that this process may use. With
            slurm: number of jobs, 4 by default.
        metrics : sequence of str
            Without `options`: your own metrics, ``"module:function"``, to compute beside the
            others. Own metrics in the sweep file are code that may come from anybody; they are left
            out, with a warning, unless they are named here, too.
        progress : callable
            Called after each block with (done, all).
        tell : callable
            With slurm, called with the state of the jobs.
        """
        from manyseed.orchestrator.analyses.execution import analyze
        from manyseed.orchestrator.computing.conventions import conventions

        _require_options(options)
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
        """Submit the analysis as one job; return None if the same one already waits or runs.

        Parameters
        ----------
        options, dask, workers
            As in `analyze`, within the job.
        cluster : str
            A cluster profile, its file, or auto; the job asks for the resources of its ``cpu``
            class.
        """
        from manyseed.orchestrator.analyses.execution import submit

        _require_options(options)
        return submit(self.paths, options, cluster=cluster, dask=dask, workers=workers)

    def analysis_job(self) -> AnalysisJob | None:
        """Return the state of the analysis that was submitted last; None if none was."""
        from manyseed.orchestrator.analyses.jobstate import look

        return look(self.paths)

    @property
    def results(self) -> Results:
        """The result tables by name, read on access; ``docs/results.md`` describes each.

        Warns, as do all methods that show results, if runs have finished since the analysis.
        """
        from manyseed.orchestrator.computing.tables import read_results
        from manyseed.orchestrator.results.caveats import tell_newer

        tell_newer(self.paths)
        return read_results(self.paths)

    @further("asking.query:Query")
    def query(
        self,
        table: str = "cells",
        *,
        others: Sequence[Learning | str | Path] = (),
        sql: str | None = None,
        **options: Any,
    ) -> pl.DataFrame:
        """Return rows of a result table, of this sweep and others, or the result of an SQL query.

        Parameters
        ----------
        table : str
            Name of the table.
        others : sequence of Sweep or path
            Sweeps whose rows are appended; the column ``sweep`` holds each row's directory.
        sql : str
            One SELECT over the tables, instead of all other arguments (`orchestrator.asking.sql`).
        **options
            `where`, `columns`, `by`, `sort` and `agg`, as in
            `orchestrator.asking.query.Query`.
        """
        from manyseed.orchestrator.asking.query import Query, ask
        from manyseed.orchestrator.computing.tables import read_results
        from manyseed.orchestrator.results.caveats import tell_newer

        every = [self.paths, *(_paths("others", other) for other in others)]
        for paths in every:
            tell_newer(paths)
        sweeps = {str(paths.directory): read_results(paths) for paths in every}
        if sql is not None:
            from manyseed.orchestrator.asking.sql import ask_sql

            return ask_sql(sweeps, sql)
        return ask(sweeps, Query(table, **options))

    @further("results.answers.howmany:howmany", but=("paths",))
    def howmany(self, **options: Any) -> list[GroupAnswers]:
        """Return how many runs are needed; see `orchestrator.results.answers.howmany.howmany`."""
        found: list[GroupAnswers] = self._found("howmany", options)
        return found

    @further("results.answers.compare:compare_cells", but=("paths",))
    def compare(self, other: Learning | str | Path | None = None, **options: Any) -> list[Compared]:
        """Compare cells of this sweep, or of this one (A) with another (B).

        See `orchestrator.results.answers.compare.compare_cells` for the options and the result.
        """
        found: list[Compared] = self._found("compare", {"other": other, **options})
        return found

    @further("results.answers.likeness:alike", but=("paths",))
    def alike(self, other: Learning | str | Path | None = None, **options: Any) -> list[Alike]:
        """Say whether A's runs are like B's, by α̂ and error consistency between them.

        See `orchestrator.results.answers.likeness.alike` for the options and the result.
        """
        found: list[Alike] = self._found("alike", {"other": other, **options})
        return found

    @further("results.answers.dee:dee", but=("paths",))
    def dee(self, **options: Any) -> list[DeepAnswers]:
        """Return what averaging runs is worth; see `orchestrator.results.answers.dee.dee`."""
        found: list[DeepAnswers] = self._found("dee", options)
        return found

    def variance(self, where: str | None = None) -> list[VarianceSplit]:
        """Return where the variance comes from; see `results.answers.variance.variance`."""
        found: list[VarianceSplit] = self._found("variance", {"where": where})
        return found

    @overload
    def answers(self) -> list[str]: ...

    @overload
    def answers(self, question: str, **options: Any) -> list[Answer]: ...

    def answers(self, question: str | None = None, **options: Any) -> list[str] | list[Answer]:
        """Return the sentences that the page begins with, or the answers to one question.

        Parameters
        ----------
        question : str, optional
            Its name: ``sweep.answers("variance", where="classifier = 'mlp'")``; those of
            ``manyseed answers DIR``.
        **options
            Those of the question.

        Returns
        -------
        list of str, or of Answer
            An `Answer` has `headline`, `details` and `rows`, the numbers.
        """
        from manyseed.orchestrator.results.answers.summary import answers
        from manyseed.orchestrator.results.caveats import tell_newer
        from manyseed.orchestrator.results.questions.registry import reply

        if question is not None:
            return [*reply(self, question, **options).answers]
        for name in options:
            remedy = "name a question before its options"
            raise UserError("Sweep.answers() has no such argument", key=name, remedy=remedy)
        tell_newer(self.paths)
        return [one.headline for one in answers(self.paths)]

    def _found(self, question: str, options: dict[str, Any]) -> Any:
        from manyseed.orchestrator.results.questions.registry import ask, named

        return ask(self, named(question), **options)

    @property
    def plot(self) -> Plots:
        """The figures of the results: ``sweep.plot.accuracy(by="perturb_continuous")``.

        ``sweep.plot.kinds`` lists them; see `orchestrator.results.figures`.
        """
        from manyseed.orchestrator.results.caveats import tell_newer
        from manyseed.orchestrator.results.figures import Plots

        tell_newer(self.paths)
        return Plots(self.paths)

    def report(self, tell: Callable[[str], None] | None = None) -> Path:
        """Write the report's page; return its path.

        `tell` is called for each lost file without which the page is incomplete; the page lists
        them, too.
        """
        from manyseed.orchestrator.results.caveats import tell_newer
        from manyseed.orchestrator.results.page import report

        tell_newer(self.paths)
        return report(self.paths, self.name, tell)


def _paths(argument: str, sweep: Learning | str | Path) -> SweepPaths:
    """Return the paths of a sweep that an argument gives by itself or by its directory."""
    if isinstance(sweep, Learning):
        return sweep.paths
    if not isinstance(sweep, str | Path):
        reason = f"must be a Sweep or its directory, not {type(sweep).__name__}"
        raise UserError(reason, key=argument)
    return open_sweep(Path(sweep))


def _require_options(options: object) -> None:
    from manyseed.analysis.options import Options

    if not isinstance(options, Options | None):
        reason = f"must be manyseed.analysis.options.Options, not {type(options).__name__}"
        raise UserError(reason, key="options", remedy="such as: Options(ece_bins=10)")
