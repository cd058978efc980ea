"""What the benchmarks of whole commands share: measuring one, and fits that cost nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MEASURED = """
import json, resource, sys
from collections import Counter
from pathlib import Path
seen = Counter()
FILES = {"open", "os.listdir", "os.scandir", "os.mkdir", "os.rename", "os.link", "os.remove"}
FILES |= {"os.rmdir", "os.truncate", "os.utime"}
def look(event, arguments):
    if event in FILES:
        seen["file_operations"] += 1
    elif event == "subprocess.Popen":
        seen[Path(str(arguments[0])).name] += 1
sys.addaudithook(look)
from manyseed.orchestrator.cli import main
sys.argv[0] = "manyseed"
try:
    main()
finally:  # unlike getrusage's, not what the parent had before
    (peak,) = (l for l in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in l)
    used = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(of.ru_utime + of.ru_stime for of in used)
    found = {"cpu_seconds": cpu, "peak_MB": int(peak.split()[1]) * 1024 / 1e6, **seen}
    print("measured", json.dumps(found), file=sys.stderr)
"""

_SHIM = """
import importlib.abc, importlib.util, os, sys, time

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "manyseed.jobs.trainer":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            module.Trainer.train = replacement(module.Trainer.train)
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
"""


def measured(*arguments: str | Path) -> dict[str, float]:
    """Run a command; return its seconds and what it used.

    Processor time of the command and of the processes that it waited for, peak memory of the
    command alone; operations on files are those that Python's audit hooks see, not polars' own;
    processes started, by program.
    """
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - started
    if done.returncode not in (0, 3) or "measured " not in done.stderr:  # 3: not finished
        raise SystemExit(done.stdout + done.stderr)
    return {"seconds": seconds, **json.loads(done.stderr.rpartition("measured ")[2])}


@contextmanager
def other_fits(folder: Path, replacement: str) -> Iterator[None]:
    """Let training processes started meanwhile fit by other code.

    `replacement` defines a function of that name, from `Trainer.train` to what takes its place.
    """
    shims, path = folder / "shims", os.environ.get("PYTHONPATH", "")
    shims.mkdir(parents=True)
    (shims / "sitecustomize.py").write_text(_SHIM + replacement)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(shims), str(Path(__file__).parents[1]), path])
    try:
        yield
    finally:
        os.environ["PYTHONPATH"] = path
