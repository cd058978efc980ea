"""One warm training process: takes batches from a pipe, trains them, writes its journal.

Started by `pool` or forked by a nursery; imports what the fits need once. What a fit raises is that
run's failure, exhausted memory included, unless the machine is at fault; any other error ends the
process with a message and leaves runs missing.
"""

from __future__ import annotations

import gc
import json
import sys
import traceback
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from manyseed.jobs.checks import in_words
from manyseed.jobs.classifiers import imports
from manyseed.jobs.run import Cell, GpuFull, MachineError, MemoryFull, Prediction, Run
from manyseed.jobs.trainer import Trainer, block_of, made
from manyseed.jobs.training.checkpoint import Checkpoint
from manyseed.jobs.training.handling import Device, Handling, Precision, gpu_model
from manyseed.orchestrator.disk.lease import LeaseWatch
from manyseed.orchestrator.errors import StoreError, command
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.code import remedy
from manyseed.orchestrator.provenance import (
    BF16,
    FLOAT32,
    Recipe,
    code_digest,
    code_key,
    register,
    require_bf16,
)
from manyseed.orchestrator.store.groups import Group, open_group
from manyseed.orchestrator.store.index import JournalFolder
from manyseed.orchestrator.store.journal import SYNC_SECONDS, JournalWriter, encode_row
from manyseed.orchestrator.store.shards import highest_recipe
from manyseed.orchestrator.store.testsets import write_splits
from manyseed.orchestrator.tasks.attempts import COPY_OF_FAILED, Failure
from manyseed.orchestrator.tasks.task import Task
from manyseed.orchestrator.working.checkpoints import checkpoint, checkpoint_seconds
from manyseed.orchestrator.working.pool import NURSERY, serve
from manyseed.orchestrator.working.queue import Batch, Fault, Outcome, Ready, fault, journal_name
from manyseed.slurm.processes import belong_to_parent, leave

MACHINE_ERRORS = (MachineError, StoreError, ImportError, MemoryError, OSError)
"""Errors that are the machine's fault, not a run's, except for exhausted memory in a fit."""

_QUICK_SECONDS = 1.0


class Training:
    """The runs of one task that this process trains, and its journal."""

    def __init__(self, paths: SweepPaths, task_file: Path, journal: Path) -> None:
        self._task = Task.read(task_file)
        _require_code(self._task, paths)
        self._trainer = Trainer()
        self._recipes: dict[str, int] = {}
        self._paths, self._journal = paths, JournalWriter(journal, self._task.plan)
        self._groups: dict[int, Group] = {}
        self._cells: dict[int, Cell] = {}
        self._used: set[int] = set()
        self._fitting: dict[int, int] = {}  # by cell, how many runs at once memory suffices for
        self._save_seconds = checkpoint_seconds()

    def train(self, batch: Batch) -> Outcome:
        """Train a batch; what a fit raises is that run's failure, unless it is the machine's."""
        group, cell = self._group(batch), self._cell(batch.cell)
        self._use_code(batch.cell)
        y_true = self._trainer.test_set(cell, batch.repeat).y_true
        stack: dict[int, Prediction | Exception] = {}
        done: list[int] = []
        failures: list[Failure] = []
        seconds = 0.0
        for row, run in batch.runs:
            block = self._block(batch, run)
            if len(block) > 1 and run not in stack:
                stack = self._train_stack(batch, group, run)
                block = self._block(batch, run)
            recipe, saved = self._recipe_of(batch, run, len(block)), None
            is_fitting = batch.source in (-1, row)
            try:
                if is_fitting:
                    if len(block) == 1:
                        saved = checkpoint(
                            self._paths, batch.group, row, block[0], recipe, self._save_seconds
                        )
                        handling = self._handling(batch, group, saved)
                        prediction = self._trainer.train(block[0], handling)
                    else:
                        prediction = made(stack.pop(run))
                    is_fitting = False
                    values = encode_row(group.spec, prediction, y_true)
                    self._journal.append(
                        batch.group, row, values, recipe=recipe, fit_seconds=prediction.fit_seconds
                    )
                    self._forget(saved)
                    seconds += prediction.fit_seconds
                elif any(failure.row == batch.source for failure in failures):
                    raise RuntimeError(COPY_OF_FAILED)
                else:
                    self._journal.append_copy(batch.group, row, batch.source)
            except BaseException as error:
                if not _is_of_run(error, is_fitting=is_fitting, is_alone=batch.is_alone):
                    raise
                failures.append(_failure(batch, row, run, error))
                gc.collect()  # what the error held
            else:
                done.append(row)
        self.sync(seconds)
        return Outcome(tuple(done), tuple(failures), seconds / len(batch.runs))

    def _block(self, batch: Batch, run: int, members: int | None = None) -> list[Run]:
        """Return the runs that are trained at once with a run of a batch, or would be."""
        if members is None:
            members = min(batch.members, self._fitting.get(batch.cell, batch.members))
        return block_of(Run(self._cell(batch.cell), batch.repeat, run), members)

    def _handling(self, batch: Batch, group: Group, saved: Checkpoint | None) -> Handling:
        return Handling(
            self._task.cells[batch.cell].snapshots,
            self._device(batch.cell),
            group.spec.curves,
            saved,
            group.spec.measures_of(models=batch.models),
            group.spec.asked,
            timeout=self._task.cells[batch.cell].timeout,
            precision=self._precision(batch.cell),
        )

    def _train_stack(
        self, batch: Batch, group: Group, run: int
    ) -> dict[int, Prediction | Exception]:
        """Train the block of a run at once; an error that has no single cause is each one's.

        While memory does not suffice for it, half as many are at once, in this process from now on;
        nothing is returned if the run is left alone.
        """
        handling = self._handling(batch, group, None)
        while len(block := self._block(batch, run)) > 1:
            try:
                return self._trainer.train_stack(block, {each: handling for _, each in batch.runs})
            except (MemoryFull, MemoryError) as error:
                reason = in_words(error)
            except MACHINE_ERRORS:
                raise
            except Exception as error:
                return {each.run: error for each in block}
            gc.collect()  # what the error held
            self._fitting[batch.cell] = members = len(block) // 2
            told = (
                f"Memory does not suffice for {len(block)} runs at once: {members} now ({reason})."
            )
            print(told, file=sys.stderr, flush=True)
        return {}

    def _forget(self, saved: Checkpoint | None) -> None:
        """Remove the checkpoint of a finished run."""
        if saved is not None and saved.path.exists():
            self._journal.sync()
            saved.remove()

    def sync(self, seconds: float = 0.0) -> None:
        """Make the journal durable if that is due or the last fits were slow.

        Nothing can be synced during a fit, and no finished run may wait longer than 30 s.

        `seconds`: duration of the last batch: the next one may take as long.
        """
        self._journal.sync_if_due(SYNC_SECONDS if seconds < _QUICK_SECONDS else 0.0)

    def close(self) -> None:
        """Make the journal durable."""
        self._journal.close()

    def _group(self, batch: Batch) -> Group:
        """Return an open group; opening it stores its test sets or checks that they are equal."""
        if batch.group not in self._groups:
            group = open_group(self._paths.store, self._task.groups[batch.group])
            cell = self._cell(batch.cell)
            sets = [self._trainer.test_set(cell, repeat) for repeat in range(group.repeats)]
            y_true = np.stack([test.y_true for test in sets])
            index = np.stack([test.index for test in sets])
            write_splits(group, 0, y_true, index, LeaseWatch(self._paths.leases))
            self._groups[batch.group] = group
        return self._groups[batch.group]

    def _recipe_of(self, batch: Batch, run: int, members: int) -> int:
        """Return the number of a run's recipe, which includes tuned hparams.

        `members`: how many runs are trained at once with it.
        """
        cell, halved_from = batch.cell, None
        if cell in self._fitting and members < len(self._block(batch, run, batch.members)):
            halved_from = batch.members
        asked, tuned = self._asked(cell), None
        if asked.has_search:
            from manyseed.orchestrator.plans.searches import searched

            tuned = searched(asked, self._cell(cell))
        device, precision = self._device(cell), self._precision(cell)
        own = self._own(cell)  # one file may hold the code of several classifiers
        key = json.dumps([device, tuned, own, members, halved_from, precision])
        if key not in self._recipes:
            if precision == BF16:
                require_bf16(on_gpu=device == "gpu")
            journals = JournalFolder(self._paths.journals, self._task.plan)
            recipe = Recipe.here(gpu_model() if device == "gpu" else None)
            recipe = recipe.of_form(members, precision, halved_from)
            self._recipes[key] = register(
                self._paths.recipes,
                replace(recipe, tuned=tuned, own=own),
                lambda: highest_recipe(self._paths.store, journals),
            )
        return self._recipes[key]

    def _own(self, cell: int) -> dict[str, str] | None:
        """Return the recipe's entry for a cell's own code; None for built-in classifiers."""
        code = self._task.cells[cell].code
        return {code_key(self._asked(cell).classifier): code} if code else None

    def _use_code(self, cell: int) -> None:
        """Make a cell's own code importable, from the copy made of it."""
        code = self._task.cells[cell].code
        if code and cell not in self._used:
            from manyseed.orchestrator.plans.code import use_code

            use_code(self._paths, code, self._asked(cell).classifier)
            self._used.add(cell)

    def _device(self, cell: int) -> Device:
        """Return the device of a cell's runs: a GPU if it is requested and the task has one."""
        requests_gpu = self._task.cells[cell].device == "gpu"
        return "gpu" if requests_gpu and self._task.resource == "gpu" else "cpu"

    def _precision(self, cell: int) -> Precision:
        return BF16 if cell in self._task.bf16 else FLOAT32

    def _cell(self, number: int) -> Cell:
        if number not in self._cells:
            asked = self._asked(number)
            if asked.has_search:
                from manyseed.orchestrator.plans.searches import fitted

                asked = fitted(self._paths, asked)
            self._cells[number] = asked
        return self._cells[number]

    def _asked(self, number: int) -> Cell:
        return Cell.from_canonical(self._task.cells[number].canonical)


class CodeEdited(Exception):
    """The training code differs from that of the submission."""


def _require_code(task: Task, paths: SweepPaths) -> None:
    """Refuse to train if manyseed's own code was edited since the task was submitted.

    A release has no digest; either side may be one, as a profile may name another interpreter.
    """
    now = code_digest()
    if task.own_code and now and task.own_code != now:
        raise CodeEdited(
            "manyseed's training code was edited since this was submitted "
            f"({task.own_code} → {now})\n  restore it, or train the rest with the present code: "
            f"{command('resume', paths.directory, '--other-recipe')}"
        )


def _is_of_run(error: BaseException, *, is_fitting: bool, is_alone: bool) -> bool:
    """Return whether an error is a run's failure, as it is if memory ran out in its fit.

    A GPU's memory must be that of this process alone. No signal raises anything here: what is no
    Exception, such as KeyboardInterrupt, was raised by users' code.
    """
    if isinstance(error, MemoryFull | MemoryError):
        return is_fitting and (is_alone or not isinstance(error, GpuFull))
    if isinstance(error, MACHINE_ERRORS):
        return False
    return is_fitting or isinstance(error, Exception)


def _failure(batch: Batch, row: int, run: int, error: BaseException) -> Failure:
    return Failure(
        group=batch.group,
        row=row,
        cell=batch.cell,
        repeat=batch.repeat,
        run=run,
        error=in_words(error),  # without a command's output, failures of one cause are one error
        traceback=traceback.format_exc(),
    )


def main(arguments: list[str]) -> int:
    """Train batches until the pipe sends None or closes; or fork processes that do."""
    directory, task_file, attempt, index, descriptor = arguments
    train = partial(_train, SweepPaths(Path(directory)), Path(task_file), attempt)
    if index == NURSERY:
        return serve(int(descriptor), _libraries(Path(task_file)), train)
    belong_to_parent()
    return train(int(index), int(descriptor))


def _libraries(task_file: Path) -> list[str]:
    """Return the modules that the fits of a task import."""
    with suppress(Exception):  # the training processes tell what is wrong with the task
        cells = [
            Cell.from_canonical(cell.canonical) for cell in Task.read(task_file).cells.values()
        ]
        return [*dict.fromkeys(name for cell in cells for name in imports(cell.classifier))]
    return []


def _train(paths: SweepPaths, task_file: Path, attempt: str, index: int, descriptor: int) -> int:
    pipe = Connection(descriptor)
    try:
        journal = paths.journals / journal_name(attempt, index)
        process = Training(paths, task_file, journal)
        pipe.send(Ready())
        while True:
            while not pipe.poll(SYNC_SECONDS / 6):
                process.sync()
            if (batch := pipe.recv()) is None:
                break
            pipe.send(process.train(batch))
    except EOFError:
        return 1
    except CodeEdited as error:
        pipe.send(Fault(str(error), "", is_of_task=True))
        return 4
    except Exception as error:
        reason = in_words(error) + remedy(error, paths)
        pipe.send(fault(error, reason, traceback.format_exc(), paths))
        return 4
    process.close()
    return 0


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
