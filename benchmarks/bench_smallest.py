"""CPU seconds of the smallest sweep, two linear fits: of all processes, detached ones included."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

SWEEP = """
name = "smallest"
seed = 1
repeats = 1
runs = 2
[[grid]]
dataset = ["sklearn:wine"]
classifier = ["lr-sgd"]
"""

PLAN = """
import sys
from pathlib import Path
from manyseed import Sweep
sweep = Sweep.plan(Path(sys.argv[1]), Path(sys.argv[2]))
"""

TRAIN = f"""{PLAN}
sweep.submit(workers=2)
sweep.wait()
sweep.compact()
assert sweep.status()["runs"]["done"] == 2
"""

PYTHON = sys.executable
RUN = [str(Path(PYTHON).with_name("manyseed")), "run"]
WAYS: dict[str, list[str]] = {
    "imports": [PYTHON, "-c", "import numpy, polars, typer"],
    "plan": [PYTHON, "-c", PLAN],
    "plan, train, compact": [PYTHON, "-c", TRAIN],
    "run": RUN,
}


def cpu_seconds(command: list[str]) -> float:
    """Run a command; return the CPU seconds of all processes that it leaves to this one."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with suppress(ChildProcessError):  # what it detached is adopted by this process
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure each way, in turns; print medians, also as ratios to the imports alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="once instead of five times")
    parser.add_argument("--json", type=Path, help="write the result here")
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "smallest.toml")
        file.write_text(SWEEP)
        for turn in range(1 if options.quick else 5):
            for number, (way, command) in enumerate(WAYS.items()):
                out = str(Path(folder, f"{turn}-{number}"))
                place = ["--out", out, "--cluster", "local"] if command is RUN else [out]
                seconds[way].append(cpu_seconds([*command, str(file), *place]))
    medians = {way: statistics.median(values) for way, values in seconds.items()}
    for way, value in medians.items():
        print(f"{way:22} {value:5.2f} CPU s  {value / medians['imports']:5.1f} × imports")
    if options.json:
        options.json.write_text(json.dumps(medians, indent=1))


if __name__ == "__main__":
    main()
