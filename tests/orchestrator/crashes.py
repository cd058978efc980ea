"""What `test_crashpoints` does in processes of their own: verbs, and what has to hold after them.

Nothing is trained here: tasks journal predictions that follow from a run's row.
"""

from __future__ import annotations

import importlib
import shutil
import uuid
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numba.core.registry import cpu_target

from manyseed.jobs.ensembling.ensemble import Ensembling
from manyseed.jobs.ensembling.methods import Members
from manyseed.jobs.run import Cell, Prediction
from manyseed.jobs.training import checkpoint
from manyseed.jobs.training.checkpoint import Checkpoint, TrainingParts, restore, save
from manyseed.jobs.tuning import Draw, drawn
from manyseed.orchestrator import responding, tuning, upkeep
from manyseed.orchestrator.analyses import execution
from manyseed.orchestrator.disk.lease import Lease, LeaseWatch, create
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.importing import import_predictions
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.planning import plan_sweep
from manyseed.orchestrator.plans.searches import searches
from manyseed.orchestrator.progress.status import status
from manyseed.orchestrator.provenance import Recipe, register
from manyseed.orchestrator.store.coordinates import RESPONSE_ARRAYS
from manyseed.orchestrator.store.groups import list_groups, open_group
from manyseed.orchestrator.store.index import JournalFolder, JournalIndex
from manyseed.orchestrator.store.journal import JournalWriter, encode_row
from manyseed.orchestrator.store.schema import GroupSpec
from manyseed.orchestrator.store.shards import publish
from manyseed.orchestrator.store.testsets import write_splits
from manyseed.orchestrator.survey import survey
from manyseed.orchestrator.sweep import Sweep
from manyseed.orchestrator.tasks.task import Task
from manyseed.orchestrator.working.queue import journal_name
from manyseed.slurm import local
from tests.crashpoints import Disk
from tests.orchestrator.slurmstub import Queue

SMALL = """
name    = "crash"
seed    = 3
repeats = 1
runs    = 2

[keep]
parameters = true

[[grid]]
dataset            = ["points"]
classifier         = ["lr-sgd"]
perturb_continuous = ["none", "relative:0.1"]

[dataset.points]
source    = "synthetic:gaussian"
n_samples = 60
test      = 10
"""
LATE = (
    *("scipy.sparse", "torch._dynamo", "zarr"),
    *("manyseed.orchestrator.results.answers.points", "manyseed.orchestrator.submissions.stopping"),
    *(f"manyseed.analysis.questions.{name}" for name in ("caveats", "comparison", "scores")),
)
"""What verbs import when they need it: once for all forks."""
LARGE = SMALL.replace('["lr-sgd"]', '["lr-sgd", "svm-sgd"]').replace("runs    = 2", "runs    = 3")
TUNED = SMALL.replace("[keep]", "tune = { draws = 3 }\n\n[keep]").replace(
    "[[grid]]", '[[grid]]\nhparams = ["tuned"]'
)
METHODS = """
name    = "crash"
seed    = 3
repeats = 1
runs    = 4

[[grid]]
dataset    = ["digits"]
classifier = ["net"]
ensembling = ["snapshot"]
augment    = ["rotate:45"]

[dataset.digits]
source = "sklearn:digits"
test   = 10

[classifier.net]
kind      = "convnet"
optimizer = "sgd"
hparams   = { depth = 1, width = 4 }

[ensembling.snapshot]
members = 3
cycle   = 1
"""
CURVES = """
name    = "crash"
seed    = 3
repeats = 1
runs    = 4

[[grid]]
dataset    = ["digits"]
classifier = ["mine"]

[dataset.digits]
source = "sklearn:digits"
test   = 10

[classifier.mine]
estimator = "mine:Nearest"
scores    = "predict"
probe     = false

[response]
transforms      = ["intra", "rotate:90"]
rows            = 20
magnitudes      = 3
pair_magnitudes = 3
"""
"""A file cannot have both: response curves are those of single networks."""
MORE_CURVES = CURVES.replace('["mine"]', '["mine", "other"]').replace(
    "[response]",
    '[classifier.other]\nestimator = "mine:Nearest"\nversion = 2\nscores = "predict"\n'
    "probe = false\n\n[response]",
)
OWN = """
import constants

class Nearest:
    def __init__(self, random_state=None):
        self.random_state = random_state
    def fit(self, X, y):
        return self
    def predict(self, X):
        return constants.CLASS + 0 * X[:, 0]
"""


def _train_here(folder: Path, function: str, arguments: list[str], env: object) -> local.LocalJob:
    """Do at once what a job would do that `local.submit` starts."""
    _train(arguments)
    return local.LocalJob("1", "nowhere 0 1 1")


def _train(arguments: list[str]) -> None:
    """Finish every run of a task."""
    disk = Disk.current
    assert disk is not None
    with disk.rest():
        directory, submission, number, _ = arguments
        paths = SweepPaths(Path(directory))
        task = Task.read(paths.submission(int(submission)) / f"task-{int(number):04d}.json")
        for path in task.groups.values():
            group = open_group(paths.store, path)
            y_true = _truth(group.spec, group.repeats)
            index = np.arange(y_true.size).reshape(y_true.shape)
            write_splits(group, 0, y_true, index, LeaseWatch(paths.leases))
        recipe = register(paths.recipes, Recipe.here())
        attempt = f"{int(submission):04d}-{int(number):04d}-{uuid.uuid4().hex[:8]}"
        with JournalWriter(paths.journals / journal_name(attempt, 0)) as journal:
            for span in task.spans:
                spec = open_group(paths.store, task.groups[span.group]).spec
                for row, _ in span.runs():
                    truth = _truth(spec, span.repeat + 1)[span.repeat]
                    values = encode_row(spec, _prediction(spec, row), truth)
                    journal.append(span.group, row, values, recipe=recipe, fit_seconds=row + 0.5)


def replace_jobs() -> None:
    """Let jobs on this machine be `_train_here`; only in processes that `Forks` starts."""
    for name in LATE:
        importlib.import_module(name)
    for context in (cpu_target.typing_context, cpu_target.target_context):
        context.refresh()  # as the first kernel of a process does
    local.submit = _train_here  # type: ignore[assignment]


def _truth(spec: GroupSpec, repeats: int) -> Any:
    return np.stack([np.random.default_rng(n).integers(0, 2, spec.samples) for n in range(repeats)])


def _prediction(spec: GroupSpec, row: int) -> Prediction:
    classes = () if spec.n_classes == 2 else (spec.n_classes,)
    scores = np.random.default_rng(row).standard_normal((1, spec.samples, *classes))
    label = scores.argmax(axis=-1) if classes else scores >= 0
    confidence = np.full((1, spec.samples), 0.75, dtype=np.float32)
    return Prediction(
        scores.astype(np.float32),
        label.astype(np.uint16),
        confidence,
        0.1,
        measured=_measured(spec, row),
    )


def _measured(spec: GroupSpec, row: int) -> dict[str, Any]:
    """Return what a group's optional arrays hold."""
    rng = np.random.default_rng([row, 1])
    return {
        array.name: np.full(array.shape, 9)
        if array.name.endswith("_total")
        else rng.integers(1, 9, array.shape)
        if array.name.endswith("_right")
        else -rng.random(array.shape)
        for array in spec.optional
    }


def _text(folder: Path, text: str) -> Path:
    file = folder / "sweep.toml"
    if "mine:" in text:
        (folder / "mine.py").write_text(OWN)
        (folder / "constants.py").write_text("CLASS = 1\n")
    file.write_text(text)
    return file


def _plan(text: str) -> Callable[[Path], None]:
    def verb(folder: Path) -> None:
        plan_sweep(_text(folder, text), folder / "sweep")

    return verb


def _submit(folder: Path, **options: Any) -> None:
    Sweep(folder / "sweep").submit(workers=1, cluster="local", **options)


def _submit_jobs(folder: Path) -> None:
    """Submit to a cluster, where jobs wait."""
    queue = Queue(folder / "cluster")
    queue.install()
    Sweep(folder / "sweep").submit(cluster=str(queue.profile))


def _analyze(folder: Path) -> None:
    execution.analyze(SweepPaths(folder / "sweep"), workers=1)


def _publish(folder: Path) -> None:
    paths = SweepPaths(folder / "sweep")
    for group in list_groups(paths.store):
        for shard in range(group.shards):
            journals, watch = JournalIndex(JournalFolder(paths.journals)), LeaseWatch(paths.leases)
            # as a task does: who was killed before its lease said whose it is holds it for a while
            publish(group, shard, journals, watch, wait=30)


def _compact(folder: Path) -> None:
    upkeep.compact(SweepPaths(folder / "sweep"))


def _repair(folder: Path) -> None:
    upkeep.verify(SweepPaths(folder / "sweep"), repair=True)


def _drop(folder: Path) -> None:
    upkeep.drop(SweepPaths(folder / "sweep"), "perturb_continuous = 'none'")


def _import_arrays(folder: Path) -> None:
    import_predictions([folder / "given.npz"], folder / "sweep")


def _import_more(folder: Path) -> None:
    import_predictions([folder / "more.npz"], folder / "sweep", adding=True)


def _import_other(folder: Path) -> None:
    import_predictions(
        [], folder / "sweep", classifiers={"vit": [folder / "more.npz"]}, adding=True
    )


def _import_zip(folder: Path) -> None:
    import_predictions([folder / "given.zip"], folder / "sweep")


def _export(name: str) -> Callable[[Path], None]:
    def verb(folder: Path) -> None:
        upkeep.export(SweepPaths(folder / "sweep"), folder / "out" / name)

    return verb


def _merge(folder: Path) -> None:
    Sweep(folder / "sweep").merge([folder / "part"])


def _tune(folder: Path) -> None:
    def judged(calls: list[Any], workers: int, what: str) -> Any:
        for (search, number), call in calls:
            found = drawn(Cell.from_canonical(call.args[0]), number)
            yield (search, number), Draw(found, number / 10, 0.1, "")

    tuning.spawned = judged  # type: ignore[assignment]
    tuning.tune(SweepPaths(folder / "sweep"), workers=1)


def _respond(folder: Path) -> None:
    def answers(calls: list[Any], workers: int, what: str) -> Any:
        for job, _ in calls:
            counts = [[[job.row] * 5] for _ in job.asked.responses]
            parts = [[job.row] * 4 for _ in job.asked.responses]
            yield job, dict(zip(RESPONSE_ARRAYS, (counts, counts, parts, parts), strict=True))

    responding.spawned = answers  # type: ignore[assignment]
    options = {"transforms": ["intra"], "pair_magnitudes": 5, "rows": 20}
    responding.respond(SweepPaths(folder / "sweep"), options, workers=1)


def _save(folder: Path) -> None:
    """Train a method's run as far as its last epoch: it saves itself after each, members beside."""
    import torch

    checkpoint.LEAST = 1
    expected = [np.random.default_rng(number).normal(size=(10, 2)) for number in range(2)]
    paths = SweepPaths(folder / "sweep")
    saved = Checkpoint(paths.checkpoint(0, 3), "a run and its recipe", every=0)
    model, course = (
        torch.nn.Linear(1, 1),
        Ensembling(2, lambda *_: 0.1, Members(2, ["member_score"])),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    parts = TrainingParts(model, optimizer, np.random.default_rng(0), trajectory=course)
    progress = restore(saved, parts)
    assert course.taken == progress.epoch
    while progress.epoch < 2:
        course.take(expected[progress.epoch])
        progress.epoch += 1
        save(saved, parts, progress)
    whole = Members(2, ["member_score"])
    for logits in expected:
        whole.add(logits)
    (members,) = course.arrays().values()
    assert (members == whole.arrays()["member_score"]).all()


def _register(folder: Path) -> None:
    for number in range(3):
        recipe = replace(Recipe.here(), tuned={"alpha": number})
        register(SweepPaths(folder / "sweep").recipes, recipe)


VERBS: dict[str, Callable[[Path], None]] = {
    "plan": _plan(SMALL),
    "plan more": _plan(LARGE),
    "submit": _submit,
    "submit more": _submit,
    "submit jobs": _submit_jobs,
    "publish": _publish,
    "compact": _compact,
    "analyze": _analyze,
    "repair": _repair,
    "drop": _drop,
    "import arrays": _import_arrays,
    "import more": _import_more,
    "import other": _import_other,
    "import zip": _import_zip,
    "export zip": _export("out.zip"),
    "export parquet": _export("out.parquet"),
    "export csv": _export("out.csv"),
    "merge": _merge,
    "tune": _tune,
    "respond": _respond,
    "respond more": _respond,
    "register": _register,
    "plan own": _plan(CURVES),
    "plan more own": _plan(MORE_CURVES),
    "submit own": _submit,
    "submit methods": _submit,
    "publish curves": _publish,
    "publish methods": _publish,
    "repair curves": _repair,
    "repair methods": _repair,
    "repair plan": _repair,
    "save methods": _save,
    "analyze curves": _analyze,
}
STARTS = {
    "plan": "nothing",
    "plan more": "half",
    "submit": "planned",
    "submit more": "enlarged",
    "submit jobs": "cluster",
    "publish": "half",
    "compact": "half methods",
    "analyze": "whole methods",
    "repair": "damaged",
    "drop": "half",
    "import arrays": "files",
    "import more": "imported",
    "import other": "imported",
    "import zip": "files curves",
    "export zip": "half curves",
    "export parquet": "half",
    "export csv": "half",
    "merge": "parted",
    "tune": "tuned",
    "respond": "whole",
    "respond more": "asked",
    "register": "planned",
    "plan own": "nothing",
    "plan more own": "half curves",
    "submit own": "planned curves",
    "submit methods": "planned methods",
    "publish curves": "half curves",
    "publish methods": "half methods",
    "repair curves": "damaged curves",
    "repair methods": "damaged methods",
    "repair plan": "unplanned",
    "save methods": "half methods",
    "analyze curves": "whole curves",
}
"""In which state each verb finds a sweep."""
RUNS = dict.fromkeys(VERBS, 4) | {"plan more": 12, "submit more": 12, "drop": 2}
RUNS |= {"import arrays": 3, "import more": 5, "import other": 5, "plan more own": 8}
"""How many runs there are in the end."""


def prepare(state: str, folder: str) -> None:
    """Make a folder with a sweep in a state."""
    where = Path(folder)
    state, _, kind = state.partition(" ")
    text = {"": SMALL, "curves": CURVES, "methods": METHODS}[kind]
    where.mkdir()
    (where / "out").mkdir()
    if state == "files":
        _plan(text)(where)
        _submit(where)
        upkeep.export(SweepPaths(where / "sweep"), where / "given.zip")
        shutil.rmtree(where / "sweep")
        rng = np.random.default_rng(0)
        scores = rng.normal(size=(3, 10, 3)).astype(np.float32)
        np.savez(where / "given.npz", scores=scores, y_true=rng.integers(0, 3, (1, 10)))
    elif state == "imported":
        rng = np.random.default_rng(0)
        scores = rng.normal(size=(5, 10, 3)).astype(np.float32)
        y_true = rng.integers(0, 3, (1, 10))
        np.savez(where / "given.npz", scores=scores[:3], y_true=y_true)
        np.savez(where / "more.npz", scores=scores[3:], y_true=y_true)
        _import_arrays(where)
    elif state == "tuned":
        _plan(TUNED)(where)
    elif state != "nothing":
        _plan(text)(where)
    if state == "parted":
        Sweep(where / "sweep").split("perturb_continuous = 'none'", where / "part")
        Sweep(where / "part").submit(workers=1, cluster="local")
        _submit(where, only="perturb_continuous <> 'none'")
    if state == "cluster":
        Queue(where / "cluster")
    if state == "whole":
        _submit(where)
    if state in ("half", "damaged", "enlarged", "asked", "unplanned"):
        _submit(where, limit=2)
        _compact(where)
        _submit(where, limit=1)
    if state == "asked":
        _respond(where)
        _submit(where)
    if state == "damaged":
        harmed = {"": "margin", "curves": "response_right", "methods": "size_score"}[kind]
        for file in (where / "sweep").glob(f"predictions.zarr/*/*/{harmed}/c.*"):
            content = bytearray(file.read_bytes())
            content[10] ^= 1
            file.write_bytes(content)
    if state == "enlarged":
        _plan(LARGE)(where)
    if state == "unplanned":
        for file in (where / "sweep" / "plan").glob("*.*"):
            file.unlink()


def do(verb: str, folder: str) -> None:
    """Do it."""
    VERBS[verb](Path(folder))


def finished(folder: str) -> list[list[Any]]:
    """Return the runs that are finished, by what they are."""
    paths = SweepPaths(Path(folder) / "sweep")
    if not paths.is_sweep:
        return []
    state = survey(paths)
    cells = state.plan.cells.select("cell", "cell_id")
    runs = state.with_state("done", "copy").join(cells, on="cell")
    return [list(run) for run in runs.select("cell_id", "repeat", "run").sort(pl.all()).iter_rows()]


def check(verb: str, folder: str) -> dict[str, Any]:
    """See that a sweep can be gone on with after a verb was cut off; return what became of it.

    Returns
    -------
    dict
        finished: runs that were finished right after. In the end: runs by state; duplicates;
        findings; locks and directories that are left behind; what result tables hold.
    """
    where = Path(folder)
    paths = SweepPaths(where / "sweep")
    held = finished(folder)
    if paths.is_sweep:
        status(paths)
        _go_on(where)
    try:
        VERBS[verb](where)
    except UserError as error:
        said = str(error)
        is_there = "exists already" in said or "are in the sweep already" in said
        if not is_there or not (paths.is_sweep or verb.startswith("export")):
            raise
    _go_on(where)
    _go_on(where)
    result = upkeep.verify(paths, repair=False)
    upkeep.compact(paths)
    state = status(paths)
    for file in (where / "out").glob("*.zip"):
        assert zipfile.ZipFile(file).testzip() is None
    for file in (where / "out").glob("*.parquet"):
        pl.read_parquet(file)
    locks = [path.name for path in (where / "sweep").glob(".*lock*")]
    locks += [path.name for path in paths.checkpoints.glob("*")]
    held_back = [path.name for path in where.glob(".manyseed-*") if any(path.iterdir())]
    return {
        "finished": held,
        "runs": state["runs"],
        "duplicates": state["duplicates"],
        "findings": result["findings"],
        "left": locks + held_back,
        "tables": tables(folder) if verb.startswith(("analyze", "respond")) else {},
    }


def tables(folder: str) -> dict[str, Any]:
    """Return the result tables, and what models answered."""
    sweep = Sweep(Path(folder) / "sweep")
    asked = {file.name: pl.read_parquet(file).write_json() for file in sweep.paths.all_responses()}
    if not sweep.paths.results.exists():
        return asked
    return {name: sweep.results[name].write_json() for name in sweep.results} | asked


def take_over(verb: str, folder: str) -> None:
    """Do it; as it has locked the sweep, it is suspended and loses its lock to another machine's.

    What the other does then is over when this process goes on.
    """
    take = Lease.try_take

    def take_and_lose(lease: Lease) -> bool:
        is_ours = take(lease)
        if is_ours and lease.name.endswith(".lock"):
            other = Lease(lease.watch, lease.name)
            other._generation = (lease._generation or 0) + 1
            create(lease.watch.folder, lease.name, other._generation)
            other._record()
        return is_ours

    Lease.try_take = take_and_lose  # type: ignore[method-assign]
    VERBS[verb](Path(folder))


def _go_on(folder: Path) -> None:
    """Train what is missing, where it was trained before, after a search where one is needed."""
    paths = SweepPaths(folder / "sweep")
    if searches(paths, Plan.read(paths).cells):
        _tune(folder)
    if (folder / "cluster").exists():
        _submit_jobs(folder)
        _submit_jobs(folder)
        Queue(folder / "cluster").run(_train)
    elif (folder / "part").exists():
        pass  # what is missing comes from there
    elif "manyseed import" not in paths.sweep_file.read_text():
        _submit(folder)
