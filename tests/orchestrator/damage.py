"""Damage one file of a sweep directory at a time, and see what every verb makes of it.

A verb behaves if it gives the same answer as on the whole sweep, or ends with a message that names
the file, or its folder or group, and neither a traceback, a hang nor another answer. A campaign:

    python -m tests.orchestrator.damage --tries 2000 --seed 1
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import multiprocessing
import os
import random
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

GRID = """
name    = "damaged"
seed    = {seed}
repeats = {repeats}
runs    = 4
{tune}

[[grid]]
dataset        = ["rare"]
classifier     = ["lr-sgd", "xgb"]
train_fraction = [{fractions}]

[[grid]]
dataset        = ["iris"]
classifier     = ["lr-sgd"]
hparams        = [{hparams}]

[dataset.rare]
source    = "synthetic:gaussian"
n_samples = 200
weights   = [0.9, 0.1]

[dataset.iris]
source = "sklearn:iris"
"""
"""Two classes with margins and three with scores; copies (xgb); three points of one class, on which
a fit raises."""

LIMIT_SECONDS = 60.0

_JOURNAL = "in a journal"

Answer = dict[str, Any]


@dataclass(frozen=True)
class Verb:
    """A command, and what to look at after it beside what it prints.

    Attributes
    ----------
    arguments : tuple of str
        With ``{dir}`` for the sweep, ``{out}`` for a folder, ``{larger}`` for a larger sweep file.
    sees : str
        tables, rows, page, export, or nothing.
    printed : bool
        Whether what it prints is the same each time.
    writes : bool
    """

    arguments: tuple[str, ...]
    sees: str = ""
    printed: bool = True
    writes: bool = False


VERBS = {
    "status": Verb(("status", "{dir}")),
    "status --json": Verb(("status", "{dir}", "--json")),
    "logs --failed": Verb(("logs", "{dir}", "--failed")),
    "logs TASK": Verb(("logs", "{dir}", "1/0")),
    "logs RUN": Verb(("logs", "{dir}", "{failed}:0:1")),
    "show": Verb(("show", "{dir}", "{done}:0:1")),
    "show --json": Verb(("show", "{dir}", "{tuned}:0:1", "--json")),
    "query": Verb(("query", "{dir}")),
    "query runs": Verb(("query", "{dir}", "--table", "runs", "--json")),
    "query ensembles": Verb(("query", "{dir}", "--table", "ensembles", "--json")),
    "compare": Verb(("compare", "{dir}", "--json")),
    "query effects": Verb(("query", "{dir}", "--table", "effects", "--json")),
    "variance": Verb(("variance", "{dir}", "--json")),
    "verify": Verb(("verify", "{dir}")),
    "drop -n": Verb(("drop", "{dir}", "--where", "classifier = 'xgb'", "-n")),
    "plan -n": Verb(("plan", "{larger}", "--out", "{dir}", "-n")),
    "rerun": Verb(("rerun", "{dir}", "{done}:0:1", "--json")),
    "pause": Verb(("pause", "{dir}"), writes=True),
    "cancel": Verb(("cancel", "{dir}"), writes=True),
    "resume": Verb(("resume", "{dir}", "--cluster", "local"), writes=True),
    "howmany": Verb(("howmany", "{dir}", "--json", "--sizes", "1,2", "--draws", "10"), writes=True),
    "report": Verb(("report", "{dir}"), "page", printed=False, writes=True),
    "analyze": Verb(("analyze", "{dir}"), "tables", printed=False, writes=True),
    "compact": Verb(("compact", "{dir}"), "rows", printed=False, writes=True),
    "verify --repair": Verb(
        ("verify", "{dir}", "--repair"), "rows", printed=False, writes=True
    ),
    "export zip": Verb(("export", "{dir}", "--output", "{out}/e.zip"), printed=False, writes=True),
    "export parquet": Verb(
        ("export", "{dir}", "--output", "{out}/e.parquet"), "export", printed=False, writes=True
    ),
    "plan": Verb(("plan", "{larger}", "--out", "{dir}"), "rows", writes=True),
    "drop": Verb(
        ("drop", "{dir}", "--where", "classifier = 'xgb'", "--yes"), "rows", writes=True
    ),
}  # fmt: skip


# ---- the sweep


@dataclass(frozen=True)
class World:
    """A whole sweep, another one of the same form, and the place where copies of it are damaged."""

    folder: Path
    cells: Mapping[str, int]

    @property
    def whole(self) -> Path:
        return self.folder / "whole"

    @property
    def other(self) -> Path:
        return self.folder / "other"

    @property
    def copy(self) -> Path:
        return self.folder / "copy" / "sweep"

    @property
    def out(self) -> Path:
        return self.folder / "copy" / "out"

    def fresh(self) -> Path:
        """Return a whole copy, always at the same place: what is printed names it."""
        shutil.rmtree(self.copy.parent, ignore_errors=True)
        self.out.mkdir(parents=True)
        shutil.copytree(self.whole, self.copy, symlinks=True)
        return self.copy

    def arguments(self, verb: Verb) -> list[str]:
        """Return the command line of a verb."""
        places = {"dir": self.copy, "out": self.out, "larger": self.folder / "larger.toml"}
        return [text.format(**places, **self.cells) for text in verb.arguments]


def make(folder: Path, *, tuned: bool, compacted: bool = False) -> World:
    """Plan, drop, enlarge, train, analyse and report a sweep; and another one of the same form.

    Journals are left as they are while a sweep runs, unless it is to be compacted.
    """
    from manyseed.orchestrator.store.index import write_tombstone
    from manyseed.orchestrator.store.ledger import Ledger
    from manyseed.orchestrator.sweep import Sweep

    for name, seed in (("whole", 7), ("other", 8)):
        file, directory = folder / f"{name}.toml", folder / name
        file.write_text(_grid(seed, 1, tuned))
        Sweep.plan(file, directory).drop("classifier = 'lr-sgd' AND train_fraction = 0.5")
        file.write_text(_grid(seed, 2, tuned))
        sweep = Sweep.plan(file, directory)
        if tuned:
            sweep.tune(workers=1)
        sweep.submit(cluster="local", workers=1)
        sweep.wait()
        journals = sweep.paths.journals
        shutil.copytree(journals, folder / "journals")
        sweep.analyze()
        sweep.howmany(sizes=[1, 2], draws=10)
        sweep.report()
        if compacted:
            sweep.compact()
        else:
            shutil.copytree(folder / "journals", journals, dirs_exist_ok=True)
        shutil.rmtree(folder / "journals")
        as_on_a_cluster(directory)
        write_tombstone(journals, {0: [900]}, (one.name for one in journals.glob("*.journal")))
        Ledger(1).write(journals)
    (folder / "larger.toml").write_text(_grid(7, 3, tuned))
    cells = Sweep(folder / "whole").survey().plan.cells
    one = {
        "failed": cells.filter(train_fraction=3)["cell"][0],
        "done": cells.filter(train_fraction=1.0, classifier="lr-sgd", dataset="rare")["cell"][0],
        "tuned": cells.filter(dataset="iris")["cell"][-1],
    }
    return World(folder, one)


def _grid(seed: int, repeats: int, tuned: bool) -> str:
    return GRID.format(
        seed=seed,
        repeats=repeats,
        tune="tune = { draws = 2 }" if tuned else "",
        fractions="3, 0.5, 1.0",
        hparams='"default", "tuned"' if tuned else '"default"',
    )


def as_on_a_cluster(directory: Path) -> None:
    """Add a submission that looks as if it was made to a cluster, and is over."""
    first, second = directory / "tasks" / "0001", directory / "tasks" / "0002"
    shutil.copytree(first, second, ignore=shutil.ignore_patterns("job.json", "failures.jsonl"))
    intent = json.loads((first / "intent.json").read_bytes())
    intent |= {
        "cluster": "far",
        "arrays": [
            {"resource": "cpu", "name": "manyseed-1-cpu", "first": 0, "count": 1, "processes": 1}
        ],
        "scheduler": "far",
        "profile": "/nowhere/far.toml",
        "slurm_conf": None,
        "excluded": {},
        "exclude": {"cpu": ""},
        "walltime": {"cpu": 3600},
    }
    for key in ("workers", "crc32c"):
        intent.pop(key, None)
    (second / "intent.json").write_text(json.dumps(intent))
    for file in second.glob("lives/*/progress.json"):  # its failures are the first one's
        told = json.loads(file.read_bytes()) | {"failed": {}}
        told.pop("crc32c", None)
        file.write_text(json.dumps(told | {"job_id": "77_0"}))
    for file in second.glob("submitit/*_0_log.*"):
        file.rename(file.with_name(f"77_0_0_log{file.suffix}"))
    (second / "jobs.json").write_text('{"0":"77_0"}')
    (second / "submitted").touch()
    (second / "skip.json").write_text("[1]")


# ---- damage


Damage = Callable[[Path, random.Random, Path], bool]


def _deleted(file: Path, draw: random.Random, other: Path) -> bool:
    file.unlink()
    return True


def _empty(file: Path, draw: random.Random, other: Path) -> bool:
    changed = file.stat().st_size > 0
    file.write_bytes(b"")
    return changed


def _truncated(file: Path, draw: random.Random, other: Path) -> bool:
    content = file.read_bytes()
    file.write_bytes(content[: draw.randrange(len(content)) if content else 0])
    return len(content) > 0


def _garbage(file: Path, draw: random.Random, other: Path) -> bool:
    file.write_bytes(draw.randbytes(200))
    return True


def _others(file: Path, draw: random.Random, other: Path) -> bool:
    if not other.is_file() or other.read_bytes() == file.read_bytes():
        return False
    shutil.copyfile(other, file)
    return True


def _directory(file: Path, draw: random.Random, other: Path) -> bool:
    file.unlink()
    file.mkdir()
    return True


def _fifo(file: Path, draw: random.Random, other: Path) -> bool:
    file.unlink()
    os.mkfifo(file)
    return True


def _passwd(file: Path, draw: random.Random, other: Path) -> bool:
    shutil.copyfile("/etc/passwd", file)
    return True


def _bit(file: Path, draw: random.Random, other: Path) -> bool:
    content = bytearray(file.read_bytes())
    if not content:
        return False
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    file.write_bytes(content)
    return True


def _value(file: Path, draw: random.Random, other: Path) -> bool:
    """Change one value of a JSON file, or of a line of one."""
    lines = file.read_bytes().splitlines(keepends=True)
    try:
        whole = len(lines) == 1 or not file.name.endswith(".jsonl")
        parts = [b"".join(lines)] if whole else lines
        number = draw.randrange(len(parts))
        value = json.loads(parts[number])
    except (ValueError, UnicodeDecodeError):
        return False
    if isinstance(value, int | float | str):
        return False
    if isinstance(value, dict) and draw.random() < 0.7:
        value.pop("crc32c", None)  # as of an earlier version
    parts[number] = json.dumps(_changed(value, draw)).encode() + b"\n"
    file.write_bytes(b"".join(parts))
    return True


def _changed(value: Any, draw: random.Random) -> Any:
    places = list(_places(value))
    if not places:
        return draw.choice([None, 5, "word", {"a": 1}])
    holder, key = draw.choice(places)
    old = holder[key]
    if isinstance(holder, dict) and draw.random() < 0.15:
        del holder[key]
        return value
    choices: list[Any] = [None, -1, 2**70, "xyzzy", [], {}, 1.5, True]
    holder[key] = draw.choice([new for new in choices if new != old])
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items):
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


DAMAGES: Mapping[str, Damage] = {
    "deleted": _deleted,
    "empty": _empty,
    "truncated": _truncated,
    "garbage": _garbage,
    "another sweep's": _others,
    "a directory": _directory,
    "a FIFO": _fifo,
    "/etc/passwd": _passwd,
    "a bit": _bit,
    "a value": _value,
}


def files_of(directory: Path) -> dict[str, list[str]]:
    """Return the files of a sweep, relative, by class."""
    found = defaultdict(list)
    for file in sorted(directory.rglob("*")):
        if file.is_file():
            name = file.relative_to(directory).as_posix()
            found[class_of(name)].append(name)
    return dict(found)


def class_of(name: str) -> str:
    """Return a file's class: its name without numbers, and of a group's what it is."""
    name = re.sub(r"[0-9a-f]{8,}", "*", name)
    if name.startswith("predictions.zarr/"):
        name = re.sub(r"(zarr/)[^/]+/[^/]+/", r"\1GROUP/", name)
        return re.sub(r"/c\.[\d.]+$", "/c", name)
    return re.sub(r"\d+", "*", name)


def partner(other: Path, name: str) -> Path:
    """Return another sweep's file of the same name, or else of the same class."""
    if (other / name).is_file():
        return other / name
    same = files_of(other).get(class_of(name), [])
    return other / same[0] if same else other / name


# ---- one verb, in a process of its own


class Hung(Exception):
    """A verb did not return."""


class Server:
    """A process that has imported everything and runs one verb after another."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        assert self._pipe.poll(300), "the server did not start"
        self._pipe.recv()

    def run(self, arguments: list[str], sees: str, world: World) -> Answer:
        """Run a command; raises `Hung`."""
        self._pipe.send((arguments, sees, str(world.copy), str(world.out)))
        try:
            if self._pipe.poll(LIMIT_SECONDS):
                answer: Answer = self._pipe.recv()
                return answer
        except EOFError:
            self._start()
            return {"exit": -1, "raised": "the process died", "out": "", "err": "", "seen": None}
        self.close()
        self._start()
        raise Hung

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _serve(pipe: Connection) -> None:
    os.environ |= {"COLUMNS": "1000", "MANYSEED_LEASE_SECONDS": "5", "PATH": "/nowhere"}
    os.environ["XDG_CONFIG_HOME"] = "/nowhere"
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)  # what Rust says of a panic
    from manyseed.orchestrator import cli
    from manyseed.orchestrator.submissions import submitting

    def submit(folder: Path, *_: object) -> object:
        raise RuntimeError("WOULD TRAIN")

    submitting.local.submit = submit  # type: ignore[assignment]
    pipe.send("ready")
    while True:
        try:
            arguments, sees, copy, out = pipe.recv()
        except EOFError:
            return
        pipe.send(_answer(cli.main, arguments, sees, Path(copy), Path(out)))


def _answer(
    main: Callable[[], None], arguments: list[str], sees: str, copy: Path, out: Path
) -> Answer:
    answer: Answer = {"exit": 0, "raised": "", "seen": None}
    printed, told = io.StringIO(), io.StringIO()
    sys.argv = ["manyseed", *arguments]
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(told):
        try:
            main()
        except SystemExit as end:
            answer["exit"] = end.code or 0
        except BaseException:
            answer |= {"exit": 1, "raised": traceback.format_exc()}
    answer |= {"out": printed.getvalue(), "err": told.getvalue()}
    if sees and not answer["raised"]:
        try:
            answer["seen"] = _SEEN[sees](copy, out)
        except BaseException as error:
            answer["seen"] = f"unreadable: {type(error).__name__}: {str(error)[:300]}"
    return answer


def _tables(copy: Path, out: Path) -> dict[str, str]:
    import polars as pl

    seen = {}
    for name in ("runs", "pairs", "repeats", "cells", "sources", "ranking", "effects", "variance"):
        frame = pl.read_parquet(copy / "results" / f"{name}.parquet")
        seen[name] = hashlib.sha256(frame.write_json().encode()).hexdigest()
    return seen


def _rows(copy: Path, out: Path) -> dict[str, str]:
    """Return a digest of every finished run's predictions, published or in a journal."""
    from manyseed.orchestrator.store.groups import list_groups
    from manyseed.orchestrator.store.index import JournalFolder, JournalIndex
    from manyseed.orchestrator.store.reader import read_rows, statuses

    seen = {}
    index = JournalIndex(JournalFolder(copy / "tasks" / "journals"))
    for group in list_groups(copy / "predictions.zarr"):
        names = [a.name for a in group.spec.arrays if a.role == "prediction"]
        state = statuses(group)
        rows = [row for row in range(len(state)) if state[row] in (1, 2)]
        values = read_rows(group, names, rows)
        for place, row in enumerate(rows):
            content = b"".join(values[name][place].tobytes() for name in names)
            seen[f"{group.spec.path} {row}"] = hashlib.sha256(content).hexdigest()
        for row in set(index.rows(group.spec.number).tolist()) - set(rows):
            seen[f"{group.spec.path} {row}"] = _JOURNAL
    return seen


def _page(copy: Path, out: Path) -> str:
    return (copy / "report" / "index.html").read_text()


def _export(copy: Path, out: Path) -> str:
    import polars as pl

    frame = pl.read_parquet(out / "e.parquet")
    return hashlib.sha256(frame.write_json().encode()).hexdigest()


_SEEN: Mapping[str, Callable[[Path, Path], Any]] = {
    "tables": _tables,
    "rows": _rows,
    "page": _page,
    "export": _export,
}


# ---- judging


@dataclass
class Try:
    """One verb on a sweep of which one file is damaged."""

    name: str
    damage: str
    seed: int
    verb: str
    verdict: str
    answer: Answer = field(default_factory=dict)

    @property
    def misbehaved(self) -> bool:
        return self.verdict not in ("ok", "told")


def judge(verb: Verb, name: str, answer: Answer, whole: Answer, copy: Path) -> str:
    """Return ok, told, or how the verb misbehaved: traceback, silent, wrong, less, would train."""
    said = answer["out"] + answer["err"]
    if answer["raised"]:
        return "traceback"
    if "WOULD TRAIN" in said:
        # a run whose failure is lost is missing, and named
        is_lost = name.endswith("/failures.jsonl") and _names(said, name, copy)
        return "told" if is_lost else "would train"
    seen = answer["seen"]
    # what the verb left alone, whoever reads it is told of
    left = isinstance(seen, str) and seen.startswith("unreadable: Damaged")
    same = _is_same(seen, whole["seen"]) or (left and _names(seen, name, copy))
    if verb.printed:
        same = same and answer["out"] == whole["out"]
    if answer["exit"] == whole["exit"] and same:
        return "ok"
    if _names(said, name, copy):
        return "told" if not _is_wrong(answer, whole) else "wrong, but told"
    if answer["exit"] not in (0, whole["exit"]):
        return "silent"
    return "wrong" if not _is_less(answer, whole) else "less"


def _names(said: str, name: str, copy: Path) -> bool:
    """Whether what was said names a file, its folder, or its group."""
    path = copy / name
    known = [str(path), str(path.parent), path.name]
    if name.startswith("predictions.zarr/"):
        parts = name.split("/")
        known += [f"{parts[1]}/{parts[2]}", f"{parts[1]} × {parts[2]}"] if len(parts) > 3 else []
    if name.startswith("tasks/00"):
        known.append(str(copy / "/".join(name.split("/")[:2])))
    return any(text in said for text in known)


def _is_same(seen: Any, before: Any) -> bool:
    """Whether what is seen is what was; rows may be in a journal that were published."""
    if not isinstance(seen, dict) or not isinstance(before, dict):
        return bool(seen == before)
    return seen.keys() == before.keys() and all(_holds(seen[key], before[key]) for key in seen)


def _holds(now: str | None, before: str | None) -> bool:
    return before is not None and (now == before or _JOURNAL in (now, before))


def _is_less(answer: Answer, whole: Answer) -> bool:
    seen, before = answer["seen"], whole["seen"]
    if not isinstance(seen, dict) or not isinstance(before, dict):
        return False
    return all(_holds(value, before.get(key)) for key, value in seen.items())


def _is_wrong(answer: Answer, whole: Answer) -> bool:
    """Whether rows are not what they were, whatever was said."""
    seen = answer["seen"]
    if answer["exit"] not in (0, whole["exit"]) or not isinstance(seen, dict):
        return False
    if any(key.count(" ") == 0 for key in seen):
        return False
    return not _is_less(answer, whole)


class Campaign:
    """Tries of some verbs on one world."""

    def __init__(self, world: World, verbs: Sequence[str] = tuple(VERBS)) -> None:
        self.world = world
        self.server = Server()
        self.files = files_of(world.whole)
        self.whole = {name: self._undamaged(VERBS[name]) for name in verbs}

    def close(self) -> None:
        self.server.close()

    def __enter__(self) -> Campaign:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _undamaged(self, verb: Verb) -> Answer:
        self.world.fresh()
        answer = self._run(verb)
        assert not answer["raised"], (verb, answer)
        assert answer["exit"] in (0, 1), (verb, answer)  # 1: runs failed
        return answer

    def _run(self, verb: Verb) -> Answer:
        return self.server.run(self.world.arguments(verb), verb.sees, self.world)

    def damage(self, name: str, damage: str, seed: int) -> bool:
        """Damage a file of a fresh copy; return whether anything changed."""
        copy = self.world.fresh()
        other = partner(self.world.other, name)
        return DAMAGES[damage](copy / name, random.Random(seed), other)

    def tries(self, name: str, damage: str, seed: int, verbs: list[str]) -> Iterator[Try]:
        """Try verbs on a sweep of which one file is damaged."""
        if not self.damage(name, damage, seed):
            return
        is_fresh = True
        for title in sorted(verbs, key=lambda title: VERBS[title].writes):
            verb = VERBS[title]
            if not is_fresh:
                self.damage(name, damage, seed)
            try:
                answer = self._run(verb)
                verdict = judge(verb, name, answer, self.whole[title], self.world.copy)
            except Hung:
                answer, verdict = {}, "hang"
            is_fresh = not verb.writes
            yield Try(name, damage, seed, title, verdict, answer)

    def sample(
        self, seed: int, n: int, only: str = "", damages: list[str] | None = None
    ) -> Iterator[tuple[str, str, int]]:
        """Yield n files and damages, every class of files as often as any other."""
        draw = random.Random(seed)
        classes = [name for name in self.files if re.search(only, name)]
        draw.shuffle(classes)
        kinds = damages or list(DAMAGES)
        for number in range(n):
            files = self.files[classes[number % len(classes)]]
            yield draw.choice(files), draw.choice(kinds), draw.randrange(2**32)


def main() -> None:
    """Run a campaign; print what misbehaved by class of file, damage and verb."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tries", type=int, default=500, help="files damaged")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--world", type=Path, help="made there, or used if it is there")
    parser.add_argument("--compacted", action="store_true", help="a sweep without journals")
    parser.add_argument("--only", default="", help="classes of files, a regular expression")
    parser.add_argument("--damages", default="", help="between commas")
    parser.add_argument("--verbs", default="", help="between commas")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--log", type=Path, help="a JSON line for each that misbehaved")
    asked = parser.parse_args()
    folder = asked.world or Path(tempfile.mkdtemp(prefix="damage-", dir="/dev/shm"))
    if (folder / "world.json").exists():
        world = World(folder, json.loads((folder / "world.json").read_bytes()))
    else:
        folder.mkdir(parents=True, exist_ok=True)
        world = make(folder, tuned=True, compacted=asked.compacted)
        (folder / "world.json").write_text(json.dumps(world.cells))
    verbs = [v for v in asked.verbs.split(",") if v] or list(VERBS)
    found: list[Try] = []
    verdicts: Counter[str] = Counter()
    end = time.monotonic() + asked.minutes * 60
    with Campaign(world, verbs) as campaign, contextlib.ExitStack() as stack:
        log = stack.enter_context(asked.log.open("w")) if asked.log else None
        damages = [d for d in asked.damages.split(",") if d]
        for name, damage, seed in campaign.sample(asked.seed, asked.tries, asked.only, damages):
            for one in campaign.tries(name, damage, seed, verbs):
                verdicts[one.verdict] += 1
                if one.misbehaved:
                    found.append(one)
                    if log:
                        log.write(json.dumps(one.__dict__) + "\n")
                        log.flush()
            if time.monotonic() > end:
                break
    print(dict(verdicts))
    table = Counter((class_of(t.name), t.damage, t.verb, t.verdict) for t in found)
    for (kind, damage, title, verdict), count in sorted(table.items()):
        print(f"{count:5}  {verdict:12} {kind:50} {damage:16} {title}")


if __name__ == "__main__":
    main()
