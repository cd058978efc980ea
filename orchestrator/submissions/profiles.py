"""Which cluster is meant: by a user's command, or by a submission that somebody made.

A profile's ``slurm-conf`` loads plugins into SLURM's commands, so nothing in a sweep directory may
name one: a sweep can come from anybody. A submission names its profile, and what it asks for is
looked up among this user's own profiles: those in `slurm.profile.user_folder`, and the files that
this user once submitted with.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

from manyseed.orchestrator.errors import UserError, refused, unknown_key
from manyseed.orchestrator.tasks.intent import LOCAL, Intent
from manyseed.slurm import available
from manyseed.slurm.profile import Profile, find_profile, read_profile, user_folder
from manyseed.slurm.refused import Refused, UnknownOption

AUTO = "auto"
TESTCLUSTER = "testcluster"


def choose(name: str, memory: str | None = None, last: Intent | None = None) -> Profile | None:
    """Return the profile of a cluster, with other memory where given; None for this machine.

    Parameters
    ----------
    name : str
        A profile's name or file, `LOCAL`, or `AUTO`: where `last` went; else, where ``sbatch`` is
        and outside of jobs, the user's one profile; else this machine. A running test cluster is
        chosen by its name alone.
    memory : str, optional
    last : Intent, optional
        The submission that was made last.

    Raises
    ------
    UserError
        For an unknown or wrong profile, where ``auto`` could mean several, and where it would mean
        to train on a login node.
    """
    profile = None if name == LOCAL else _automatic(last) if name == AUTO else read(name)
    if memory is None:
        return profile
    if profile is None:
        raise UserError(
            "this machine gives every process what it asks for", key="--memory", value=memory
        )
    try:
        return profile.with_memory(memory)
    except Refused as error:
        raise refused(error, key="--memory") from None


def read(name: str, key: str = "--cluster") -> Profile:
    """Return the profile of a name or a file, which the user gave as `key`.

    Raises
    ------
    UserError
        Where it does not exist, or something in it is wrong.
    """
    try:
        file = find_profile(name)
    except Refused as error:
        remedy = None if error.allowed else "make one: manyseed cluster init"
        if name == TESTCLUSTER:
            remedy = "the test cluster is not running: manyseed testcluster start"
        raise refused(error, key=key, remedy=remedy) from None
    try:
        return read_profile(file)
    except UnknownOption as error:
        further = "options of sbatch that are not known here go into the table extra"
        raise unknown_key(error, file=file, remedy=further) from None
    except Refused as error:
        raise refused(error, file=file) from None


def require_search_here(cluster: str, last: Intent | None) -> None:
    """Refuse to search for hparams on what may be a login node, unless this machine is named.

    Raises
    ------
    UserError
    """
    if cluster == LOCAL or (cluster == AUTO and _may_train_here(last)):
        return
    raise UserError(
        "hparams are searched for on one machine, and this one submits jobs (sbatch is here)",
        key="--cluster",
        value=cluster,
        remedy="search in a job: sbatch --cpus-per-task 32 --wrap 'manyseed tune DIR'; "
        "or on this very machine: --cluster local",
    )


def _may_train_here(last: Intent | None) -> bool:
    """Whether this machine is no login node, or was trained on before."""
    return not available() or "SLURM_JOB_ID" in os.environ or _was_here(last)


def the_one() -> Profile | None:
    """Return the user's one profile, if any.

    Raises
    ------
    UserError
        Where there are several, or it is wrong.
    """
    names = [name for name in _names() if name != TESTCLUSTER]
    if len(names) > 1:
        raise UserError(
            "there are several cluster profiles",
            key="--cluster",
            remedy=f"choose one: {', '.join(names)}, or local",
        )
    return read(names[0]) if names else None


def own_profile(intent: Intent) -> Profile | None:
    """Return the profile of this user that a submission was made with, if any."""
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
    """Note that this user submitted with a profile that is not in their own folder."""
    file = str(profile.path.absolute())
    if profile.path.absolute().parent == user_folder().absolute() or file in _remembered():
        return
    with suppress(OSError):  # a home that cannot be written to: --cluster says it each time
        _given().parent.mkdir(parents=True, exist_ok=True)
        with _given().open("a") as noted:
            noted.write(f"{file}\n")


def _automatic(last: Intent | None) -> Profile | None:
    if last is not None and last.cluster != LOCAL:
        if (profile := own_profile(last)) is not None:
            return profile
        if not available():
            return None
        raise UserError(
            f"the runs were last submitted to {last.cluster}, which is no profile of yours",
            key="--cluster",
            remedy=_WAYS,
        )
    if _may_train_here(last):
        return None
    if (profile := the_one()) is not None:
        return profile
    raise UserError(
        "this machine submits jobs (sbatch is here), and no cluster profile says what they ask for",
        key="--cluster",
        remedy=_WAYS,
    )


_WAYS = (
    "make a profile: manyseed cluster init; or train on this very machine: --cluster local "
    '(from Python: cluster="local")'
)


def _was_here(last: Intent | None) -> bool:
    if last is None or last.cluster != LOCAL:
        return False
    return last.submitter.partition(" ")[0] == socket.gethostname()


def _names() -> list[str]:
    """Return the names of the profiles in the user's own folder."""
    return sorted(file.stem for file in user_folder().glob("*.toml"))


def _given() -> Path:
    """Return the file of the paths that `remember` notes."""
    return user_folder().parent / "cluster-files"


def _remembered() -> set[str]:
    try:
        return {line for line in _given().read_text().splitlines() if line}
    except (OSError, ValueError):
        return set()
