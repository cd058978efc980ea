"""Check this machine and a folder's file system for running sweeps; leaves no files behind."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from manyseed.analysis.counts import counted
from manyseed.jobs.packages import install
from manyseed.orchestrator import devices
from manyseed.orchestrator.disk.lease import lease_seconds
from manyseed.orchestrator.disk.placing import place, place_new
from manyseed.orchestrator.errors import ManyseedError, StoreUnavailable
from manyseed.slurm import commands, local
from manyseed.slurm.commands import ClusterError
from manyseed.slurm.discover import discover

LIBRARIES = (
    *("numpy", "scipy", "scikit-learn", "polars", "dask", "distributed", "zarr", "xarray"),
    "submitit",
)
"""Besides the libraries for networks, and XGBoost, for which either of two builds will do."""
_NETWORKS = ("torch", "torchvision")
_BUILDS = ("xgboost-cpu", "xgboost")
_MOST_SKEW, _SLOW, _FEW_FILES, _LITTLE = 30.0, 0.25, 10_000, 10**9
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Check:
    """One check and its result: if there is a problem, what does not work and what to do.

    A problem that is `needed` to be solved makes sweeps impossible; others slow them down or
    disable a feature.
    """

    what: str
    answer: str
    problem: str = ""
    needed: bool = False


def examine(folder: Path) -> Iterator[Check]:
    """Check this machine and the file system of a folder: the nearest one that exists.

    Files are created and removed there.
    """
    yield from _libraries()
    yield from _machine()
    yield from _cluster()
    yield from _disk(folder)


def _libraries() -> Iterator[Check]:
    yield Check("manyseed", f"{version('manyseed')}, Python {platform.python_version()}")
    found = _versions(LIBRARIES)
    lacking = [name for name in LIBRARIES if name not in found]
    problem = f"{', '.join(lacking)}: not installed: {install(lacking)}" if lacking else ""
    yield Check("libraries", ", ".join(found.values()), problem, needed=True)
    networks, problem = _versions(_NETWORKS), ""
    if len(networks) < len(_NETWORKS):
        absent = [name for name in _NETWORKS if name not in networks]
        problem = f"networks cannot be trained: {install(absent)}"
    yield Check("PyTorch", ", ".join(networks.values()) or "none", problem)
    builds, problem = _versions(_BUILDS), ""
    if not builds:
        problem = f"xgb cannot be trained: {install(['xgboost'])}"
    elif len(builds) > 1:
        problem = "two builds overwrite each other: uninstall both, then install one of them"
    yield Check("XGBoost", ", ".join(builds.values()) or "none", problem)


def _versions(names: Sequence[str]) -> dict[str, str]:
    """Return "NAME VERSION" of the installed ones among some packages, by name."""
    found = {}
    for name in names:
        with suppress(PackageNotFoundError):
            found[name] = f"{name} {version(name)}"
    return found


def _machine() -> Iterator[Check]:
    cores = local.available_cores()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    yield Check(
        "machine", f"{platform.platform()}: {counted(cores, 'core')}, {memory:.1f} GB of memory"
    )
    models = list(devices.gpus().values())
    yield Check("GPUs", ", ".join(models) if models else "none answers to nvidia-smi -L")


def _cluster() -> Iterator[Check]:
    if not commands.available():
        yield Check("SLURM", "no sbatch on this machine: sweeps are trained here")
        return
    try:
        cluster = discover()
    except ClusterError as error:
        problem = f"{error}\nuntil it answers sinfo, only --cluster local trains"
        yield Check("SLURM", "sbatch exists", problem)
        return
    kept = "accounting" if cluster.has_accounting else "no accounting"
    partitions = ", ".join(one.name for one in cluster.partitions)
    answer = f"{cluster.name}, SLURM {cluster.version}, {kept}; partitions {partitions}"
    yield Check("SLURM", answer)


def _disk(folder: Path) -> Iterator[Check]:
    existing = folder.absolute()
    while not existing.is_dir():
        existing = existing.parent
    yield Check("folder", f"{existing}: {_kind(existing)}")
    try:
        scratch = Path(tempfile.mkdtemp(prefix=".manyseed-doctor-", dir=existing))
    except OSError as error:
        problem = f"{error.strerror}: choose a folder that you may write to"
        yield Check("writing", "refused", problem, needed=True)
        return
    try:
        yield _space(existing)
        for what, need, operation in _OPERATIONS:
            yield _tried(what, need, operation, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _tried(
    what: str, need: str, operation: Callable[[Path], tuple[str, str]], folder: Path
) -> Check:
    try:
        answer, problem = operation(folder)
    except (OSError, StoreUnavailable) as error:
        return Check(what, "does not work", f"{_reason(error)}: {need}", needed=True)
    return Check(what, answer, problem)


def _reason(error: OSError | ManyseedError) -> str:
    text = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    return text.partition(";")[0]


def _space(folder: Path) -> Check:
    disk = os.statvfs(folder)
    free, files = disk.f_bavail * disk.f_frsize, disk.f_favail
    slots = f", {counted(files, 'file')}" if disk.f_files else ""
    problem = ""
    if free < _LITTLE or (disk.f_files and files < _FEW_FILES):
        problem = "little is left; plan says how much a sweep will need"
    return Check("free space", f"{free / 1e9:.1f} GB{slots}", problem)


_SLOW_DISK = "every shard and every report waits this long: a folder on another disk may be faster"


def _replacing(folder: Path) -> tuple[str, str]:
    """Replace a file the way all state is written: durably and atomically."""
    seconds = []
    for number in range(_TRIES):
        start = time.perf_counter()
        place(folder / "replaced", str(number).encode())
        seconds.append(time.perf_counter() - start)
    if (folder / "replaced").read_bytes() != str(_TRIES - 1).encode():
        raise OSError("the old content was read")
    took = statistics.median(seconds)
    problem = _SLOW_DISK if took > _SLOW else ""
    return f"{1000 * took:.1f} ms each, fsync included", problem


def _claiming(folder: Path) -> tuple[str, str]:
    """Create a file that must be new, twice: locks and leases rely on the refusal."""
    place_new(folder / "claimed", b"first")
    try:
        place_new(folder / "claimed", b"second")
    except FileExistsError:
        return "the second is refused", ""
    raise OSError("two writers created the same new file")


def _names(folder: Path) -> tuple[str, str]:
    """Create files with the kinds of names that sweeps need: long ones, and two by case."""
    for name in ("x" * 255, "a%3Ab", "Case", "case"):
        (folder / name).write_text(name)
    if (folder / "Case").read_text() != "Case":
        return "case is ignored", "names of datasets and classifiers must differ in more than case"
    return "long, and told apart by case", ""


def _clock(folder: Path) -> tuple[str, str]:
    before = time.time()
    (folder / "clock").write_bytes(b"now")
    after = time.time()
    stamp = (folder / "clock").stat().st_mtime
    skew = max(before - stamp, stamp - after, 0.0)
    problem = ""
    if skew > _MOST_SKEW:
        problem = "printed times will be off: set this machine's clock or the server's"
    return f"the file server's is {skew:.1f} s off; a lease lasts {lease_seconds():g} s", problem


_OPERATIONS: tuple[tuple[str, str, Callable[[Path], tuple[str, str]]], ...] = (
    ("replacing files", "sweeps need a file system with rename and fsync", _replacing),
    ("claiming names", "sweeps need a file system with hard links", _claiming),
    ("names of files", "sweeps need such file names", _names),
    ("clock", "sweeps need it to tell which processes are alive", _clock),
)


def _kind(folder: Path) -> str:
    """Return the type of a folder's file system and its mount point, if known."""
    best: tuple[int, str] = (-1, "file system unknown")
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return best[1]
    for line in lines:
        fields, _, more = line.partition(" - ")
        mount = Path(fields.split()[4].encode().decode("unicode_escape"))
        if folder.is_relative_to(mount) and len(mount.parts) >= best[0]:
            best = len(mount.parts), f"{more.split()[0]} at {mount}"
    return best[1]
