"""A sweep from Python: the same verbs as the command's, the same errors as exceptions."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyseed.orchestrator.executing import Executing
from manyseed.orchestrator.grids.loading import read_sweep_file
from manyseed.orchestrator.learning import Learning
from manyseed.orchestrator.paths import open_sweep
from manyseed.orchestrator.plans.drop import Drop, to_drop
from manyseed.orchestrator.survey import Survey, survey

if TYPE_CHECKING:
    from manyseed.orchestrator.keeping import Verified
    from manyseed.orchestrator.progress.status import Status
    from manyseed.orchestrator.results.until import Answered
    from manyseed.orchestrator.runs.rerun import Differences
    from manyseed.orchestrator.runs.several import Rerun
    from manyseed.orchestrator.store.care.compact import Compaction


class Sweep(Executing, Learning):
    """A sweep directory.

    What is done with it, in this order:

    - make it: `plan` a sweep file, train an estimator (`of`), `import_predictions` from files or
      take them `from_predictions` in memory, `add_predictions`
    - train: `tune`, `submit`, `wait`, `cancel`, `pause`, `throttle`; how far it is: `status`,
      `survey`, `submissions`, `running`, `is_running`
    - keep what is trained: `verify`, `compact`, `export`, `drop`; one run: `show`, `rerun`,
      several: `rerun_where`
    - open predictions: `runs` of a dataset and classifier, `predictions`, `raw_predictions`;
      ask models that were kept: `respond`
    - learn: `analyze` here or `submit_analysis` as a job (`analysis_job`), then `answers`,
      `results`, `query`, `howmany`, `howmany_until`, `compare`, `variance`, `dee`, `plot`, `report`

    Parameters
    ----------
    directory : path
        As ``manyseed plan`` or `Sweep.plan` made it.

    Raises
    ------
    orchestrator.errors.ManyseedError
        Of all methods, and where it is no sweep: `UserError` for what is asked, `UnavailableError`
        where a cluster, a disk or a package is not there, `DamagedFile` for what cannot be read.

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
        from manyseed.orchestrator.progress.summary import summary

        return "\n".join([f"Sweep({str(self.directory)!r})", *summary(self.paths)])

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        first, *others = map(html.escape, repr(self).splitlines())
        return f"<pre><b>{first}</b>\n" + "\n".join(others) + "</pre>"

    @classmethod
    def plan(
        cls, sweep_file: str | Path | Mapping[str, Any], directory: str | Path | None = None
    ) -> Sweep:
        """Plan a sweep file, into a new directory or as an addition to the sweep there.

        Parameters
        ----------
        sweep_file : path or mapping
            A file, or what would stand in it: ``{"name": …, "runs": 10, "grid": [{…}], …}``. Files
            that a mapping names are looked for in the working folder.
        directory : path, optional
            By default the sweep's name, in the working folder.

        Raises
        ------
        UserError
            For a key or a value that is not allowed, or data that are not there.
        """
        from manyseed.orchestrator.grids.objects import require_guard, written
        from manyseed.orchestrator.plans.planning import plan_sweep

        if isinstance(sweep_file, Mapping):
            require_guard()
        with ExitStack() as stack:
            file = (
                stack.enter_context(written(sweep_file))
                if isinstance(sweep_file, Mapping)
                else Path(sweep_file)
            )
            target = Path(read_sweep_file(file).name if directory is None else directory)
            plan_sweep(file, target)
        return cls(target)

    @classmethod
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
        train: bool = True,
        options: Mapping[str, Any] | None = None,
        **grid: Sequence[Any],
    ) -> Sweep:
        """Train an estimator again and again on data in memory, and analyse how much it varies.

        With the same directory again it goes on where it was, or adds runs.

        Parameters
        ----------
        estimator : object or str
            Of scikit-learn's conventions; it is described by its class and parameters, and each
            run has seeds of its own. Or ``"module:name"``.
        X : array (sample, feature) of numbers, or a frame of polars or pandas
        y : array (sample,)
            Classes.
        groups : array (sample,), optional
            Rows that share a value, as those of one patient, are never torn apart between training
            part and test set.
        runs, repeats : int
            Fits that share a test set, and test sets.
        test : float or int
            A share, or a number of points, of the test set.
        seed : int
            Of all streams.
        directory : path, optional
            By default ``sweep-NAME`` in the working folder, after the estimator's class.
        cluster, workers
            As `submit` has them: ``cluster="local"`` trains on this machine, also where it is one
            that submits jobs.
        train : bool
            Whether to train and analyse; otherwise the sweep is planned and its data prepared.
        options : mapping, optional
            More keys of the table ``[classifier.NAME]``, such as ``space``: docs/own.md.
        **grid : sequences
            Axes of the grid, such as ``perturb_continuous = ["none", "relative:0.5"]``.

        Examples
        --------
        >>> sweep = Sweep.of(RandomForestClassifier(), X, y, runs=100)
        >>> sweep.results["cells"]["accuracy_mean", "accuracy_std"]
        """
        from manyseed.orchestrator.plans.inmemory import plan_objects

        sweep = cls(
            plan_objects(
                estimator,
                X,
                y,
                groups=groups,
                directory=directory,
                options=options or {},
                grid=grid,
                seed=seed,
                repeats=repeats,
                runs=runs,
                test=test,
            )
        )
        if train:
            sweep.submit(cluster=cluster, workers=workers)
            sweep.wait()
            sweep.analyze()
        return sweep

    @classmethod
    def import_predictions(
        cls, files: Sequence[str | Path], directory: str | Path, **options: Any
    ) -> Sweep:
        """Make a sweep directory of predictions that were made elsewhere.

        `orchestrator.importing.import_predictions` says of which files, and its options.
        """
        from manyseed.orchestrator.importing import import_predictions

        import_predictions([Path(file) for file in files], Path(directory), **options)
        return cls(directory)

    @classmethod
    def from_predictions(
        cls,
        predictions: Mapping[str, Mapping[str, Any]] | Mapping[str, Any],
        directory: str | Path,
        **options: Any,
    ) -> Sweep:
        """Make a sweep directory of predictions in memory.

        Parameters
        ----------
        predictions : mapping
            By name what an NPZ file would hold (docs/import.md): ``scores`` (run, sample, class) or
            ``labels`` (run, sample), ``y_true`` (sample,) and others; or such a mapping for each
            classifier, by its name.
        directory : path
        **options
            dataset, classifier, probability and probabilities, as `import_predictions` has them.

        Examples
        --------
        >>> of = {"cnn": {"scores": a, "y_true": y}, "vit": {"scores": b, "y_true": y}}
        >>> Sweep.from_predictions(of, "both", dataset="digits")
        """
        from manyseed.orchestrator.importing.memory import import_arrays

        import_arrays(predictions, Path(directory), **options)
        return cls(directory)

    def add_predictions(
        self, predictions: Mapping[str, Mapping[str, Any]] | Mapping[str, Any], **options: Any
    ) -> None:
        """Add runs to a sweep that holds imported predictions: all of them, or none.

        Parameters
        ----------
        predictions : mapping
            As `from_predictions` takes them, of the sweep's test sets. Runs are numbered behind
            those that are there, unless ``run`` numbers them.
        **options
            As of `from_predictions`; dataset and classifier are by default the sweep's only ones.

        Raises
        ------
        UserError
            Where they don't fit what is there; nothing was changed then.
        """
        from manyseed.orchestrator.importing.memory import import_arrays

        import_arrays(predictions, self.paths.directory, adding=True, **options)

    def survey(self) -> Survey:
        """Return the state of every run."""
        return survey(self.paths)

    def status(self) -> Status:
        """Return how far the sweep is: `orchestrator.progress.status.Status`, JSON values."""
        from manyseed.orchestrator.progress.status import status

        return status(self.paths)

    def show(self, address: str) -> dict[str, object]:
        """Return everything that defines the run ``CELL:REPEAT:RUN``, and how it was made."""
        from manyseed.orchestrator.runs.show import show

        return show(self.paths, address)

    def rerun(self, address: str, save: str | Path | None = None) -> Differences:
        """Train the run ``CELL:REPEAT:RUN`` again; return how it compares with what is stored.

        With `save` the model is written to that file, a new one: ``.pt`` or ``.npz`` of a network,
        ``.npz`` of a linear model, ``.json`` of XGBoost, ``.skops`` of an estimator.
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
        """Train the runs again that meet a condition over the table of runs, one after the other.

        With `best` the so many most accurate of each cell. With `save` a model is written for each
        to that folder, ``CELL-REPEAT-RUN`` with the ending of its form, where it predicts what is
        stored: in the same recipe bit for bit, else the same labels. A run that fails or differs
        says so in `Rerun.problem`.
        `orchestrator.runs.several.rerun_each` describes the other parameters.
        """
        from manyseed.orchestrator.results.chosen import chosen_runs
        from manyseed.orchestrator.runs.several import rerun_each

        return rerun_each(
            self.paths,
            chosen_runs(self.results, where, best),
            None if save is None else Path(save),
            overwrite=overwrite,
            other_recipe=other_recipe,
            tell=tell or (lambda one, of: None),
        )

    def drop(self, where: str, *, dry_run: bool = False) -> Drop:
        """Take the cells that meet a condition in SQL out of the plan for good.

        It raises `orchestrator.errors.UserError` while something trains.
        """
        from manyseed.orchestrator.keeping import drop

        return to_drop(self.paths, where) if dry_run else drop(self.paths, where)

    def compact(self, progress: Callable[[int, int], None] | None = None) -> Compaction:
        """Publish what journals hold, remove what is no longer needed, consolidate metadata.

        It raises `orchestrator.errors.LeaseHeld` while something of the sweep runs. `progress` is
        called before the first shard and after each with (shards done, all shards that hold what
        journals hold).
        """
        from manyseed.orchestrator.keeping import compact

        return compact(self.paths, progress or (lambda done, of: None))

    def verify(
        self,
        *,
        repair: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Verified:
        """Check every finished run, in store and journals; with `repair`, make right what is wrong.

        What follows from something else is made again: coordinates and descriptions from the plan,
        test sets from the data, checksums from predictions. Runs are taken from journals where
        these hold them, and set back to missing only where nothing does. `progress` is called
        before the first shard and after each with (shards that were checked, all shards).

        Returns
        -------
        dict
            As `orchestrator.keeping.Verified` has it.
        """
        from manyseed.orchestrator.keeping import verify

        report = progress or (lambda done, of: None)
        return verify(self.paths, repair=repair, progress=report)

    def export(self, output: str | Path) -> Path:
        """Write one portable copy of what is finished, a new file; return it.

        Where its name ends in ``.zip``: a Zarr zip; in ``.parquet``: a table of labels.
        """
        from manyseed.orchestrator.keeping import export

        return export(self.paths, Path(output))

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
            As `submit` takes them.
        **options
            The other parameters of `orchestrator.results.until.until`, which also says how.
        """
        from manyseed.orchestrator.results.until import until

        report = tell or (lambda text: None)

        def train(only: str | None) -> None:
            self.submit(cluster=cluster, workers=workers, only=only, tell=report)
            self.wait()

        return until(
            self.paths, half_width, train=train, analyze=self.analyze, tell=report, **options
        )
