"""The verbs of `Sweep` that train: submit, tune, respond, wait and stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from manyseed.orchestrator.calls import from_python
from manyseed.orchestrator.errors import command
from manyseed.orchestrator.paths import SweepPaths

if TYPE_CHECKING:
    from manyseed.orchestrator.plans.searches import Search
    from manyseed.orchestrator.responding.asking import Responded
    from manyseed.orchestrator.submissions.submission import Submission


@from_python("Sweep")
class Executing:
    """The verbs of `Sweep` for work that runs here or on clusters."""

    paths: SweepPaths

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
            Continue with other versions or another CPU than before; results mark these repeats.
        only : str
            Only cells that meet a condition, such as ``classifier = 'mlp'``.
        limit : int
            Submit at most so many runs, spread over the cells: a pilot.
        memory : str
            Memory for each task on a cluster, instead of the profile's: ``32G``.
        tell : callable
            Called with a message if `submit` waits for tasks that were asked to stop.

        Raises
        ------
        orchestrator.errors.StillRunning
            If all missing runs belong to such tasks, and these did not end within minutes.
        """
        from manyseed.orchestrator.plans.plan import Plan
        from manyseed.orchestrator.submissions import profiles
        from manyseed.orchestrator.submissions.submission import last_intent
        from manyseed.orchestrator.submissions.submitting import Request, submit
        from manyseed.orchestrator.tasks.intent import LOCAL
        from manyseed.slurm import local

        if Plan.read(self.paths).is_imported:
            return None
        name = LOCAL if cluster == profiles.AUTO and workers else cluster
        profile = profiles.choose(name, memory, last_intent(self.paths))
        cores = workers or local.available_cores()
        request = Request(profile, cores, failed, other_recipe, only, limit)
        return submit(self.paths, request, tell or (lambda text: None))

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
        workers: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Responded:
        """Measure response curves of finished runs that keep their parameters.

        Parameters
        ----------
        options : mapping
            Keys as in the sweep file's table ``[response]``: transforms, layers, rows, draws, …
        name : str
            The table's name; by default the transforms.
        where : str
            Only cells that meet a condition.
        workers : int
            Processes on this machine; by default the available cores.
        progress : callable
            Called after each model with (models that have answered, all models).
        """
        from manyseed.orchestrator.responding.asking import respond
        from manyseed.slurm import local

        return respond(
            self.paths,
            options or {},
            name=name,
            where=where,
            workers=workers or local.available_cores(),
            report=progress or (lambda done, of: None),
        )

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
        from manyseed.orchestrator.submissions import stopping

        if only is None:
            return stopping.cancel(self.submissions(), now=now)
        from manyseed.orchestrator.plans.drop import choose_cells
        from manyseed.orchestrator.plans.plan import Plan

        cells = choose_cells(Plan.read(self.paths), only, "--only")
        return 0, stopping.cancel_cells(self.submissions(), cells["cell"].to_list())

    def pause(self) -> tuple[int, int]:
        """Stop running tasks after their current fits; hold waiting ones until `submit`."""
        from manyseed.orchestrator.submissions import stopping

        return stopping.pause(self.submissions())

    def throttle(self, parallelism: int) -> int:
        """Limit how many tasks run at once (0: no limit); return the number of job arrays."""
        from manyseed.orchestrator.submissions import stopping

        return stopping.throttle(self.submissions(), parallelism)
