"""A sweep from Python: the command's verbs as methods, its errors as exceptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyseed.orchestrator.calls import from_python, further
from manyseed.orchestrator.executing import Executing
from manyseed.orchestrator.learning import Learning
from manyseed.orchestrator.paths import open_sweep

if TYPE_CHECKING:
    from manyseed.orchestrator.keeping import Verified
    from manyseed.orchestrator.plans.drop import Drop
    from manyseed.orchestrator.progress.status import Status
    from manyseed.orchestrator.results.answers.until import Answered
    from manyseed.orchestrator.runs.rerun import Differences, Rerun
    from manyseed.orchestrator.store.compact import Compaction
    from manyseed.orchestrator.survey import Survey


@from_python("Sweep")
class Sweep(Executing, Learning):
    """A sweep directory.

    Its methods, in the usual order of work:

    - create: `plan` a sweep file, train an estimator (`of`), import predictions from files
      (`import_predictions`) or memory (`from_predictions`, `add_predictions`)
    - train: `tune`, `submit`, `wait`, `cancel`, `pause`, `throttle`; progress: `status`,
      `survey`, `submissions`, `running`, `is_running`
    - maintain: `verify`, `compact`, `export`, `drop`; one run: `show`, `rerun`,
      several: `rerun_where`
    - open predictions: `runs` of a dataset and classifier, `predictions`, `raw_predictions`;
      ask kept models: `respond`
    - learn: `analyze` here or `submit_analysis` as a job (`analysis_job`), then `answers`,
      `results`, `query`, `howmany`, `howmany_until`, `compare`, `alike`, `variance`, `dee`,
      `plot`, `report`

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
        self.paths = open_sweep(self.directory)

    def __repr__(self) -> str:
        from manyseed.orchestrator.progress.status import summary

        return "\n".join([f"Sweep({str(self.directory)!r})", *summary(self.paths)])

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
        from manyseed.orchestrator.grids.loading import read_sweep_file
        from manyseed.orchestrator.grids.objects import require_guard, written
        from manyseed.orchestrator.plans.change import warn_of
        from manyseed.orchestrator.plans.data import prepare_read
        from manyseed.orchestrator.plans.planning import plan_sweep
        from manyseed.orchestrator.submissions.requirements import warn_of_code

        with ExitStack() as stack:
            if isinstance(sweep_file, Mapping):
                require_guard()
                file = stack.enter_context(written(sweep_file))
            else:
                file = Path(sweep_file)
            target = Path(read_sweep_file(file).name if directory is None else directory)
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
        estimator : object or str
            A scikit-learn estimator, described by its class and parameters; each run has its own
            seeds. Or ``"module:name"``.
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

        sweep = cls(
            plan_objects(
                estimator,
                X,
                y,
                groups=groups,
                directory=directory,
                options=options or {},
                grid=grid,
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
    @further("importing:import_predictions", but=("adding",))
    def import_predictions(
        cls, files: Sequence[str | Path], directory: str | Path, **options: Any
    ) -> Sweep:
        """Make a sweep directory from files of predictions that were made elsewhere.

        See `orchestrator.importing.import_predictions` for the files and the options.
        """
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

    def survey(self) -> Survey:
        """Return the state of every run."""
        from manyseed.orchestrator.survey import survey

        return survey(self.paths)

    def status(self) -> Status:
        """Return the sweep's progress: `orchestrator.progress.status.Status`, JSON values."""
        from manyseed.orchestrator.progress.status import status

        return status(self.paths)

    def show(self, address: str) -> dict[str, object]:
        """Return what defines the run ``CELL:REPEAT:RUN``, and how it was made or why it failed."""
        from manyseed.orchestrator.progress.logs import unfinished
        from manyseed.orchestrator.runs.description import show

        value = show(self.paths, address)
        stored = value["stored"]
        if isinstance(stored, dict) and stored["status"] == "missing":
            now, failed = unfinished(self.paths, address)
            value |= {"stored": stored | now, **({"failed": failed} if failed else {})}
        return value

    def rerun(self, address: str, save: str | Path | None = None) -> Differences:
        """Train the run ``CELL:REPEAT:RUN`` again; return how it differs from the stored run.

        With `save`, the model is written to that new file: ``.pt`` or ``.npz`` for a network,
        ``.npz`` for a linear model, ``.json`` for XGBoost, ``.skops`` for an estimator.
        """
        from manyseed.orchestrator.runs.rerun import rerun

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
        from manyseed.orchestrator.runs.rerun import rerun_each

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
        from manyseed.orchestrator.keeping import drop
        from manyseed.orchestrator.plans.drop import to_drop

        return to_drop(self.paths, where) if dry_run else drop(self.paths, where)

    def compact(self, progress: Callable[[int, int], None] | None = None) -> Compaction:
        """Publish everything in journals, remove what is no longer needed, consolidate metadata.

        Raises `orchestrator.errors.LeaseHeld` while something of the sweep runs. `progress` is
        called before the first shard and after each with (finished shards, shards to publish).
        """
        from manyseed.orchestrator.keeping import compact

        return compact(self.paths, progress or (lambda done, of: None))

    def verify(
        self, *, repair: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> Verified:
        """Check every finished run, in store and journals; with `repair`, repair what is wrong.

        Whatever can be derived is rebuilt: coordinates and descriptions from the plan, test sets
        from the data, checksums from predictions. Runs are restored from journals, and set back to
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
            As `orchestrator.keeping.Verified`.
        """
        from manyseed.orchestrator.keeping import verify

        return verify(self.paths, repair=repair, progress=progress or (lambda done, of: None))

    def export(self, output: str | Path) -> Path:
        """Write one portable copy of the finished runs to a new file; return its path.

        A name in ``.zip`` gives a Zarr zip, one in ``.parquet`` a table of labels.
        """
        from manyseed.orchestrator.keeping import export

        return export(self.paths, Path(output))

    @further("results.answers.until:until", but=("paths", "train", "analyze"))
    def howmany_until(
        self,
        half_width: float,
        *,
        cluster: str = "auto",
        workers: int | None = None,
        tell: Callable[[str], None] | None = None,
        **options: Any,
    ) -> list[Answered]:
        """Train blocks of runs until each cell's mean accuracy is known to ± `half_width`.

        Parameters
        ----------
        half_width : float
        cluster, workers, tell
            As in `submit`.
        **options
            The other parameters of `orchestrator.results.answers.until.until`.
        """
        from manyseed.orchestrator.results.answers.until import until

        report = tell or (lambda text: None)

        def train(only: str | None) -> None:
            self.submit(cluster=cluster, workers=workers, only=only, tell=report)
            self.wait()

        return until(
            self.paths, half_width, train=train, analyze=self.analyze, tell=report, **options
        )
