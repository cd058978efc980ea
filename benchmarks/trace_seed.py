"""The way of a sweep's seed through the planner: which files it visits, and how often it returns.

A sweep is planned under `sys.setprofile`; by default one of two runs. A call carries the seed if an
argument is the seed, a text that names it, or an object that holds such a value in itself or in one
of its parts. A move is a carrying call in another file than the one before; a return is a move to a
file that was visited before.

    python benchmarks/trace_seed.py [SWEEP_FILE] [--moves] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from itertools import islice, pairwise
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(ROOT := Path(__file__).parents[1]))

DEPTH, WIDTH = 2, 50
"""How deep, and among how many entries of each object, the seed is looked for."""
PACKAGES = ("orchestrator", "jobs", "analysis", "slurm")
SWEEP = """
name = "traced"
seed = 20210427
repeats = 1
runs = 2
[[grid]]
dataset = ["sklearn:breast_cancer"]
classifier = ["lr-sgd"]
perturb_continuous = ["sig-digit:0"]
"""


def parts(value: Any) -> Iterator[Any]:
    """Yield what an object holds: entries of collections, attributes of others."""
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from value
    elif type(value).__module__.startswith("manyseed."):
        yield from getattr(value, "__dict__", {}).values()
        for name in getattr(type(value), "__slots__", ()):
            yield getattr(value, name, None)


def carries(value: Any, seed: int, depth: int = DEPTH) -> bool:
    """Return whether a value is the seed, names it, or has it in one of its parts."""
    if isinstance(value, str | bytes):
        return str(seed) in str(value)
    if isinstance(value, int):
        return value == seed
    return depth > 0 and any(carries(one, seed, depth - 1) for one in islice(parts(value), WIDTH))


def traced(do: Callable[[], object], seed: int) -> list[str]:
    """Return the files of the calls that carry the seed, in the order of the calls."""
    roots = tuple(f"{ROOT / name}/" for name in PACKAGES)
    files: list[str] = []

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        path = str(Path(code.co_filename).resolve())
        if path.startswith(roots):
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            if any(carries(frame.f_locals.get(name), seed) for name in names):
                files.append(path.removeprefix(f"{ROOT}/"))

    sys.setprofile(profile)
    try:
        do()
    finally:
        sys.setprofile(None)
    return files


def counted(files: list[str]) -> dict[str, Any]:
    """Return how many files calls visit, the moves between files, and the returns."""
    way = [*files[:1], *(after for before, after in pairwise(files) if after != before)]
    visited = len(set(way))
    return {"files": visited, "moves": len(way), "returns": len(way) - visited, "way": way}


def plan(text: str = SWEEP) -> dict[str, Any]:
    """Plan a sweep, after the same plan has loaded what libraries load when first used."""
    from manyseed.orchestrator.plans.planning import plan_sweep

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "sweep.toml")
        file.write_text(text)
        plan_sweep(file, Path(folder, "first"))
        seed = tomllib.loads(text)["seed"]
        return counted(traced(lambda: plan_sweep(file, Path(folder, "second")), seed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, help="a sweep file with an unusual seed")
    parser.add_argument("--moves", action="store_true", help="print every move")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    result = plan(options.file.read_text() if options.file else SWEEP)
    if options.json:
        print(json.dumps(result, indent=2))
        return
    if options.moves:
        print("\n".join(result["way"]))
    print("plan: {files} files, {moves} moves, {returns} returns".format(**result))


if __name__ == "__main__":
    main()
