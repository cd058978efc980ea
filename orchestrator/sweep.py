"""A sweep from Python: the command's verbs as methods, its errors as exceptions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from manyseed.orchestrator.calls import from_python, further
from manyseed.orchestrator.errors import UserError, command
from manyseed.orchestrator.paths import SweepPaths, open_sweep

if TYPE_CHECKING:
    import polars as pl
    import xarray as xr
    from distributed import Client

    from manyseed.analysis.graph.chunks import ReportProgress
    from manyseed.analysis.options import Options
    from manyseed.analysis.questions.question import Answer
    from manyseed.orchestrator.analyses import AnalysisJob
    from manyseed.orchestrator.computing.tables import Results
    from manyseed.orchestrator.parts import Merged, SweepPart
    from manyseed.orchestrator.plans.change import Drop
    from manyseed.orchestrator.plans.searches import Search
    from manyseed.orchestrator.progress.status import Status
    from manyseed.orchestrator.receipt import SealCheck, Sealed
    from manyseed.orchestrator.responding import Responded
    from manyseed.orchestrator.results.answers.comparison import Compared
    from manyseed.orchestrator.results.answers.dee import DeepAnswers
    from manyseed.orchestrator.results.answers.howmany import GroupAnswers
    from manyseed.orchestrator.results.answers.likeness import Likeness
    from manyseed.orchestrator.results.answers.until import CellEstimate
    from manyseed.orchestrator.results.answers.variance import VarianceSplit
    from manyseed.orchestrator.results.figures import Plots
    from manyseed.orchestrator.runs import Differences, Rerun
    from manyseed.orchestrator.store.compact import Compaction
    from manyseed.orchestrator.store.lazy import FinishedRuns
    from manyseed.orchestrator.submissions.memory import Usage
    from manyseed.orchestrator.submissions.submission import Submission
    from manyseed.orchestrator.survey import Survey
    from manyseed.orchestrator.upkeep import Verified


@from_python("Sweep")
class Sweep:
    """A sweep directory.

    Its methods, in the usual order of work:

    - create: `plan` a sweep file, train an estimator (`of`), import predictions from files
      (`import_predictions`) or memory (`from_predictions`, `add_predictions`)
    - train: `tune`, `submit`, `wait`, `cancel`, `pause`, `throttle`; progress: `status`,
      `usage`, `survey`, `submissions`, `running`, `is_running`
    - maintain: `verify`, `compact`, `export`, `seal`, `verify_sealed`, `drop`; on two sites:
      `split`, `merge`; one run: `show`, `rerun`, several: `rerun_where`
    - open predictions: `runs` of a dataset and classifier, `predictions`, `raw_predictions`;
      ask kept models: `respond`
    - learn: `analyze` here or `submit_analysis` as a job (`analysis_job`), then `answers`,
      `results`, `query`, `howmany`, `howmany_until`, `compare`, `alike`, `variance`, `dee`,
      `methods`, `plot`, `report`

    Parameters
    ----------
    directory : path
        A directory made by ``manyseed plan`` or `Sweep.plan`.

    Raises
    ------
    orchestrator.errors.ManyseedError
        If the directory is not a sweep, and from all methods: `UserError` for wrong requests,
        `UnavailableError` if a cluster, a disk or a package is not available, `DamagedFile` for
        files that cannot be read.

    Examples
    --------
    >>> sweep = Sweep.plan("sweep.toml", "my-sweep")
    >>> sweep.submit(); sweep.wait()
    >>> sweep.analyze(); sweep.results["cells"]
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self.readable = open_sweep(self.directory, to_read=True)

    @cached_property
    def paths(self) -> SweepPaths:
        """The sweep's files; what only reads results takes them from `readable`."""
        return open_sweep(self.directory)

    def __repr__(self) -> str:
        from manyseed.orchestrator.progress.status import summary

        return "\n".join([f"Sweep({str(self.directory)!r})", *summary(self.readable)])

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        import html

        first, *others = map(html.escape, repr(self).splitlines())
        return f"<pre><b>{first}</b>\n" + "\n".join(others) + "</pre>"

    @classmethod
    def plan(
        cls,
        sweep_file: str | Path | Mapping[str, Any],
        directory: str | Path | None = None,
        *,
        other_recipe: bool = False,
    ) -> Sweep:
        """Plan a sweep file, into a new directory or as an addition to the sweep there.

        Parameters
        ----------
        sweep_file : path or mapping
            A file, or its content: ``{"name": …, "runs": 10, "grid": [{…}], …}``. Files named in a
            mapping are looked for in the working folder.
        directory : path, optional
            By default the sweep's name, in the working folder.
        other_recipe : bool
            Add runs although code of your own differs from that of finished ones.

        Raises
        ------
        UserError
            For a key or a value that is not allowed, data that do not exist, or changed code.
        """
        from manyseed.orchestrator.grids.loading import name_of
        from manyseed.orchestrator.grids.objects import require_guard, written
        from manyseed.orchestrator.plans.change import warn_of
        from manyseed.orchestrator.plans.code import prepare_read
        from manyseed.orchestrator.plans.planning import plan_sweep
        from manyseed.orchestrator.submissions.requirements import warn_of_code

        with ExitStack() as stack:
            if isinstance(sweep_file, Mapping):
                require_guard()
                file = stack.enter_context(written(sweep_file))
            else:
                file = Path(sweep_file)
            target = Path(name_of(file) if directory is None else directory)
            require = None if other_recipe else warn_of_code
            change = plan_sweep(file, target, require=require)
            prepare_read(change.expansion.datasets)
        warn_of(change)
        return cls(target)

    @classmethod
    @further("grids.sweepfile:Grid", but=("dataset", "classifier"))
    def of(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        groups: Any = None,
        runs: int = 100,
        repeats: int = 1,
        test: float = 0.25,
        seed: int = 0,
        directory: str | Path | None = None,
        cluster: str = "auto",
        workers: int | None = None,
        other_recipe: bool = False,
        train: bool = True,
        options: Mapping[str, Any] | None = None,
        **grid: Sequence[Any],
    ) -> Sweep:
        """Train an estimator many times on data in memory, and analyse how much results vary.

        With the same directory again, it continues where it stopped, or adds runs.

        Parameters
        ----------
        estimator : object, str or list of str
            A scikit-learn estimator, described by its class and parameters; each run has its own
            seeds. Or ``"module:name"``, or classifiers of manyseed by their names, such as
            ``"xgb"`` or ``["xgb", "mlp"]``.
        X : array (sample, feature) of numbers, or a polars or pandas frame
        y : array (sample,)
            Classes.
        groups : array (sample,), optional
            Rows that share a value, such as a patient, are never split between training and test.
        runs, repeats : int
            Number of fits per test set, and of test sets.
        test : float or int
            Size of the test set: a share, or a number of points.
        seed : int
            Seed of all streams.
        directory : path, optional
            By default ``sweep-NAME`` in the working folder, after the estimator's class.
        cluster, workers, other_recipe
            As in `submit`: ``cluster="local"`` trains on this machine, even if it submits jobs.
        train : bool
            Whether to train and analyse; otherwise only plan and prepare the data.
        options : mapping, optional
            Further keys of the table ``[classifier.NAME]``, such as ``space``: docs/own.md.
        **grid : sequences
            Axes of the grid, such as ``perturb_continuous = ["none", "relative:0.5"]``.

        Examples
        --------
        >>> Sweep.of(RandomForestClassifier(), X, y, runs=100).results["cells"]["accuracy_mean"]
        """
        from manyseed.orchestrator.plans.planning import plan_objects
        from manyseed.orchestrator.submissions.requirements import warn_of_code
        from manyseed.orchestrator.submissions.submission import place

        def check(target: Path) -> None:
            if train:
                place(SweepPaths(target), cluster, workers)

        sweep = cls(
            plan_objects(
                estimator,
                X,
                y,
                groups=groups,
                directory=directory,
                options=options or {},
                grid=grid,
                check=check,
                require=None if other_recipe else warn_of_code,
                seed=seed,
                repeats=repeats,
                runs=runs,
                test=test,
            )
        )
        if train:
            sweep.submit(cluster=cluster, workers=workers, other_recipe=other_recipe)
            sweep.wait()
            sweep.analyze()
        return sweep

    @classmethod
    @further("importing:import_predictions", but=("adding", "tried"))
    def import_predictions(
        cls, files: Sequence[str | Path], directory: str | Path, **options: Any
    ) -> Sweep:
        """Make a sweep directory from files of predictions that were made elsewhere."""
        from manyseed.orchestrator.importing import import_predictions

        import_predictions([Path(file) for file in files], Path(directory), **options)
        return cls(directory)

    @classmethod
    @further("importing:import_arrays", but=("adding",))
    def from_predictions(
        cls, predictions: Mapping[str, Any], directory: str | Path, **options: Any
    ) -> Sweep:
        """Make a sweep directory from predictions in memory.

        Parameters
        ----------
        predictions : mapping
            Arrays by name, as in an NPZ file (docs/import.md): ``scores`` (run, sample, class) or
            ``labels`` (run, sample), ``y_true`` (sample,) and others; or such a mapping for each
            classifier, by its name.
        directory : path
        **options
            dataset, classifier, probability and probabilities, as in `import_predictions`.

        Examples
        --------
        >>> of = {"cnn": {"scores": a, "y_true": y}, "vit": {"scores": b, "y_true": y}}
        >>> Sweep.from_predictions(of, "both", dataset="digits")
        """
        from manyseed.orchestrator.importing import import_arrays

        import_arrays(predictions, Path(directory), **options)
        return cls(directory)

    @further("importing:import_arrays", but=("directory", "adding"))
    def add_predictions(self, predictions: Mapping[str, Any], **options: Any) -> None:
        """Add runs to a sweep of imported predictions: all of them, or none.

        Parameters
        ----------
        predictions : mapping
            As in `from_predictions`, for the sweep's test sets. Runs are numbered after existing
            ones, unless ``run`` numbers them.
        **options
            As in `from_predictions`; dataset and classifier default to the sweep's only ones.

        Raises
        ------
        UserError
            If they don't fit the sweep; nothing has changed then.
        """
        from manyseed.orchestrator.importing import import_arrays

        import_arrays(predictions, self.paths.directory, adding=True, **options)

    def submit(
        self,
        *,
        cluster: str = "auto",
        workers: int | None = None,
        failed: bool = False,
        other_recipe: bool = False,
        only: str | None = None,
        limit: int | None = None,
        memory: str | None = None,
        calibrate: bool = False,
        chain: bool | Options | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> Submission | None:
        """Submit the missing runs (or exactly the failed ones); return None if there are none.

        Parameters
        ----------
        cluster : str
            The name of a cluster profile, or its file; ``local`` for this machine. ``auto``: this
            machine if `workers` is given; else where runs were last submitted; else, on a machine
            with ``sbatch`` and outside of jobs, the user's only profile; else this machine.
        workers : int
            Most training processes on this machine; by default the available cores.
        failed : bool
            Train only the failed runs again, with the same seeds.
        other_recipe : bool
            Continue with other versions or other code than before; results mark these repeats.
        only : str
            Only cells that meet a condition, such as ``classifier = 'mlp'``.
        limit : int
            Submit at most so many runs, spread over the cells: a pilot.
        memory : str
            Memory for each task on a cluster, instead of the profile's: ``32G``; ``auto``: what
            tasks have used so far, and a quarter more.
        calibrate : bool
            Only measure: a few runs of each dataset and classifier, the cheapest first, for about
            30 s of each process. They are kept, and what all others take is estimated by them.
        chain : bool or Options
            On a cluster: whether jobs also search for hparams first, and analyse (with these
            options) and write the page when the training has ended. By default, as before.
        tell : callable
            Called with a message if `submit` waits for tasks that were asked to stop.

        Raises
        ------
        orchestrator.errors.StillRunning
            If all missing runs belong to such tasks, and these did not end within minutes.
        """
        from manyseed.orchestrator.analyses import chained
        from manyseed.orchestrator.plans.plan import Plan
        from manyseed.orchestrator.submissions.submission import place
        from manyseed.orchestrator.submissions.submitting import Request, submit
        from manyseed.slurm import local

        _require_options(None if isinstance(chain, bool) else chain)

        if Plan.read(self.paths).is_imported:
            return None
        profile = place(self.paths, cluster, workers, memory)
        cores = workers or local.available_cores()
        request = Request(profile, cores, failed, other_recipe, only, limit, memory, calibrate)
        report = tell or (lambda text: None)
        if (then := chained(self.paths, request, chain)) is None:
            return submit(self.paths, request, report)
        from manyseed.orchestrator.analyses.execution import submit_chain

        return submit_chain(self.paths, request, then, report)

    def tune(
        self,
        *,
        cluster: str = "auto",
        workers: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Search]:
        """Search for the hparams and scales that cells still need; return the completed searches.

        Parameters
        ----------
        cluster : str
            ``local``: on this machine; ``auto``: the same, unless it looks like a login node.
        workers : int
            Most training processes on this machine; by default the available cores. If given, the
            search runs here.
        progress : callable
            Called after each draw with (evaluated draws, all draws).
        """
        from manyseed.orchestrator.submissions import profiles
        from manyseed.orchestrator.submissions.submission import last_intent
        from manyseed.orchestrator.tuning import tune
        from manyseed.slurm import local

        if not workers:
            again = command("plan", self.paths.directory, "--tune")
            profiles.require_search_here(cluster, last_intent(self.paths), again)
        report = progress or (lambda done, of: None)
        return tune(self.paths, workers=workers or local.available_cores(), report=report)

    def respond(
        self,
        options: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        where: str | None = None,
        spectra: int | None = None,
        workers: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Responded:
        """Measure response curves of finished runs that keep their parameters.

        Parameters
        ----------
        options : mapping
            Keys as in the sweep file's table ``[response]``: transforms, layers, rows, draws, …
        name : str
            The table's name; by default the transforms, or spectra.
        where : str
            Only cells that meet a condition.
        spectra : int
            Instead of curves: singular values of networks' Jacobians, at up to N test points.
        workers : int
            Processes on this machine; by default the available cores.
        progress : callable
            Called after each model with (models that have answered, all models).
        """
        from manyseed.orchestrator.responding import respond
        from manyseed.slurm import local

        asked: dict[str, Any] = {"name": name, "where": where, "spectra": spectra}
        workers, report = workers or local.available_cores(), progress or (lambda done, of: None)
        return respond(self.paths, options or {}, **asked, workers=workers, report=report)

    def submissions(self) -> list[Submission]:
        """Return all submissions, oldest first."""
        from manyseed.orchestrator.submissions.submission import submissions

        return submissions(self.paths)

    def running(self) -> list[Submission]:
        """Return the submissions with tasks that run, or will."""
        from manyseed.orchestrator.submissions.submission import running

        return running(self.submissions())

    @property
    def is_running(self) -> bool:
        """Whether any task of the sweep runs, or will."""
        return bool(self.running())

    def wait(self) -> None:
        """Wait until no task of the sweep runs or waits."""
        from manyseed.orchestrator.tasks.intent import LOCAL

        while running := self.running():
            time.sleep(0.1 if all(one.cluster == LOCAL for one in running) else 1.0)

    def cancel(self, only: str | None = None, *, now: bool = False) -> tuple[int, int]:
        """Stop running tasks after their current fits; waiting tasks never start.

        Parameters
        ----------
        only : str
            Only cells that meet a condition, such as ``classifier = 'mlp'``.
        now : bool
            End the fits in flight, too; the next submission trains them again.

        Returns
        -------
        tuple of int
            Numbers of tasks that were asked to stop, and of waiting ones. With `only`, the first
            is 0.
        """
        from manyseed.orchestrator.analyses import cancel
        from manyseed.orchestrator.submissions import stopping

        if only is None:
            return cancel(self.paths, now=now)
        from manyseed.orchestrator.plans.change import choose_cells
        from manyseed.orchestrator.plans.plan import Plan

        cells = choose_cells(Plan.read(self.paths), only, "--only")
        return 0, stopping.cancel_cells(self.submissions(), cells["cell"].to_list())

    def pause(self) -> tuple[int, int]:
        """Stop running tasks after their current fits; hold waiting ones until `submit`.

        Returns
        -------
        tuple of int
            Numbers of tasks that were asked to stop, and of those held.
        """
        from manyseed.orchestrator.submissions import stopping

        return stopping.pause(self.submissions())

    def throttle(self, parallelism: int) -> int:
        """Limit how many tasks run at once on a cluster, shared among its job arrays.

        Parameters
        ----------
        parallelism : int
            At most so many; 0: no limit.

        Returns
        -------
        int
            Number of job arrays that were changed.
        """
        from manyseed.orchestrator.submissions import stopping

        return stopping.throttle(self.submissions(), parallelism)

    def survey(self) -> Survey:
        """Return the state of every run."""
        from manyseed.orchestrator.survey import survey

        return survey(self.paths)

    def status(self) -> Status:
        """Return the sweep's progress: `orchestrator.progress.status.Status`, JSON values."""
        from manyseed.orchestrator.progress.status import status

        return status(self.paths)

    def usage(self) -> list[Usage]:
        """Return the memory and cores that tasks asked for and used, by cluster and class."""
        from manyseed.orchestrator.submissions.memory import usage

        return usage(self.submissions())

    def show(self, address: str) -> dict[str, object]:
        """Return what defines a run, and how it was made or why it failed, as JSON values.

        Parameters
        ----------
        address : str
            ``CELL:REPEAT:RUN``, counted from 0.

        Returns
        -------
        dict
            What ``manyseed status DIR RUN --json`` prints.

        Raises
        ------
        UserError
            For an address without such a run.
        """
        from manyseed.orchestrator.progress.logs import unfinished
        from manyseed.orchestrator.runs import show

        value = show(self.paths, address)
        stored = value["stored"]
        if isinstance(stored, dict) and stored["status"] == "missing":
            now, failed = unfinished(self.paths, address)
            value |= {"stored": stored | now, **({"failed": failed} if failed else {})}
        return value

    def rerun(self, address: str, save: str | Path | None = None) -> Differences:
        """Train a run again on a CPU here; return how it differs from the stored run.

        Parameters
        ----------
        address : str
            ``CELL:REPEAT:RUN``, counted from 0.
        save : path, optional
            A new file for the model: ``.pt`` or ``.npz`` for a network, ``.npz`` for a linear
            model, ``.json`` for XGBoost, ``.skops`` for an estimator.

        Returns
        -------
        dict
            As `orchestrator.runs.Differences`: ``equal`` says whether it is the same bit for bit.
        """
        from manyseed.orchestrator.runs import rerun

        return rerun(self.paths, address, None if save is None else Path(save))

    def rerun_where(
        self,
        where: str | None = None,
        *,
        best: int | None = None,
        save: str | Path | None = None,
        overwrite: bool = False,
        other_recipe: bool = False,
        tell: Callable[[Rerun, int], None] | None = None,
    ) -> list[Rerun]:
        """Retrain, one by one, the runs that meet an SQL condition over the table of runs.

        `Rerun.problem` says if a run failed or differs.

        Parameters
        ----------
        where : str
            Runs that meet a condition on the table runs.
        best : int
            Only so many runs of each cell, the most accurate ones.
        save : path
            Write each model to this folder, as ``CELL-REPEAT-RUN`` with the suffix of its form, if
            it predicts what is stored: bit for bit in the same recipe, else the same labels.
        overwrite : bool
            Train also runs whose file is already in the folder.
        other_recipe : bool
            With other versions or another CPU, write a model even if its labels differ from those
            stored.
        tell : callable
            Called after each run with (its outcome, number of runs).
        """
        from manyseed.orchestrator.asking.query import chosen_runs
        from manyseed.orchestrator.runs import rerun_each

        return rerun_each(
            self.paths,
            chosen_runs(self.results, where, best),
            None if save is None else Path(save),
            overwrite=overwrite,
            other_recipe=other_recipe,
            tell=tell or (lambda one, of: None),
        )

    def drop(self, where: str, *, dry_run: bool = False) -> Drop:
        """Take the cells that meet an SQL condition out of the plan for good.

        Raises `orchestrator.errors.UserError` while something trains.

        Parameters
        ----------
        where : str
            The cells, such as ``classifier = 'mlp'``.
        dry_run : bool
            Show the cells; write nothing.
        """
        from manyseed.orchestrator.plans.change import to_drop
        from manyseed.orchestrator.upkeep import drop

        return to_drop(self.paths, where) if dry_run else drop(self.paths, where)

    def compact(self, progress: Callable[[int, int], None] | None = None) -> Compaction:
        """Publish everything in journals, remove what is no longer needed, consolidate metadata.

        Raises `orchestrator.errors.LeaseHeld` while something of the sweep runs. `progress` is
        called before the first shard and after each with (finished shards, shards to publish).
        """
        from manyseed.orchestrator.upkeep import compact

        return compact(self.paths, progress or (lambda done, of: None))

    def verify(
        self, *, repair: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> Verified:
        """Check every finished run, in store and journals; with `repair`, repair what is wrong.

        Whatever can be derived is rebuilt: a lost plan from the sweep's file if all else was made
        for it, coordinates and descriptions from the plan, test sets from the data, checksums from
        predictions. Runs are restored from journals, and set back to
        missing only if no journal holds them.

        Parameters
        ----------
        repair : bool
            Restore what is damaged from what is left; runs that cannot be restored are set back to
            missing, to be trained again.
        progress : callable
            Called before the first shard and after each with (checked shards, all shards).

        Returns
        -------
        dict
            As `orchestrator.upkeep.Verified`.
        """
        from manyseed.orchestrator.upkeep import verify

        return verify(self.paths, repair=repair, progress=progress or (lambda done, of: None))

    def seal(
        self,
        terms: str | None = None,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> Sealed:
        """Write a receipt, ``ro-crate-metadata.json``, with the SHA-256 of all that matters.

        Runs in journals are published first. Nothing may train meanwhile.

        Parameters
        ----------
        terms : str
            Under which terms others may use the sweep: a name, an address or a sentence.
        progress : callable
            Called before the first file and after each with (files read, all files).

        Returns
        -------
        dict
            As `orchestrator.receipt.Sealed`.
        """
        from manyseed.orchestrator.receipt import seal

        return seal(self.paths, terms, progress or (lambda done, of: None))

    def verify_sealed(self, *, progress: Callable[[int, int], None] | None = None) -> SealCheck:
        """Compare every file with the receipt; ``findings`` names those that differ.

        `progress` is called before the first file and after each with (files read, all files).
        Returns an `orchestrator.receipt.SealCheck`.
        """
        from manyseed.orchestrator.receipt import compare

        return compare(self.paths, progress or (lambda done, of: None))

    def split(self, where: str, out: str | Path) -> SweepPart:
        """Make a part of the sweep, to be trained elsewhere: a directory with some of its cells.

        Its runs have the same identities and rows, and it has those that are finished. Nothing may
        train meanwhile.

        Parameters
        ----------
        where : str
            The cells that are in the part: a condition, such as ``classifier = 'mlp'``.
        out : path
            The new directory.

        Returns
        -------
        dict
            As `orchestrator.parts.SweepPart`.
        """
        from manyseed.orchestrator.parts import split

        return split(self.paths, where, Path(out))

    def merge(
        self,
        parts: Sequence[str | Path],
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> Merged:
        """Add the finished runs of parts that `split` made, each with its recipe.

        Runs that the sweep has with the same bytes are left out, so merging twice changes nothing.
        If it has others of a run, nothing is merged.

        Parameters
        ----------
        parts : sequence of path
            Their directories.
        progress : callable
            Called before the first run and after some with (merged runs, runs to merge).

        Returns
        -------
        dict
            As `orchestrator.parts.Merged`.
        """
        from manyseed.orchestrator.parts import merge

        return merge(self.paths, [*map(Path, parts)], progress or (lambda done, of: None))

    def export(self, output: str | Path) -> Path:
        """Write one portable copy of the finished runs to a new file; return its path.

        A name in ``.zip`` gives a Zarr zip, one in ``.parquet`` a table of labels, a row per run,
        and one in ``.csv`` a long one: a line per run and test point, with ids of rows.
        """
        from manyseed.orchestrator.upkeep import export

        return export(self.paths, Path(output))

    @further("results.answers.until:ask_until", but=("sweep", "dry_run", "report"))
    def howmany_until(
        self,
        half_width: float,
        *,
        cluster: str = "auto",
        workers: int | None = None,
        tell: Callable[[str], None] | None = None,
        **options: Any,
    ) -> list[CellEstimate]:
        """Train blocks of runs until each cell's mean accuracy is known to ± `half_width`.

        Parameters
        ----------
        tell : callable
            Called with a message before each step.

        Raises
        ------
        UserError
            For invalid values, or a sweep of imported predictions.
        RunsError
            If runs failed: more runs of the cell would not replace them.
        """
        from manyseed.orchestrator.results.answers.until import until

        report = tell or (lambda text: None)

        def train(only: str | None) -> None:
            self.submit(cluster=cluster, workers=workers, only=only, tell=report)
            self.wait()

        return until(
            self.paths, half_width, train=train, analyze=self.analyze, tell=report, **options
        )

    @cached_property
    def name(self) -> str:
        """The sweep's name."""
        if self.readable.lost is not None:
            return self.directory.resolve().name
        from manyseed.orchestrator.grids.naming import name_in

        return name_in(self.readable.sweep_file)

    @property
    def predictions(self) -> xr.DataTree:
        """The predictions of finished runs, lazily: a tree /dataset/classifier of datasets.

        Paths are percent-encoded. Only published runs are included; `compact` publishes all
        finished runs if nothing trains.
        """
        from manyseed.orchestrator.sweepstore import open_finished_runs

        return open_finished_runs(self.paths)

    def runs(
        self, dataset: str | None = None, classifier: str | None = None, *, words: bool = False
    ) -> FinishedRuns:
        """Return the finished runs of a dataset and classifier, lazily, with coordinates in words.

        Parameters
        ----------
        dataset, classifier : str
            As the sweep file names them; not needed where there is one.
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
        from manyseed.orchestrator.sweepstore import open_named_runs

        return open_named_runs(self.paths, dataset, classifier, names=words)

    @property
    def raw_predictions(self) -> xr.DataTree:
        """As `predictions`, but with all rows of the store, even those without predictions.

        Only rows whose ``status`` is 1 or 2 have predictions: in others, and in padded test sets,
        labels look like class 0.
        """
        from manyseed.orchestrator.sweepstore import open_all_rows

        return open_all_rows(self.paths)

    def analyze(
        self,
        options: Options | None = None,
        *,
        dask: str | Client = "threads",
        cluster: str | None = None,
        workers: int | tuple[int, int] | None = None,
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
        dask : str, or distributed.Client
            Where to compute: on this machine (threads, processes), in SLURM jobs that are workers
            of this process's scheduler (slurm), or on a dask scheduler, by its address; from
            Python, on a client's workers.
        cluster : str
            With slurm, the cluster: a cluster profile, its file, or auto.
        workers : int, or tuple of int
            Threads or processes; with `dask` slurm, jobs, or the fewest and the most of them, as
            the work demands; by default the available cores, or 4 jobs.
        metrics : sequence of str
            Without `options`: your own metrics, ``"module:function"``, to compute beside the
            others. Own metrics in the sweep file are code that may come from anybody; they are left
            out, with a warning, unless they are named here, too.
        progress : callable
            Called after each block with (done, all).
        tell : callable
            Called with the state of the jobs (slurm), or with where dask's pages are.
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
        workers: int | tuple[int, int] | None = None,
        page: bool = False,
        after_training: bool = False,
    ) -> Submission | None:
        """Submit the analysis as one job; return None if the same one already waits or runs.

        Parameters
        ----------
        options, dask, workers
            As in `analyze`, within the job; with slurm, the job leads, and its workers are jobs.
        cluster : str
            A cluster profile, its file, or auto; the job asks for the resources of its ``cpu``
            class.
        page : bool
            Write the page, too, then call the profile's ``on-end``.
        after_training : bool
            Begin when all jobs of the cluster that train have ended, however they did. Replaces an
            analysis that has not begun, or would miss what they train.
        """
        from manyseed.orchestrator.analyses.execution import submit

        _require_options(options)
        asked: dict[str, Any] = {"dask": dask, "workers": workers, "page": page}
        return submit(self.paths, options, cluster=cluster, after_training=after_training, **asked)

    def analysis_job(self) -> AnalysisJob | None:
        """Return the state of the analysis that was submitted last; None if none was."""
        from manyseed.orchestrator.analyses import look

        return look(self.paths)

    @property
    def results(self) -> Results:
        """The result tables by name, read on access; ``docs/results.md`` describes each.

        Warns, as do all methods that show results, if runs have finished since the analysis.
        """
        from manyseed.orchestrator.computing.tables import read_results
        from manyseed.orchestrator.results.caveats import tell_newer

        tell_newer(self.readable)
        return read_results(self.readable)

    def query(
        self,
        table: str = "cells",
        *,
        where: str | None = None,
        columns: str | Sequence[str] = (),
        by: str | Sequence[str] | bool = (),
        agg: str | Sequence[str] = (),
        sql: str | None = None,
        sort: str | None = None,
        others: Sequence[Sweep | str | Path] = (),
    ) -> pl.DataFrame:
        """Return rows of a result table, of this sweep and others, or the result of an SQL query.

        Parameters
        ----------
        table : str
            The table: cells, runs, pairs, repeats, effects, …; see ``manyseed docs results`` for
            all.
        where : str
            A condition over the columns.
        columns : str or sequence of str
            Columns to show; by default those of a cell, and the main metrics.
        by : str, sequence of str or bool
            Group by these columns: means with intervals, pooled spreads, n, coverage. Without
            columns (in Python, True): by everything but the seeds. Of several snapshots each cell's
            last is taken, unless grouped by epoch.
        agg : str or sequence of str
            What to compute per group instead: mean, sd, median, min, max, count, q05 (5 %
            quantile), q975 (97.5 %).
        sql : str
            One SELECT over the tables, instead of all other choices.
        sort : str
            The column to sort by; with - in front, descending.
        others : sequence of Sweep or path
            Sweeps whose rows are appended; the column ``sweep`` holds each row's directory.
        """
        from manyseed.orchestrator.asking.covering import ask_warned
        from manyseed.orchestrator.asking.query import Query, listed
        from manyseed.orchestrator.computing.tables import read_results
        from manyseed.orchestrator.results.caveats import tell_newer

        every = [self.readable, *(_paths("others", other) for other in others)]
        for paths in every:
            tell_newer(paths)
        sweeps = {str(paths.directory): read_results(paths) for paths in every}
        if sql is not None:
            from manyseed.orchestrator.asking.sql import ask_sql

            return ask_sql(sweeps, sql)
        by = by if isinstance(by, bool) else listed(by)
        return ask_warned(sweeps, Query(table, where, listed(columns), by, sort, listed(agg)))

    @further("results.answers.howmany:howmany", but=("paths",))
    def howmany(self, **options: Any) -> list[GroupAnswers]:
        """Return how many runs are needed, for means and for ensembles.

        Printed, the answers of each group are the sentences of ``manyseed answers DIR howmany``.
        """
        return self._found("howmany", options)

    @further("results.answers.compare:compare_cells", but=("paths",))
    def compare(
        self,
        *levels: Sweep | str | Path | int,
        other: Sweep | str | Path | None = None,
        **options: Any,
    ) -> list[Compared]:
        """Compare cells of this sweep, or of this one (A) with another (B).

        Parameters
        ----------
        *levels : str, int, Sweep or path
            Levels to compare only, A first: ``compare("xgb", "mlp")``; classifiers, or levels of
            another axis, or cells: by number, or as they are called, such as ``"mlp, lr=0.1"``.
            Before them, another sweep.

        Returns
        -------
        list of Compared
            Of each pair, cells `a` and `b`, and its `result`, such as ``result.difference``. It is
            printed in the sentences of ``manyseed compare``.

        Examples
        --------
        >>> print(sweep.compare("xgb", "mlp", metric="ece"))
        """
        from manyseed.orchestrator.results.questions.registry import with_sides

        return self._found("compare", with_sides(levels, other, options))

    @further("results.answers.likeness:alike", but=("paths",))
    def alike(
        self,
        *levels: Sweep | str | Path | int,
        other: Sweep | str | Path | None = None,
        **options: Any,
    ) -> list[Likeness]:
        """Say whether A's runs are like B's, by α̂ and error consistency between them.

        Levels, or another sweep and levels, are given as to `compare`.
        """
        from manyseed.orchestrator.results.questions.registry import with_sides

        return self._found("alike", with_sides(levels, other, options))

    @further("results.answers.dee:dee", but=("paths",))
    def dee(self, **options: Any) -> list[DeepAnswers]:
        """Return what averaging runs gains, and how many runs another cell is worth.

        Of each cell (or group, with `by`) how many averaged runs reach half and nine tenths of
        what averaging all gains, and its deep ensemble equivalents. The sweep must be analysed
        with ``calibration``. Printed, each is the sentences of ``manyseed answers DIR dee``.
        """
        return self._found("dee", options)

    def variance(self, where: str | None = None) -> list[VarianceSplit]:
        """Return where the variance of accuracy, and of errors on the same points, comes from.

        Of each cell its components, as variances with 95 % intervals: the test set, and what
        varies between runs, source by source where cells differ in `vary`. `where` is a condition
        on the table of variances. Printed, each is the sentences of ``manyseed answers DIR
        variance``.
        """
        return self._found("variance", {"where": where})

    def methods(self, metric: Sequence[str] = ()) -> list[tuple[str, str]]:
        """Return the methods of a paper, as headings and texts, in which ``[@key]`` is a citation.

        Data, training, runs, evaluation and software, of the plan and, if there are any, the
        results; `metric` names the metrics to describe. Printed, they are those of ``manyseed
        answers DIR methods``.
        """
        return self._found("methods", {"metric": metric})

    @overload
    def answers(self, *, where: str | None = None, why: bool = False) -> list[str]: ...

    @overload
    def answers(self, question: str, **options: Any) -> list[Answer]: ...

    def answers(
        self, question: str | None = None, *, why: bool = False, **options: Any
    ) -> list[str] | list[Answer]:
        """Return the headlines that the page begins with, or the answers to one question.

        Parameters
        ----------
        question : str, optional
            Its name: ``sweep.answers("variance", where="classifier = 'mlp'")``; those of
            ``manyseed answers DIR``.
        why : bool, optional
            Without a question, return the evidence instead: samples, intervals, tests.
        **options
            Those of the question; without one, ``where``: a condition on cells.

        Returns
        -------
        list of str, or of Answer
            An `Answer` has `headline`, `text`, `details` and `rows`, the numbers.
        """
        from manyseed.orchestrator.results.answers.summary import answers
        from manyseed.orchestrator.results.caveats import tell_newer
        from manyseed.orchestrator.results.questions.registry import Found, Sentences, reply

        if question is not None:
            if why:
                remedy = "leave it out: `text` of each answer is its evidence"
                raise UserError("applies only without a question", key="why", remedy=remedy)
            return Found(reply(self, question, **options).answers, "", {})
        for name in options.keys() - {"where"}:
            told = "Sweep.answers() has no such argument"
            raise UserError(told, key=name, remedy="name a question before its options")
        tell_newer(self.readable)
        return Sentences.of(answers(self.readable, **options), why=why)

    def _found(self, question: str, options: dict[str, Any]) -> list[Any]:
        from manyseed.orchestrator.results.questions.registry import Found, ask, named

        return Found(ask(self, named(question), **options), question, options)

    @property
    def plot(self) -> Plots:
        """The figures of the results: ``sweep.plot.accuracy(by="perturb_continuous")``.

        ``sweep.plot.kinds`` lists them; see `orchestrator.results.figures`.
        """
        from manyseed.orchestrator.results.caveats import tell_newer
        from manyseed.orchestrator.results.figures import Plots

        tell_newer(self.readable)
        return Plots(self.readable)

    def report(
        self, tell: Callable[[str], None] | None = None, output: str | Path | None = None
    ) -> Path:
        """Write the report's page; return its path.

        `tell` is called for each lost file without which the page is incomplete; the page lists
        them, too. `output` is where to write it, by default in the sweep.
        """
        from manyseed.orchestrator.results.caveats import tell_newer
        from manyseed.orchestrator.results.page import report

        tell_newer(self.readable)
        return report(self.readable, self.name, tell, None if output is None else Path(output))


@further("results.answers.compare:compare_cells", but=("paths",))
def compare(
    sweep: Sweep | str | Path | None = None,
    *levels: Sweep | str | Path | int,
    other: Sweep | str | Path | None = None,
    **options: Any,
) -> list[Compared]:
    """Compare cells of a sweep, or two sweeps, as `Sweep.compare` does.

    Parameters
    ----------
    sweep : Sweep or path
    *levels : str, int, Sweep or path
        Another sweep, then levels to compare only, A first: ``compare("DIR", "xgb", "mlp")``.

    Examples
    --------
    >>> print(manyseed.compare("DIR", "OTHER", metric="ece"))
    """
    if sweep is None:
        error = UserError(
            "needs an analysed sweep, or its directory",
            key="sweep",
            remedy='such as manyseed.compare("DIR"), or manyseed.compare("DIR", "OTHER")',
        )
        error.from_python = True
        raise error
    first = sweep if isinstance(sweep, Sweep) else Sweep(sweep)
    return first.compare(*levels, other=other, **options)


def _paths(argument: str, sweep: Sweep | str | Path) -> SweepPaths:
    """Return the paths of a sweep that an argument gives by itself or by its directory."""
    if isinstance(sweep, Sweep):
        return sweep.readable
    if not isinstance(sweep, str | Path):
        reason = f"must be a Sweep or its directory, not {type(sweep).__name__}"
        raise UserError(reason, key=argument)
    return open_sweep(Path(sweep), to_read=True)


def _require_options(options: object) -> None:
    from manyseed.analysis.options import Options

    if not isinstance(options, Options | None):
        reason = f"must be manyseed.analysis.options.Options, not {type(options).__name__}"
        raise UserError(reason, key="options", remedy="such as: Options(ece_bins=10)")
