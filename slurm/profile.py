"""Cluster profiles: what jobs request at a site, in a TOML file with sbatch's option names.

::

    account = "my-project"          # common to both resource classes
    time    = "4:00:00"

    [cpu]
    partition     = "standard"
    cpus-per-task = 16

    [gpu]
    partition = "accelerated"
    gres      = "gpu:1"

With ``scheduler = "command"``, it has the commands of another scheduler instead: `Template`.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manyseed.slurm import Refused


class UnknownOption(Refused):
    """A profile has an unknown key; `allowed` lists the known ones."""


USUAL = ("account", "partition", "qos", "cpus-per-task", "mem", "time", "gres", "gpus")
OPTIONS = (
    *USUAL,
    "constraint",
    *("begin", "cores-per-socket", "exclude", "gpu-bind", "gpus-per-node", "gpus-per-task", "hint"),
    *("licenses", "mail-type", "mail-user", "mem-per-cpu", "mem-per-gpu", "nice", "nodelist"),
    *("ntasks-per-core", "priority", "reservation", "threads-per-core", "tmp", "wckey"),
)
"""sbatch options that a profile sets under their own names; others go into ``extra``."""

_MEANT = {
    **dict.fromkeys(("cores", "cpus", "ncpus", "nproc", "threads"), "cpus-per-task"),
    **dict.fromkeys(("memory", "ram"), "mem"),
    **dict.fromkeys(("walltime", "timelimit", "time-limit"), "time"),
    "queue": "partition",
    "project": "account",
}
"""Names that other schedulers and people use, and the keys that are meant."""

_RESERVED = {
    "array": "manyseed submits tasks as arrays",
    "comment": "it names the submission of a task",
    "cpus-per-gpu": "set cpus-per-task instead",
    "error": "every task has its own log",
    "exclusive": "set whole-node instead",
    "job-name": "it identifies submissions",
    "nodes": "a task runs on one node",
    "ntasks": "a task is one process, which starts its own",
    "ntasks-per-node": "a task is one process, which starts its own",
    "open-mode": "every attempt of a task writes to the same log",
    "output": "every task has its own log",
    "requeue": "tasks are always requeued",
    "signal": "it announces the end of the walltime to tasks",
}
KEYS: Mapping[str, type] = {
    **dict.fromkeys(("setup", "modules"), list),
    **dict.fromkeys(("setup-file", "python", "container", "on-end"), str),
    "whole-node": bool,
    **dict.fromkeys(("parallelism", "processes-per-gpu", "max-jobs"), int),
    "extra": dict,
}
"""Keys of a profile that are not sbatch options, with their kinds."""

COMMAND = "command"
COMMAND_KEYS: Mapping[str, type] = {
    **dict.fromkeys(("submitted", "states", "line", "cancel", "index", "unknown"), str),
    **dict.fromkeys(("waiting", "ended"), list),
    "max-array": int,
}
"""Keys above the tables with ``scheduler = "command"``; ``submit`` may stand in the tables, too."""

_COMMAND_OPTIONS = ("cpus-per-task", "mem", "time", "gpus")
_NOT_OF_COMMANDS = ("whole-node", "extra")
_PLACE = re.compile(r"(?<!\$)\{([a-z]+)\}")
_PLACES = {
    "submit": "script name folder last count minutes seconds cores megabytes gpus parallelism",
    "states": "jobs",
    "cancel": "job index",
}

_ALLOWED: Mapping[type, str] = {
    bool: "true or false",
    str: "text in quotes",
    int: "a whole number from 1",
    list: 'a list of strings, ["…"]',
    dict: "a table of sbatch options",
}

_COMMON_KEYS = ("slurm-conf",)
_SECRET = re.compile(
    r"""\b(\w*(?:token(?!iz)|secret|passw|credential|(?:api|access|private)_?key)\w*)
    =(?!["']?(?:[$`]|\s|$))                     # a value: neither a variable nor a command's output
    |://[^/\s:@"']+:(?![$`])[^/\s@"']+@         # an address with a password
    """,
    re.IGNORECASE | re.VERBOSE,
)
_CLASSES = ("cpu", "gpu")
_TABLES = ("[cpu]", "[gpu]", "extra")
_ABOVE = ("scheduler", *_COMMON_KEYS)
_COUNT = "0*[1-9][0-9]{0,8}"
_TIME = re.compile(r"(?:(\d{1,9})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?", re.ASCII)


@dataclass(frozen=True)
class Resources:
    """What the jobs of a resource class request.

    `options` are sbatch's, without the two dashes; `minutes` is the walltime; `on_end` is a command
    that a sweep which analyses itself calls at its end; `parallelism` is how
    many tasks of an array may run at once, and `max_jobs` how many may wait or run; None leaves
    them to the site.
    """

    name: str
    options: Mapping[str, str]
    minutes: int
    setup: tuple[str, ...] = ()
    setup_file: str | None = None
    modules: tuple[str, ...] = ()
    python: str | None = None
    container: str | None = None
    on_end: str | None = None
    whole_node: bool = False
    parallelism: int | None = None
    processes_per_gpu: int = 1
    max_jobs: int | None = None
    extra: Mapping[str, str | bool] = field(default_factory=dict)
    submit: str = ""  # with ``scheduler = "command"``: the command that submits an array

    @property
    def secrets(self) -> list[str]:
        """What in the lines that job scripts copy looks like a secret: names, never values."""
        lines = (*self.setup, *filter(None, (self.python, self.container, self.on_end)))
        found = (match for line in lines for match in _SECRET.finditer(line))
        return list(dict.fromkeys(match[1] or "an address with a password" for match in found))

    @property
    def cores(self) -> int | None:
        """Cores that a task requests; None on a whole node."""
        return None if self.whole_node else int(self.options.get("cpus-per-task", 1))


@dataclass(frozen=True)
class Template:
    """The commands of a scheduler other than SLURM; docs/cluster.md tells what each key means.

    `base`: the number of an array's first element there.
    """

    submitted: str
    states: str
    line: str
    cancel: str
    index: str = ""
    unknown: str = ""
    waiting: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    max_array: int = 1000
    base: int = 0


def filled(text: str, values: Mapping[str, object]) -> str:
    """Return a command with its placeholders replaced by values, as the shell reads them."""
    return _PLACE.sub(lambda found: str(values[found[1]]), text)


@dataclass(frozen=True)
class Profile:
    """A cluster profile: its name, its file, and its resource classes."""

    name: str
    path: Path
    cpu: Resources | None
    gpu: Resources | None = None
    slurm_conf: Path | None = None
    template: Template | None = None

    @property
    def reached(self) -> Path | Template | None:
        """How its scheduler is reached: by commands, or SLURM by a file (None: by its own)."""
        return self.template or self.slurm_conf

    def resources(self, name: str) -> Resources:
        """Return a resource class, ``cpu`` or ``gpu``."""
        resources = {"cpu": self.cpu, "gpu": self.gpu}.get(name)
        if resources is None:
            remedy = ": add [cpu] with its time" if name == "cpu" else ""
            raise Refused(name, None, f"the profile has no such table{remedy}")
        return resources

    def with_memory(self, memory: str) -> Profile:
        """Return a copy that requests another amount of memory (``32G``) for every task."""
        check_memory(memory)
        for each in filter(None, (self.cpu, self.gpu)):
            if self.template and "megabytes" not in _PLACE.findall(each.submit):
                raise Refused("mem", memory, "submit asks for no memory: it has no {megabytes}")

        def changed(resources: Resources) -> Resources:
            options = {k: v for k, v in resources.options.items() if not k.startswith("mem")}
            return dataclasses.replace(resources, options=options | {"mem": memory})

        cpu = None if self.cpu is None else changed(self.cpu)
        gpu = None if self.gpu is None else changed(self.gpu)
        return dataclasses.replace(self, cpu=cpu, gpu=gpu)


def read_profile(path: Path) -> Profile:
    """Read a profile."""
    import tomllib

    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise Refused("", None, f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise Refused("", None, "is not UTF-8 text") from None
    except (ValueError, RecursionError) as error:  # also for integers with thousands of digits
        raise Refused("", None, f"not a TOML file: {error}") from None
    if _is_deep(table, 4):  # dotted keys can be, without brackets
        raise Refused("", None, "is nested too deeply")
    common = {key: value for key, value in table.items() if key not in _CLASSES}
    kind = common.pop("scheduler", "slurm")
    if kind not in ("slurm", COMMAND):
        raise Refused("scheduler", kind, allowed=("slurm", COMMAND))
    keys = [*dict.fromkeys((*USUAL, *KEYS, *OPTIONS))]
    more = ["scheduler", *_COMMON_KEYS, *_CLASSES]
    if kind == COMMAND:
        keys = [*_COMMAND_OPTIONS, "submit", *(key for key in KEYS if key not in _NOT_OF_COMMANDS)]
        more = ["scheduler", *COMMAND_KEYS, *_CLASSES]
    _check_keys("", common, [*keys, *more])
    conf = common.pop("slurm-conf", None)
    path_of_conf = None if conf is None else Path(_checked("slurm-conf", conf, str))
    classes: dict[str, Resources] = {}
    for name in _CLASSES:
        implied = name == "cpu" and ("gpu" not in table or "time" in common)
        specific = table.get(name, {} if implied else None)
        if specific is None:
            continue
        if not isinstance(specific, dict):
            raise Refused(name, specific, allowed=f"a table [{name}]")
        _check_keys(f"{name}.", specific, keys)
        extra = {**common.get("extra", {}), **specific.get("extra", {})}
        classes[name] = _resources(name, {**common, **specific, "extra": extra})
    template = _template(common, classes.values()) if kind == COMMAND else None
    return Profile(path.stem, path, classes.get("cpu"), classes.get("gpu"), path_of_conf, template)


def _template(table: Mapping[str, Any], classes: Iterable[Resources]) -> Template:
    given = {
        key: _checked(key, table[key], kind) for key, kind in COMMAND_KEYS.items() if key in table
    }
    most = given.setdefault("max-array", Template.max_array)
    is_array = most > 1
    needed = ["submitted", "states", "line", "cancel", *(["index"] if is_array else [])]
    for key in needed:
        if key not in given:
            raise Refused(key, None, f'is missing: scheduler = "{COMMAND}" needs it')
    _places("states", given["states"], ())
    _places("cancel", given["cancel"], ("job", "index") if is_array else ("job",))
    if _pattern("submitted", given["submitted"]).groups != 1:
        raise Refused("submitted", given["submitted"], allowed="with one group, (…): the job's id")
    groups = {*_pattern("line", given["line"]).groupindex}
    if not {*needed[4:], "job"} <= groups <= {"job", "index", "state"}:
        allowed = "with groups (?P<job>…), (?P<index>…) of an element, and (?P<state>…) if told"
        raise Refused("line", given["line"], allowed=allowed)
    _pattern("unknown", given.get("unknown", ""))
    for key in ("waiting", "ended"):
        if key in given and "state" not in groups:
            raise Refused(key, list(given[key]), "line finds no state: it has no (?P<state>…)")
    if re.fullmatch(r"[A-Za-z_]\w*", given.get("index", "_"), re.ASCII) is None:
        raise Refused("index", given["index"], allowed="the name of an environment variable")
    bases = set()
    for resources in classes:
        where = f"{resources.name}.submit"
        places = _places(where, resources.submit, ("script",))
        if is_array and len(places & {"last", "count"}) != 1:
            allowed = "with {last}, where elements are numbered from 0, or {count}, from 1"
            raise Refused(where, resources.submit, allowed=allowed)
        bases.add(int("count" in places))
        asked = {"megabytes": "mem" in resources.options, "parallelism": resources.parallelism}
        for place, value in asked.items():
            if bool(value) != (place in places):
                key = "mem" if place == "megabytes" else place
                reason = f"{key} is not in the profile" if not value else f"{key} needs {{{place}}}"
                raise Refused(where, resources.submit, reason)
    if len(bases) > 1:
        raise Refused("gpu.submit", None, "numbers elements from another number than cpu.submit")
    own = {key.replace("-", "_"): value for key, value in given.items()}
    return Template(**own, base=bases.pop())


def _places(key: str, text: str, needed: Sequence[str]) -> set[str]:
    """Return the names of the placeholders in a command; refuse unknown and missing ones."""
    known, found = _PLACES[key.rpartition(".")[2]].split(), {*_PLACE.findall(text)}
    if unknown := sorted(found - {*known}):
        allowed = "with no placeholders but " + ", ".join(f"{{{name}}}" for name in known)
        raise Refused(key, text, allowed=f"{allowed}; {{{unknown[0]}}} is none")
    for name in needed:
        if name not in found:
            raise Refused(key, text or None, f"lacks {{{name}}}" if text else "is missing")
    return found


def _pattern(key: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise Refused(key, text, f"is no regular expression: {error}") from None


def _is_deep(value: Any, most: int) -> bool:
    """Return whether tables and lists are nested more than `most` times."""
    inner = value.values() if isinstance(value, dict) else value
    return isinstance(value, dict | list) and (
        not most or any(_is_deep(v, most - 1) for v in inner)
    )


def find_profile(name: str) -> Path:
    """Find a profile by its path or name.

    A name ``NAME`` is looked up as ``NAME.toml`` in the current folder, then in `user_folder`,
    where a running test cluster is registered as ``testcluster``.
    """
    if "/" in name or name.endswith(".toml"):
        if Path(name).is_file():
            return Path(name)
        raise Refused("profile", name, "there is no such file")
    places = [Path(), user_folder()]
    for folder in places:
        if (folder / f"{name}.toml").is_file():
            return folder / f"{name}.toml"
    looked = ", ".join(str(folder / f"{name}.toml") for folder in places)
    existing = sorted(path.stem for path in user_folder().glob("*.toml"))
    raise Refused("profile", name, f"there is no such cluster profile ({looked})", existing)


def user_folder() -> Path:
    """Return the folder of the user's profiles, ``~/.config/manyseed/clusters``."""
    config = os.environ.get("XDG_CONFIG_HOME") or home() / ".config"
    return Path(config) / "manyseed" / "clusters"


def home() -> Path:
    """Return the user's home.

    Without one, a place where no file can be: profiles name files that SLURM loads, so no other
    folder is safe.
    """
    try:
        return Path.home()
    except RuntimeError:
        return Path(os.devnull)


def minutes(text: str | int) -> int:
    """Parse a time in one of SLURM's formats; return minutes, rounded up.

    The formats are ``minutes``, ``minutes:seconds``, ``hours:minutes:seconds``, ``days-hours``,
    ``days-hours:minutes`` and ``days-hours:minutes:seconds``.
    """
    match = _TIME.fullmatch(str(text).strip())
    if match is None:
        raise Refused("time", text, allowed='a time such as "4:00:00" or "1-12"')
    days, *parts = (None if part is None else int(part) for part in match.groups())
    given = [part for part in parts if part is not None]
    if days is not None:
        hours, mins, seconds = (*given, 0, 0)[:3]
    elif len(given) == 3:
        hours, mins, seconds = given
    else:
        hours, mins, seconds = 0, *(*given, 0)[:2]
    return ((days or 0) * 24 + hours) * 60 + mins + math.ceil(seconds / 60)


def check_memory(text: str) -> None:
    """Refuse text that is not a number with one of SLURM's units."""
    if re.fullmatch(r"[0-9]+[KMGT]?B?", text, re.IGNORECASE | re.ASCII) is None:
        raise Refused("mem", text, allowed='a number with K, M, G or T, such as "32G"')


def _resources(name: str, table: Mapping[str, Any]) -> Resources:
    where = f"{name}."
    options = {key: _option(where, key, table[key]) for key in sorted({*OPTIONS} & table.keys())}
    if "time" not in options:
        reason = 'is missing: the walltime of a task, such as "4:00:00"'
        raise Refused(f"{where}time", None, reason)
    try:
        walltime = minutes(options.pop("time"))
        for key in ("mem", "mem-per-cpu", "mem-per-gpu"):
            if key in options:
                check_memory(options[key])
    except Refused as error:
        raise Refused(f"{where}{error.option}", error.value, allowed=error.allowed) from None
    if walltime < 1:
        raise Refused(f"{where}time", table["time"], allowed="a minute or more")
    if name == "gpu" and not _asks_for_gpus(options, table["extra"]):
        raise Refused(name, None, 'requests no GPU: add gres = "gpu:1" or gpus-per-node = 1')
    asked = {**options, **table["extra"]} if name == "gpu" else {}
    for key, count in gpus_asked(asked):
        if count.isnumeric() and re.fullmatch(_COUNT, count) is None:
            allowed = 'a number of GPUs from 1, such as 1 or "gpu:1"'
            raise Refused(f"{where}{key}", asked[key], allowed=allowed)
    own = {
        key.replace("-", "_"): _checked(f"{where}{key}", table[key], kind)
        for key, kind in {**KEYS, "submit": str}.items()
        if key in table
    }
    if own.get("whole_node") and "cpus-per-task" in options:
        reason = "excludes cpus-per-task: leave one out"
        raise Refused(f"{where}whole-node", True, reason)
    if file := own.get("setup_file"):
        own["setup_file"] = re.sub(r"^~(?=/)", str(home()), file)
        if not own["setup_file"].startswith("/"):
            raise Refused(f"{where}setup-file", file, allowed="a path that begins with / or ~/")
    cores = options.get("cpus-per-task", "1")
    if re.fullmatch(_COUNT, cores) is None:
        raise Refused(f"{where}cpus-per-task", cores, allowed=_ALLOWED[int])
    own["extra"] = {
        key: value if isinstance(value, bool) else _option(f"{where}extra.", key, value)
        for key, value in own["extra"].items()
    }
    return Resources(name=name, options=options, minutes=walltime, **own)


def _check_keys(prefix: str, table: Mapping[str, Any], valid: Sequence[str]) -> None:
    extra = _checked(f"{prefix}extra", table.get("extra", {}), dict)
    for place, given in (("", table), ("extra.", extra)):
        for key, value in given.items():
            if key in _RESERVED:
                raise Refused(f"{prefix}{place}{key}", value, f"cannot be set: {_RESERVED[key]}")
    for key in extra:
        if key in KEYS and key != "container":  # sbatch has one, too
            raise Refused(f"{prefix}extra.{key}", extra[key], "stands beside extra, not in it")
    for key in table:
        if isinstance(table[key], dict) and key not in (*_CLASSES, "extra"):
            near = [name for name in (*_CLASSES, "extra") if key.lower().startswith(name)]
            question = f"; did you mean [{near[0]}]?" if near else ""
            reason = f"is no table of a profile{question}"
            raise Refused(f"{prefix}{key}", None, reason, allowed=() if near else _TABLES)
        if prefix and key in _ABOVE:
            raise Refused(f"{prefix}{key}", table[key], "stands above the tables")
        if key not in valid and key in OPTIONS:
            reason = "is an option of sbatch: write your scheduler's own into submit"
            raise Refused(f"{prefix}{key}", table[key], reason)
        if key not in valid and key in ("submit", *COMMAND_KEYS):
            reason = f'needs scheduler = "{COMMAND}", and stands above the tables'
            raise Refused(f"{prefix}{key}", table[key], reason)
        if key not in valid and (meant := _MEANT.get(key.lower().replace("_", "-"))) in valid:
            reason = f'unknown key; did you mean "{meant}"?'
            raise Refused(f"{prefix}{key}", table[key], reason)
        if key not in valid:
            raise UnknownOption(f"{prefix}{key}", table[key], allowed=valid)


def _option(where: str, key: str, value: Any) -> str:
    """Return an option's value in sbatch's syntax."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    raise Refused(f"{where}{key}", value, allowed="a number or text in quotes")


def gpus_asked(options: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield each request of GPUs: its option, and the number or the kind that it ends in."""
    for key in ("gpus-per-node", "gpus-per-task", "gpus", "gres"):
        for part in str(options.get(key, "")).split(","):
            if key != "gres" or part.startswith("gpu"):
                yield key, part.partition("(")[0].rpartition(":")[2]


def _asks_for_gpus(options: Mapping[str, str], extra: Mapping[str, Any]) -> bool:
    requested = {**options, **extra}
    return "gpu" in str(requested.get("gres", "")) or any(
        key in requested for key in ("gpus", "gpus-per-node", "gpus-per-task")
    )


def _checked(key: str, value: Any, kind: type) -> Any:
    """Return a value of a kind, a list as a tuple."""
    is_kind = type(value) is kind
    is_texts = kind is not list or (is_kind and all(isinstance(item, str) for item in value))
    if not is_kind or not is_texts or (kind is int and value < 1):
        raise Refused(key, value, allowed=_ALLOWED[kind])
    return tuple(value) if kind is list else value
