"""Random faults while a sweep is trained, damage while nothing runs, and a record of both."""

from __future__ import annotations

import json
import os
import random
import signal
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.storm.damage import HOW, Damage, targets
from benchmarks.storm.faults import WHILE_TRAINING
from benchmarks.storm.ground import DOCUMENTED, Ground, Told
from benchmarks.storm.ledger import Ledger
from manyseed.orchestrator.paths import SweepPaths
from manyseed.slurm.testcluster import TestCluster

AT_REST = {"damage": 6.0, "cut-at-rest": 3.0}
"""Faults possible only while nothing runs, with their weights among all faults."""
KINDS = (*WHILE_TRAINING, *AT_REST)

_FEW_MISSING = 40
_FEWEST_FINISHED = 12
_MORE_RUNS = 4
_QUIET = 10  # looks in a row: a task that was just submitted has no training process yet
_MOST_RESUMES = 40
_SIGNAL_CODES = {
    signal.SIGKILL: {-9},
    signal.SIGTERM: {-15, 143},
    signal.SIGHUP: {-1, 129},
    signal.SIGINT: {130},
}


@dataclass
class Breach:
    """A broken promise."""

    fault: int
    kind: str
    what: str


@dataclass
class Storm:
    """A sweep, what happens to it, and what was observed."""

    ground: Ground
    rng: random.Random
    text: Callable[[int], str]
    runs: int
    kinds: Collection[str] = KINDS
    tell: Callable[[str], None] = lambda text: None
    breaches: list[Breach] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    ordinal: int = 0
    current: str = "start"
    commands: int = 0
    planned: int = 0
    healed: int = 0
    exports: int = 0
    beyond_mending: int = 0
    recent: list[str] = field(default_factory=list)
    saved: set[tuple[str, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.ledger = Ledger(SweepPaths(self.ground.sweep))
        self.is_root = os.geteuid() == 0

    @property
    def cluster(self) -> TestCluster:
        assert self.ground.cluster is not None
        return self.ground.cluster

    @property
    def sweep_file(self) -> Path:
        return self.ground.folder / "storm-sweep.toml"

    # commands

    def words(self, verb: str) -> tuple[str, ...]:
        """Return the command line of a verb."""
        sweep = str(self.ground.sweep)
        if verb == "plan":
            return verb, str(self.sweep_file), "--out", sweep
        if verb in ("submit", "resume"):
            return verb, sweep, *self.place()
        if verb == "export":
            self.exports += 1
            ending = self.rng.choice(("zip", "parquet"))
            return verb, sweep, "--output", str(self.ground.folder / f"{self.exports}.{ending}")
        if verb == "repair":
            return "verify", sweep, "--repair", "--json"
        return verb, sweep

    def place(self) -> tuple[str, ...]:
        if self.ground.cluster is not None and self.rng.random() < 0.7:
            return "--cluster", str(self.ground.profile)
        return "--cluster", "local", "--workers", "2"

    def judge(self, told: Told, *codes: int) -> Told:
        """Check what every command promises, and the exit code if one is expected."""
        self.commands += 1
        self.note(f"{' '.join(told.arguments[:1])} → {told.code}")
        if told.code is None:
            self.breach("hangs", str(told))
        elif "Traceback (most recent" in told.output:
            self.breach("traceback", str(told))
        elif (
            told.signal and told.code not in DOCUMENTED | _SIGNAL_CODES[signal.Signals(told.signal)]
        ) or (not told.signal and told.code not in DOCUMENTED):
            self.breach("exit code", str(told))
        elif codes and told.code not in codes:
            self.breach("exit code", f"one of {codes} was expected\n{told}")
        return told

    def note(self, text: str) -> None:
        self.recent = [*self.recent[-11:], text]

    def breach(self, kind: str, what: str) -> None:
        before = "; ".join(self.recent)
        text = f"{what}\n  before: {before}"
        self.breaches.append(Breach(self.ordinal, kind, text))
        self.tell(f"!! {kind} at fault {self.ordinal} ({self.current}): {text}")

    def command(self, verb: str, *codes: int) -> Told:
        return self.judge(self.ground.run(*self.words(verb)), *codes)

    def resume(self, *, other_host: bool = False) -> None:
        if other_host and self.is_root:
            words = ("resume", str(self.ground.sweep), "--cluster", "local", "--workers", "1")
            self.ground.on_other_host(*words, stay=self.rng.uniform(5, 30))
            return
        self.command("resume")

    def cut(self, verb: str) -> str:
        """Kill a command in the middle; return how."""
        return self.cut_off(verb)[0]

    def cut_off(self, verb: str) -> tuple[str, Told]:
        """Kill a command in the middle; return how, and what it printed."""
        typical = self.ground.seconds.get(verb, 2.0)
        number = self.rng.choice(
            (signal.SIGKILL,) * 4 + (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        )
        # a starting interpreter cannot answer yet
        least = 0.0 if number == signal.SIGKILL else min(0.8, typical / 2)
        words = self.words(verb)
        moment = self.rng.uniform(least, max(least, typical) * 1.1)
        told = self.judge(self.ground.run(*words, cut=moment, number=number))
        if verb == "export" and told.signal and "Wrote" not in told.output:
            # the next export must not be refused because of what is left
            again = self.judge(self.ground.run(*words))
            left = Path(words[-1])
            if again.code == 2 and "exists" in again.output and not _is_whole(left):
                self.breach("left over", f"{told}\n{again}")
            left.unlink(missing_ok=True)
        if verb == "plan":
            self.plan()
        how = f"by {number.name} after {moment:.2f} s" if told.signal else "too late"
        return f"{verb} {how}", told

    # the sweep

    def plan(self) -> None:
        """Plan the sweep file until this succeeds."""
        for _ in range(20):
            self.ground.due()  # refused commands are too short for it
            disturbed = self.disturbed  # the disk may be freed while the command ends
            told = self.judge(self.ground.run(*self.words("plan")))
            if told.code == 0:
                break
            if "locked" not in told.output and not (disturbed or self.disturbed):
                self.breach("stuck", str(told))
                return
            time.sleep(1)
        else:
            self.breach("stuck", f"a lock stays\n{told}")
        for changed in self.ledger.read_plan():
            self.breach("plan", changed)
        self.planned = len(self.ledger.names)

    @property
    def disturbed(self) -> bool:
        """Whether a disk is full or read-only now, so that commands may fail."""
        return any(self.ground.is_pending(what) for what in ("disk", "read-only"))

    def grow(self) -> None:
        """Request more runs, so that there is always something to train."""
        self.runs += _MORE_RUNS
        self.sweep_file.write_text(self.text(self.runs))
        if not self.disturbed and self.rng.random() < 0.3 and "cut" in self.kinds:
            self.count("cut", self.cut("plan"))
        else:
            self.plan()

    def keep_working(self) -> None:
        """Act as the user who resumes the sweep."""
        if not self.disturbed and self.planned - len(self.ledger.finished) < _FEW_MISSING:
            self.grow()
        idle = not self.ground.training() and not self.ground.jobs("PD,R,CF,CG")
        if idle or self.rng.random() < 0.1:
            self.command("resume")

    # faults

    def strike(self) -> None:
        """Cause one fault."""
        weights = {k: w for k, (_, w) in WHILE_TRAINING.items()} | AT_REST
        kinds = [kind for kind in weights if kind in self.kinds]
        kind = self.rng.choices(kinds, [weights[kind] for kind in kinds])[0]
        self.current = kind
        if kind in AT_REST:
            self.at_rest(kind)
            return
        if done := WHILE_TRAINING[kind][0](self):
            self.count(kind, done)

    def count(self, kind: str, done: str) -> None:
        self.ordinal += 1
        self.counts[kind] += 1
        self.note(f"#{self.ordinal} {kind}: {done}")
        self.tell(f"{self.ordinal:4d} {kind}: {done}")

    def check(self) -> None:
        """Compare the finished runs with those seen before."""
        if self.ground.is_read_only:
            return
        try:
            found = self.ledger.look()
        except Exception as error:  # anything that manyseed's reader raises
            self.breach("unreadable", f"{type(error).__name__}: {error}")
            return
        for lost in found:
            self.breach(
                "lost" if lost.what == "lost" else "wrong",
                f"{self.ledger.name(lost.row)}: {lost.what}",
            )

    def at_rest(self, kind: str) -> None:
        """Stop everything, then damage the sweep several times."""
        if len(self.ledger.finished) < _FEWEST_FINISHED:
            return
        gently = self.rng.random() < 0.5
        if left := self.ground.rest(gently=gently):
            self.breach("stuck", f"of the sweep these do not end: {left}")
        for file in self.ledger.paths.checkpoints.glob("*"):
            self.saved.add((file.name, file.stat().st_mtime_ns))
        self.check()
        for _ in range(self.rng.randint(1, 2)):
            if "cut-at-rest" in self.kinds:
                verb = self.rng.choice(
                    ("compact", "compact", "repair", "analyze", "export", "submit")
                )
                self.current = "cut-at-rest"
                self.count("cut-at-rest", self.cut(verb))
                if verb == "submit":
                    self.ground.rest(gently=False)
                self.check()
        if "damage" in self.kinds:
            self.current = "damage"
            self.harm()
        self.compare_status()

    def compare_status(self) -> int:
        """Compare manyseed's reports with the files while nothing runs; return what is missing."""
        told = self.judge(self.ground.run("status", self.ground.sweep, "--json"), 0, 1, 3)
        try:
            runs = json.loads(told.output)["runs"]
        except ValueError:
            self.breach("stuck", str(told))
            return -1
        there = len(self.ledger.present().keys() & self.ledger.names.keys())
        # payloads are checked when they are read
        unread = len(self.ledger.journaled(good=False))
        if not there <= runs["done"] + runs["copy"] <= there + unread:
            self.breach("wrong", f"{there} runs are finished, status says {runs}")
        return int(runs["missing"])

    def harm(self) -> None:
        """Damage files while nothing runs, repair, and compare the losses with those expected."""
        if self.rng.random() < 0.3:
            self.command("compact", 0)
            self.check()
        kinds = (
            ("store",) * 4
            + ("predictions",) * 2
            + ("metadata", "journals", "journals", "plan", "notes")
        )
        kind = self.rng.choice(kinds)
        files = targets(self.ledger, kind)
        if not files:
            return
        damage = Damage(self.ledger)
        chosen = self.rng.sample(files, min(len(files), self.rng.choice((1, 2, 2, 3))))
        for file in chosen:
            damage.harm(file, self.rng.choice(HOW), self.rng)
        damage.assess()
        for file in chosen:
            self.count("damage", f"{damage.how[file]} {file.relative_to(self.ground.sweep)}")
        if kind in ("plan", "notes"):
            for verb in self.rng.sample(("status", "verify", "analyze", "query"), 2):
                self.command(verb)
            for file in chosen:
                damage.restore(file)
            self.check()
            return
        self.command(self.rng.choice(("verify", "analyze", "status", "verify")))
        before = None
        if self.rng.random() < 0.25 and "cut-at-rest" in self.kinds:
            how, before = self.cut_off("repair")
            self.count("cut-at-rest", how)
        self.repair(damage, before)

    def repair(self, damage: Damage, before: Told | None) -> None:
        """Repair, and compare losses with those named; `before` is a repair that was cut off."""
        sure, maybe = damage.destroyed()
        told = self.command("repair")
        for _ in range(5):
            if told.code == 0:
                break
            # unrepairable files are named, and restored from a copy
            named = [file for file in damage.before if str(file) in told.output.replace("\n", "")]
            if told.code not in (1, 4) or not named:
                self.breach("stuck", f"{damage}\n{told}")
                named = list(damage.before)
            for file in named:
                self.beyond_mending += 1
                damage.restore(file)
            sure, maybe = damage.destroyed()
            told = self.command("repair")
        result = _results(told)
        earlier = {} if before is None else _results(before)
        cut_off = before is not None and bool(before.signal)
        again = self.command("verify")
        if again.code != 0:
            self.breach("repair", f"{damage}: after it, verify finds more\n{told}\n{again}")
        present = self.ledger.present()
        gone = {row for row in self.ledger.finished if row not in present}
        if unjust := gone - sure - maybe:
            names = ", ".join(self.ledger.name(row) for row in sorted(unjust)[:3])
            self.breach("set back", f"{damage}: {len(unjust)} runs could be kept: {names}\n{told}")
        if ghosts := sure - gone:
            names = ", ".join(self.ledger.name(row) for row in sorted(ghosts)[:3])
            self.breach(
                "not named",
                f"{damage}: {len(ghosts)} runs are gone and count as there: {names}\n{told}",
            )
        self.healed += int(result.get("runs_healed", 0))
        named = {*result.get("set_back", ()), *earlier.get("set_back", ())}
        runs = {self.ledger.addresses[row] for row in gone if row in self.ledger.addresses}
        cut = {self.ledger.addresses[row] for row in damage.cut if row in self.ledger.addresses}
        # no later repair can name what a repair reset if it was killed before printing this
        wrong = named - runs | (set() if cut_off else runs - named - cut)
        if result and wrong:
            self.breach(
                "not named",
                f"{damage}: {len(wrong)} of {len(runs)} runs are gone "
                f"or named alone: {sorted(wrong)[:5]}\n{told}",
            )
        self.ledger.forget(gone | sure)
        self.check()

    # the end

    def finish(self) -> None:
        """Resume until nothing is missing."""
        self.current = "the end"
        self.ground.rest(gently=True)
        self.check()
        for _ in range(_MOST_RESUMES):
            self.ground.calm()
            if self.compare_status() == 0:
                break
            here = ("--cluster", "local", "--workers", "2")
            told = self.judge(self.ground.run("resume", self.ground.sweep, *here))
            if not self.wait():
                self.ground.rest(gently=True)
            self.check()
        else:
            self.breach("stuck", f"not finished after {_MOST_RESUMES} resumes\n{told}")
        self.ground.rest(gently=True)

    def wait(self, most: float = 300) -> bool:
        """Wait until nothing of the sweep trains; return whether this happened."""
        end, quiet = time.monotonic() + most, 0
        while time.monotonic() < end and quiet < _QUIET:
            at_work = self.ground.processes(self.ground.sweep) or self.ground.jobs("PD,R,CF,CG")
            quiet = 0 if at_work else quiet + 1
            time.sleep(0.3)
        return quiet >= _QUIET


def _results(told: Told) -> dict[str, Any]:
    """Return what a command printed as JSON; nothing if it was cut off."""
    try:
        found: dict[str, Any] = json.loads(told.output)
    except ValueError:
        return {}
    return found


def _is_whole(file: Path) -> bool:
    """Whether an export was killed after its last byte, before it could report this."""
    try:
        if file.suffix == ".zip":
            with zipfile.ZipFile(file) as archive:
                return archive.testzip() is None
        return pl.read_parquet(file).height > 0
    except (OSError, zipfile.BadZipFile, pl.exceptions.PolarsError):
        return False
