"""Choose the cluster profile that a command or an earlier submission refers to.

A profile's ``slurm-conf`` loads plugins into SLURM's commands, so nothing in a sweep directory may
name one: a sweep can come from anybody. A submission only names its profile, which is looked up
among this user's own: those in `slurm.profile.user_folder`, and the files that this user once
submitted with.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from manyseed.jobs.checks import paths_near
from manyseed.orchestrator.disk.placing import place
from manyseed.orchestrator.errors import UserError, command, meant, refused, shell_word, unknown_key
from manyseed.orchestrator.tasks.intent import LOCAL, Intent
from manyseed.slurm import Refused, available
from manyseed.slurm.profile import Profile, UnknownOption, find_profile, read_profile, user_folder

AUTO = "auto"
TESTCLUSTER = "testcluster"


def choose(
    name: str,
    memory: str | None = None,
    last: Intent | None = None,
    directory: Path | None = None,
) -> Profile | None:
    """Return the profile of a cluster, with `memory` if given; None for this machine.

    `name`: a profile's name or file, `LOCAL`, or `AUTO`: the cluster of `last`; else, if ``sbatch``
    is available and this is not a job, the user's only profile; else this machine. A running test
    cluster is only chosen by name. `last`: the latest submission. `directory`: of the sweep to
    submit, for remedies.
    """
    profile = None if name == LOCAL else _automatic(last, directory) if name == AUTO else read(name)
    if memory is None:
        return profile
    if profile is None:
        raise UserError(
            "memory can only be set for jobs on a cluster", key="--memory", value=memory
        )
    try:
        if memory == AUTO:
            profile.with_memory("1G")  # refused where no amount can be asked for
            return profile
        return profile.with_memory(memory)
    except Refused as error:
        raise refused(error, key="--memory") from None


def read(name: str, key: str = "--cluster") -> Profile:
    """Return the profile with a name or file that the user gave as `key`."""
    if name == TESTCLUSTER and _has_ended():
        raise UserError("is not running", key=key, value=name, remedy=_START)
    try:
        file = find_profile(name)
    except Refused as error:
        remedy = None if error.allowed else "create one: manyseed cluster init"
        if "/" in name or name.endswith(".toml"):
            remedy = "\n  ".join(filter(None, (meant(paths_near(Path(name))), remedy)))
        if name == TESTCLUSTER:
            remedy = _START
        raise refused(error, key=key, remedy=remedy) from None
    try:
        return read_profile(file)
    except UnknownOption as error:
        of_sbatch = "extra" in error.allowed
        remedy = "other options of sbatch go into the table extra" if of_sbatch else None
        raise unknown_key(error, file=file, remedy=remedy) from None
    except Refused as error:
        raise refused(error, file=file) from None


def require_search_here(cluster: str, last: Intent | None, again: str) -> None:
    """Refuse to search for hparams on a possible login node, unless this machine is named.

    `again` is the command that searches.
    """
    if cluster == LOCAL or (cluster == AUTO and _may_train_here(last)):
        return
    raise UserError(
        "hparams are tuned on one machine, and this one submits jobs (it has sbatch)",
        key="--cluster",
        value=cluster,
        remedy=f"tune in a job: sbatch --cpus-per-task 32 --wrap {shell_word(again)}",
    )


def own_names() -> list[str]:
    """Return the names of the profiles in the user's own folder, without the test cluster's."""
    return [name for name in _names() if name != TESTCLUSTER]


def words_of_clusters(last: Intent | None = None) -> str:
    """Return the option that names the user's cluster, for messages: any of several profiles.

    `last`: the latest submission, to whose cluster the user may send more.
    """
    names = own_names() or _names()
    if last is not None and last.cluster != LOCAL and last.profile:
        names = [last.cluster if last.cluster in names else last.profile]
    return " or ".join(f"--cluster {shell_word(name)}" for name in names) or "--cluster NAME"


def needed(last: Intent | None) -> str | None:
    """Return what `AUTO` must be replaced by on this machine.

    The profile that the user last submitted with, or their only one; of several, any. None if it
    names a place to train, or if there is no profile: the refusal says how to make one. A test
    cluster is for trying SLURM, and never proposed; where runs were last submitted to one that is
    gone, they go on here.

    `last`: the latest submission.
    """
    try:
        _automatic(last)
    except UserError:
        there = LOCAL if is_gone(last) and last and last.cluster == TESTCLUSTER else None
        names = own_names()
        if (used := _last_used()) in names or (used in _remembered() and Path(used).is_file()):
            return used
        return _ANY if len(names) > 1 else next(iter(names), there)
    return None


_ANY = "NAME"


def is_gone(last: Intent | None) -> bool:
    """Return whether the runs were last submitted to a cluster of which there is no profile."""
    return last is not None and last.cluster != LOCAL and own_profile(last) is None


def is_login_node(last: Callable[[], Intent | None]) -> bool:
    """Return whether this machine submits jobs and has not trained this sweep."""
    return available() and not _may_train_here(last())


def _may_train_here(last: Intent | None) -> bool:
    """Return whether this machine is not a login node, or has trained this sweep before."""
    if not available() or "SLURM_JOB_ID" in os.environ:
        return True
    if last is None or last.cluster != LOCAL:
        return False
    return last.submitter.partition(" ")[0] == socket.gethostname()


def the_one() -> Profile | None:
    """Return the user's only profile, if any."""
    names = own_names()
    if len(names) > 1:
        raise UserError(
            "there are several cluster profiles",
            key="--cluster",
            remedy=f"choose one: {', '.join(names)}",
        )
    return read(names[0]) if names else None


def own_profile(intent: Intent) -> Profile | None:
    """Return the user's own profile that a submission was made with, if any."""
    if intent.cluster == LOCAL:
        return None
    if intent.profile in _remembered():
        file = Path(intent.profile)
    elif intent.cluster in _names():
        file = user_folder() / f"{intent.cluster}.toml"
    else:
        return None
    with suppress(ValueError, OSError):
        return read_profile(file)
    return None


def remember(profile: Profile) -> None:
    """Record that this user submitted with a profile; also a file outside of their own folder."""
    file, is_own = str(profile.path.absolute()), _is_own(profile)
    with suppress(OSError):  # if the home is not writable, the user gives --cluster each time
        _given().parent.mkdir(parents=True, exist_ok=True)
        if not (is_own or file in _remembered()):
            with _given().open("a") as remembered:
                remembered.write(f"{file}\n")
        if profile.name != TESTCLUSTER:
            place(_last(), f"{profile.name if is_own else file}\n".encode())


def _is_own(profile: Profile) -> bool:
    return profile.path.absolute().parent == user_folder().absolute()


def _automatic(last: Intent | None, directory: Path | None = None) -> Profile | None:
    if last is not None and last.cluster != LOCAL:
        if (profile := own_profile(last)) is not None:
            return profile
        if not available():
            return None
        raise UserError(
            f"the runs were last submitted to {last.cluster}, which is not one of your profiles",
            key="--cluster",
            remedy=_WAYS,
        )
    if _may_train_here(last):
        return None
    if (profile := the_one()) is not None:
        return profile
    reason, remedy = "no cluster profile says what they request", _WAYS + _HERE
    if TESTCLUSTER in _names():
        file, by_name = user_folder() / f"{TESTCLUSTER}.toml", ["--cluster", TESTCLUSTER]
        reason = (
            f"the only profile, {file}, is a test cluster's by its name, and chosen by it alone"
        )
        again = " ".join(by_name) if directory is None else command("submit", directory, *by_name)
        remedy += f"\n  to try it on the test cluster: {again}"
    message = f"this machine submits jobs (it has sbatch), and {reason}"
    raise UserError(message, key="--cluster", remedy=remedy)


_START = "the test cluster is not running: manyseed cluster test start"
_WAYS = "create a profile: manyseed cluster init; what it says: manyseed docs cluster"
_HERE = f"\n  to train on this machine all the same: --cluster {LOCAL}"


def _names() -> list[str]:
    """Return the names of the user's profiles, without that of a test cluster that has ended."""
    names = sorted(file.stem for file in user_folder().glob("*.toml"))
    return [name for name in names if name != TESTCLUSTER or not _has_ended()]


def _has_ended() -> bool:
    from manyseed.slurm.testcluster import TestCluster  # seldom needed

    return TestCluster.has_ended()


def _given() -> Path:
    """Return the file in which `remember` records paths."""
    return user_folder().parent / "cluster-files"


def _last() -> Path:
    """Return the file that names the profile, or its file, that `remember` recorded last."""
    return user_folder().parent / "last-cluster"


def _last_used() -> str:
    try:
        return _last().read_text().strip()
    except (OSError, ValueError):
        return ""


def _remembered() -> set[str]:
    try:
        return {line for line in _given().read_text().splitlines() if line}
    except (OSError, ValueError):
        return set()
