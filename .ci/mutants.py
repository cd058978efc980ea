# ruff: noqa: E501 - a mutant is one line
"""Whether the quick tests notice faults that a maintainer fears: a sample of 30 mutants.

    .venv/bin/python .ci/mutants.py [--list] [--tree DIR] [NUMBER or TEXT …]

Each mutant replaces one piece of one line in a copy of the tree, and runs the tests that should
notice it. First, all these tests must pass without a mutant. A mutant whose text is not there
exactly once, or whose tests are gone, is an error. Numbers, or texts in a file's name, select some;
`--tree` takes another checkout. Exits with 1 if a mutant survives.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple


class Mutant(NamedTuple):
    """In `file`, `old` becomes `new`; `tests` are files or folders below tests/."""

    file: str
    old: str
    new: str
    tests: str


_KERNEL, _TESTED = "analysis/alphahat/trimming.py", "analysis/metrics/test_alpha_hat.py"
_STORE, _CARE = "orchestrator/store", "orchestrator/store/test_compact.py"
_SHARDS = "orchestrator/store/test_shards.py"
_JOURNAL = "orchestrator/store/test_journal.py"
_ENCODING = "orchestrator/store/test_encoding.py"
_LAYOUT, _EXPANSION = "orchestrator/plans/layout.py", "orchestrator/grids/expansion.py"
_LAID, _EXPANDED = "orchestrator/plans/test_layout.py", "orchestrator/grids/test_expansion.py"
_UNCERTAIN = "analysis/uncertainty"

# fmt: off
MUTANTS = [Mutant(*fields) for fields in (
    # kernels: a model among its own references, a sign, a stretch, thresholds, ties, normalisation
    (_KERNEL, "(n_models - 1 if member else n_models)", "n_models", _TESTED),
    (_KERNEL, "max(largest, abs(before), abs(reached))", "max(largest, before, reached)", _TESTED),
    (_KERNEL, "range(0, n_points, STRETCH)", "range(0, n_points - 1, STRETCH)", _TESTED),
    ("analysis/alphahat/trimming.py", "2.0 if n_side >= ASYMPTOTIC_N", "2.0 if n_side > ASYMPTOTIC_N", "analysis/alphahat/test_trimming.py"),
    ("analysis/alphahat/resampling.py", "words <= ends[n_side - 1]", "words < ends[n_side - 1]", _TESTED),
    ("analysis/metrics/formulas.py", "union = errors_i + errors_j - both", "union = errors_i + errors_j", "analysis/metrics/test_agreement.py"),
    ("analysis/metrics/calibration.py", "np.ceil(confidence * bins).astype(np.intp) - 1", "np.floor(confidence * bins).astype(np.intp)", "analysis/metrics/test_calibration.py"),
    ("analysis/metrics/classification.py", "negative * (2 * right + positive)", "negative * 2 * right", "analysis/metrics/test_classification.py"),
    (f"{_UNCERTAIN}/__init__.py", "np.where(first, of_second, of_first)", "np.where(first, of_first, of_second)", f"{_UNCERTAIN}/test_temperature.py"),
    (f"{_UNCERTAIN}/__init__.py", 'threshold, side="right"', 'threshold, side="left"', f"{_UNCERTAIN}/test_scores.py"),
    (f"{_UNCERTAIN}/__init__.py", '"deep_ensemble", dataset_id, repeat_index, draw', '"deep_ensemble", dataset_id, draw', f"{_UNCERTAIN}/test_dee.py"),
    # the store: records kept twice, dropped syncs, unread checksums, last rows and records, a lost race
    (f"{_STORE}/shards.py", "copy.write_bytes(encoding.encode_records(group.spec, numbers))", 'copy.write_bytes(b"")', f"{_SHARDS} orchestrator/store/test_verify.py"),
    ("jobs/whole.py", "if path is paths[-1]:", "if path is paths[0]:", "jobs/test_whole.py orchestrator/disk/test_placing.py"),
    (f"{_STORE}/journal.py", "os.fsync(self._open_file())", "pass", _JOURNAL),
    (f"{_STORE}/journal.py", "if google_crc32c.value(data[: _HEADER.size]) != _CRC.unpack_from(data, _HEADER.size)[0]:", "if False:", _JOURNAL),
    (f"{_STORE}/chunkfile.py", "if _checksum(view) != crc.tobytes():", "if False:", _ENCODING),
    (f"{_STORE}/shards.py", "planned = len(self.padding) - int(", "planned = len(self.padding) - 1 - int(", _SHARDS),
    (f"{_STORE}/compact.py", "if sizes.get(name) == journals.size(name)", "if name in sizes", _CARE),
    (f"{_STORE}/reader.py", 'rows & (lost | (found != self.records["crc"]))', "rows & lost", _CARE),
    (f"{_STORE}/index.py", "HEADER_SIZE + header.payload <= size", "HEADER_SIZE + header.payload < size", _JOURNAL),
    (f"{_STORE}/testsets.py", 'merged["test_index"][span, 0] >= 0', 'merged["test_index"][span, 0] > 0', f"{_SHARDS} {_STORE}/test_reader.py {_STORE}/test_groups.py"),
    # the planner: a shard's boundary, the order of rows, copies, parts of keys, grids that overlap
    (_LAYOUT, "-(-length // shard) * shard", "length // shard * shard", _LAID),
    (_LAYOUT, '.sort("group", "repeat", "cell")', '.sort("group", "cell", "repeat")', _LAID),
    (_LAYOUT, '(pl.col("run") > 0)', '(pl.col("run") >= 0)', "orchestrator/test_sweepstore.py"),
    ("jobs/run.py", "value, sort_keys=True", "value, sort_keys=False", "jobs/test_identity.py"),
    ("jobs/run.py", "[STREAMS_VERSION, seed, name, list(keys)]", "[STREAMS_VERSION, seed, list(keys)]", "jobs/test_streams.py"),
    (_EXPANSION, "min(n or wanted, wanted)", "n or wanted", _EXPANDED),
    (_EXPANSION, "whole=(whole[0] & whole[1]).any()", "whole=(whole[0] | whole[1]).any()", _EXPANDED),
    ("orchestrator/grids/grid.py", "matched &= is_hit[codes[axis]]", "matched = is_hit[codes[axis]]", "orchestrator/grids/test_grid.py"),
    ("orchestrator/plans/plan.py", "_digests(plan.all_cells, number)[-1]", "_digests(plan.all_cells, number)[0]", "orchestrator/plans/test_planning.py"),
)]
# fmt: on


def main() -> int:
    """Run the selected mutants; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="check and list them, run nothing")
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[1], metavar="DIR")
    parser.add_argument("selected", nargs="*", metavar="NUMBER or TEXT")
    given = parser.parse_args()
    mutants = [
        (number, mutant)
        for number, mutant in enumerate(MUTANTS, 1)
        if not given.selected
        or any(text == str(number) or text in mutant.file for text in given.selected)
    ]
    for number, mutant in mutants:
        lacking = [t for t in mutant.tests.split() if not (given.tree / "tests" / t).exists()]
        if (times := (given.tree / mutant.file).read_text().count(mutant.old)) != 1 or lacking:
            sys.exit(
                f"mutant {number}: {mutant.old!r} {times} times in {mutant.file}, no {lacking}"
            )
        if given.list:
            print(f"{number:3} {mutant.file}: {mutant.old} -> {mutant.new or 'nothing'}")
    if given.list:
        return 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder, "tree")
        copy(given.tree, tree)
        if told := _tests(tree, sorted({t for _, mutant in mutants for t in mutant.tests.split()})):
            sys.exit(f"the tests fail without any mutant:\n{told[-3000:]}")
        survivors = [number for number, mutant in mutants if not killed(tree, number, mutant)]
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} killed; survivors: {survivors}")
    return bool(survivors)


def copy(source: Path, target: Path) -> None:
    """Copy the files that git tracks, as they are now."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=source, check=True, capture_output=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source / name, target / name, follow_symlinks=False)


def killed(tree: Path, number: int, mutant: Mutant) -> bool:
    """Say whether the tests of a mutant fail; the tree is as before afterwards."""
    file, began = tree / mutant.file, time.monotonic()
    text, stamp = file.read_text(), file.stat()
    try:
        file.write_text(text.replace(mutant.old, mutant.new))
        failed = bool(_tests(tree, mutant.tests.split()))
    finally:
        file.write_text(text)
        os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # what is compiled stays valid
    said = "killed" if failed else "SURVIVED"
    print(f"{number:3} {said:9}{time.monotonic() - began:5.0f} s  {mutant.file}", flush=True)
    return failed


def _tests(tree: Path, tests: list[str]) -> str:
    """Run tests in a tree; return what pytest said if some failed, otherwise nothing."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-m", "not slow"]
    command += ["--no-header", "-p", "no:cacheprovider", *(f"tests/{test}" for test in tests)]
    # what numba compiles is kept for the next mutants; the first run, without any, fills it
    env = {**os.environ, "PYTHONPATH": str(tree / "src"), "NUMBA_CACHE_DIR": f"{tree}-compiled"}
    done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, check=False)
    if done.returncode > 1:
        sys.exit(f"the tests did not run:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout if done.returncode else ""


if __name__ == "__main__":
    sys.exit(main())
