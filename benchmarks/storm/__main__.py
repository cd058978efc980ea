"""A storm over a sweep: hundreds of faults, and at the end not a bit differs.

``python -m benchmarks.storm --minutes 30`` starts a throw-away SLURM, trains a sweep on it and on
this machine, and meanwhile kills training processes, tasks, steps, daemons and nodes, stops
processes for longer than leases last, requeues, cancels, preempts, fills the disk and makes it
read-only, kills commands in the middle, submits several times at once and from several hosts; while
nothing runs, it damages files of the store, the journals and the plan, and repairs them. It keeps
its own ledger of the runs that it has seen finished. At the end, the sweep is resumed until it is
complete, and compared bit for bit with one that was trained without faults.

It exits with 1 if one of these does not hold: no finished run is lost beyond what the damage
destroyed in the store and in journals, none is reset that could be kept, none is there twice, none
differs; less than 5 % of fits are trained in vain; no command ends in a traceback or with an
undocumented exit code, hangs, or leaves the sweep stuck.

The disk of the sweep is a separate tmpfs, and hosts have their own process numbers: without root,
the faults that need these are left out. Without SLURM, or with --quick, all is trained here.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.storm.adversary import KINDS, Storm
from benchmarks.storm.comparison import differences
from benchmarks.storm.ground import Ground
from benchmarks.storm.sweeps import MODULES, QUICK, SWEEPS
from manyseed.slurm.testcluster import MissingPackages, check_packages

MOST_RETRAINED = 0.05
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    options = _options()
    for number in ENDING:  # even if a shell ignores them
        signal.signal(number, signal.default_int_handler)
    rng = random.Random(options.seed)
    tell = (lambda text: None) if options.json else (lambda text: print(text, flush=True))
    kind = options.sweep or [*SWEEPS][options.seed % len(SWEEPS)]
    text = QUICK if options.quick else SWEEPS[kind]
    ground = Ground(rng, with_slurm=not options.quick and _has_slurm(tell))
    storm = Storm(
        ground,
        rng,
        lambda runs: text.format(runs=runs),
        runs=6 if options.quick else 10,
        kinds=options.faults,
        tell=tell,
    )
    tell(f"seed {options.seed}, sweep {kind}, in {ground.folder}")
    try:
        ground.start()
        for name, code in MODULES.items():
            (ground.folder / name).write_text(code)
        blow(storm, options.minutes * 60, growing=not options.quick)
        result = verdict(storm, options.seed)
    except KeyboardInterrupt:
        return 130
    finally:
        for number in ENDING:  # a second one must not prevent the rest of the cleanup
            signal.signal(number, signal.SIG_IGN)
        if options.keep and storm.breaches and ground.sweep.exists():
            shutil.copytree(ground.sweep, options.keep, dirs_exist_ok=True)
        ground.stop()
    if options.json:
        print(json.dumps(result))
    else:
        show(result)
    return 1 if result["breaches"] else 0


def blow(storm: Storm, seconds: float, *, growing: bool) -> None:
    """Cause faults for so long, then let the sweep finish."""
    storm.sweep_file.write_text(storm.text(storm.runs))
    storm.plan()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        storm.ground.due()
        if growing or storm.planned > len(storm.ledger.finished):
            storm.keep_working()
        for _ in range(storm.rng.randint(1, 4)):
            storm.strike()
            storm.check()
            time.sleep(storm.rng.uniform(0, 0.3))
    storm.finish()


def verdict(storm: Storm, seed: int) -> dict[str, Any]:
    """Compare with the calm sweep, and print which promises hold."""
    ground = storm.ground
    for verb in ("compact", "verify", "analyze"):
        storm.command(verb, 0)
    status = ground.run("status", ground.sweep, "--json")
    told = json.loads(status.output)
    calm = ground.folder / "calm"
    storm.tell("now the same in calm")
    ground.run("plan", storm.sweep_file, "--out", calm)
    ground.run("submit", calm, "--cluster", "local", "--workers", 2, "--watch")
    while ground.processes(calm):
        time.sleep(0.5)
    for verb in ("compact", "analyze"):
        done = ground.run(verb, calm)
        if done.code:
            storm.breach("calm", str(done))
    for text in differences(ground.sweep, calm):
        storm.breach("differs", text)
    runs = told["runs"]
    trained = sum(1 for row in storm.ledger.fits)
    retrained = max(int(told["duplicates"]), storm.ledger.trained_again)
    if retrained > MOST_RETRAINED * trained:
        storm.breach("retrained", f"{retrained} fits beyond {trained}")
    return {
        "seed": seed,
        "faults": storm.ordinal,
        "by_kind": dict(storm.counts.most_common()),
        "commands": storm.commands,
        "runs": runs,
        "fits": trained,
        "retrained": retrained,
        "interrupted": len(storm.saved),
        "destroyed": storm.ledger.destroyed.total(),
        "healed": storm.healed,
        "restored_from_copy": storm.beyond_mending,
        "lost": sum(one.kind == "lost" for one in storm.breaches),
        "breaches": [vars(one) for one in storm.breaches],
    }


def show(result: dict[str, Any]) -> None:
    """Print the table of faults, and the verdict."""
    print()
    for kind, count in result["by_kind"].items():
        print(f"{kind:16s}{count:6d}")
    print(f"{'all':16s}{result['faults']:6d}, and {result['commands']} commands\n")
    print(", ".join(f"{count} {name}" for name, count in result["runs"].items()))
    print(
        f"{result['destroyed']} runs destroyed by damage, {result['healed']} mended from journals, "
        f"{result['restored_from_copy']} files beyond mending; "
        f"{result['retrained']} of {result['fits']} fits trained in vain, "
        f"{result['interrupted']} checkpoints of interrupted ones seen at rest"
    )
    for one in result["breaches"]:
        print(
            f"\n!! {one['kind']}, at fault {one['fault']} of seed {result['seed']}:\n{one['what']}"
        )
    print(f"\n{len(result['breaches']) or 'No'} promises broke.")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.storm", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--minutes", type=float, help="of faults; by default 30, with --quick 0.3")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="on this machine alone, in a minute")
    parser.add_argument("--sweep", choices=SWEEPS, help="by default, by the seed")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--faults",
        type=lambda text: text.split(","),
        default=KINDS,
        metavar="KIND,…",
        help=f"these alone, of: {', '.join(KINDS)}",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="copy the sweep there where a promise broke"
    )
    options = parser.parse_args()
    if unknown := set(options.faults) - set(KINDS):
        parser.error(f"unknown faults: {', '.join(sorted(unknown))}")
    if options.minutes is None:
        options.minutes = 0.3 if options.quick else 30
    return options


def _has_slurm(tell: Any) -> bool:
    try:
        check_packages(accounting=True)
    except MissingPackages as error:
        tell(f"without SLURM: {error}")
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
