"""Commands that answer: CPU time as a ratio to ``python -c "import numpy, polars, typer"``.

    python benchmarks/bench_startup.py [--quick] [--json] [--directory DIR]

Every command runs in a process of its own on a finished sweep: by default that of
``examples/quickstart.toml``, which the benchmark trains and analyses first (minutes); with
``--quick``, a small one of two linear classifiers; with ``--directory``, an existing one, which is
not changed but for its report and the figures kept for it, which the first, uncounted round draws.
Commands and imports alternate, each after the other in several
rounds, and the medians count: CPU seconds of the process and its children, user and system.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROUNDS = {True: 1, False: 7}
IMPORTS = "import numpy, polars, typer"
SMALL = """
name = "small"
seed = 1
repeats = 2
runs = 3
[[grid]]
dataset = ["sklearn:wine"]
classifier = ["lr-sgd", "svm-sgd"]
"""
COMMANDS: dict[str, tuple[Sequence[str], float]] = {
    "--version": (["--version"], 0.7),
    "--help": (["--help"], 1.2),
    "a wrong option": (["status", "DIR", "--nope"], 0.7),
    "a lacking argument": (["status"], 0.7),
    "a directory that is not there": (["status", "DIR/nowhere"], 0.7),
    "status": (["status", "DIR"], 1.4),
    "logs --failed": (["logs", "DIR", "--failed"], 1.4),
    "show": (["show", "DIR", "0:0:0"], 1.4),
    "query --by classifier": (["query", "DIR", "--by", "classifier"], 2.0),
    "answers": (["answers", "DIR"], 4.0),
    "plan --dry-run": (["plan", "FILE", "--dry-run"], 4.0),
    "report": (["report", "DIR"], 12.0),
}
"""What is run, and the largest ratio that it should have."""


def cpu_seconds(command: Sequence[str | Path], codes: Sequence[int] = (0,)) -> float:
    """Run a command to its end; return the CPU seconds that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # bytecode is written as an installation does, whatever this process was told
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode not in codes:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--directory", type=Path, help="a finished sweep")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = ROOT / "examples" / "quickstart.toml"
        directory = arguments.directory
        if directory is None:
            directory = Path(folder) / "sweep"
            if arguments.quick:
                file = Path(folder) / "small.toml"
                file.write_text(SMALL)
            run = ["run", file, "--out", directory, "--cluster", "local"]
            cpu_seconds([sys.executable, "-P", "-m", "manyseed", *run])
        found = measure(directory, file, ROUNDS[arguments.quick])
    if arguments.json:
        print(json.dumps(found))
        return
    print(f"{IMPORTS}: {found['imports']:.3f} CPU seconds")
    print(f"{'command':<32}{'CPU s':>7}{'ratio':>7}{'at most':>9}")
    for name, row in found["commands"].items():
        print(f"{name:<32}{row['seconds']:>7.3f}{row['ratio']:>7.2f}{row['at_most']:>9.1f}")


def measure(directory: Path, file: Path, rounds: int) -> dict[str, object]:
    """Return the medians of all commands, in CPU seconds and as ratios to the imports."""
    words = {"DIR": str(directory), "DIR/nowhere": str(directory / "nowhere"), "FILE": str(file)}
    imports: list[float] = []
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for number in range(rounds + 1):
        times = {"": cpu_seconds([sys.executable, "-P", "-c", IMPORTS])}
        for name, (arguments, _) in COMMANDS.items():
            command = [words.get(word, word) for word in arguments]
            start = [sys.executable, "-P", "-m", "manyseed", *command]
            times[name] = cpu_seconds(start, (0, 2))  # 2: what is refused
        if number == 0:
            continue  # files are read from the disk, and bytecode may be written
        imports.append(times[""])
        for name in COMMANDS:
            taken[name].append(times[name])
    base = statistics.median(imports)
    return {
        "imports": base,
        "commands": {
            name: {
                "seconds": statistics.median(taken[name]),
                "ratio": statistics.median(taken[name]) / base,
                "at_most": at_most,
            }
            for name, (_, at_most) in COMMANDS.items()
        },
    }


if __name__ == "__main__":
    main()
