"""One session on a GPU: its tests, all forms of training timed and compared; at most 10 minutes.

Runs the tests that need a GPU. Then times fits of ``mlp``, ``cnn`` and ``vit``: one after the other
in a warm process, in several processes at once, and in stacks. Compares the scores of a stack with
those of the same runs alone, after one step and after a whole training. After each
measurement the results so far are written to ``gpu_session.json`` and ``gpu_session.md``. With
``--rehearse`` everything is small and on the CPU: it shows that the session works, not how fast.

    python benchmarks/gpu_session.py [--rehearse] [--seconds 540] [--out DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from manyseed.jobs import classifiers
from manyseed.jobs.cells import resolve_cell
from manyseed.jobs.datasets import resolve
from manyseed.jobs.run import Run, TrainingSet
from manyseed.jobs.trainer import Trainer, block_of, generators, made
from manyseed.jobs.training.handling import Handling
from manyseed.orchestrator.provenance import Recipe

ROOT = Path(__file__).parents[1]
TABLE = resolve("synthetic:gaussian", n_samples=846, n_features=18, weights=[628, 218], test=212)
IMAGE = (32, 32, 3)
NETWORKS: dict[str, dict[str, Any]] = {
    "mlp, 64 and 32 wide": {"batch_size": 32, "hparams": {"width1": 64, "width2": 32}},
    "mlp": {},
    "cnn": {},
    "vit": {},
}
EPOCHS = {"mlp": 20, "cnn": 3, "vit": 3}


def trained(
    name: str, numbers: list[int], args: argparse.Namespace, rows: int = 4096, **more: Any
) -> list[Any]:
    """Train runs of a network, at once if there are several; return their predictions.

    `rows`: images to train on, at most.
    """
    kind = name.partition(",")[0]
    options = {"epochs": 1 if args.rehearse else EPOCHS[kind], **NETWORKS[name], **more}
    handling = Handling(device="cpu" if args.rehearse else "gpu")
    if kind == "mlp":
        info = classifiers.resolve("mlp", options, TABLE)
        block = [Run(resolve_cell(1, TABLE, info).cell, 0, number) for number in numbers]
        if len(block) == 1:
            return [TRAINER.train(block[0], handling)]
        assert block == block_of(block[0], len(block))
        done = TRAINER.train_stack(block, dict.fromkeys(numbers, handling))
        return [made(done[number]) for number in numbers]
    described = replace(TABLE, image=IMAGE)
    info = classifiers.resolve(kind, options, described)
    cell, data = resolve_cell(1, described, info).cell, images(64 if args.rehearse else rows)
    fits = [(info.hparams, data, generators(Run(cell, 0, number))) for number in numbers]
    if len(fits) == 1:
        return [classifiers.fit(info.canonical, *fits[0], handling)]
    done = classifiers.fit_stack(info.canonical, fits, [handling] * len(fits))
    return [made(each) for each in done]


TRAINER = Trainer()


def images(n: int) -> TrainingSet:
    """Return random images, a quarter as many of them to test."""
    rng = np.random.default_rng(1)
    X = rng.integers(0, 256, (n + n // 4, int(np.prod(IMAGE)))).astype(np.float64)
    y = rng.integers(0, 2, len(X)).astype(np.uint16)
    return TrainingSet(X[:n], y[:n], X[n:], 2, np.zeros(X.shape[1], np.int32), IMAGE, y[n:])


def fit(args: argparse.Namespace) -> None:
    """Be a process: warm up, wait for a line, then fit for some seconds and print how many."""
    members, number, n_fits = args.members, 0, 0

    def once() -> None:
        nonlocal number, n_fits
        trained(args.fit, [*range(number, number + members)], args)
        number, n_fits = number + members, n_fits + members

    once()
    print("ready", flush=True)
    sys.stdin.readline()
    n_fits, began = 0, time.perf_counter()
    while not n_fits or time.perf_counter() - began < args.seconds:
        once()
    print(json.dumps(60 * n_fits / (time.perf_counter() - began)), flush=True)


def fits_a_minute(name: str, members: int, processes: int, args: argparse.Namespace) -> float:
    """Return how many fits processes that train at once finish in a minute, together."""
    words = ["--fit", name, "--members", str(members), "--seconds", str(args.each)]
    command = [sys.executable, __file__, *words, *(["--rehearse"] if args.rehearse else [])]
    with ExitStack() as stack:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        started = [subprocess.Popen(command, **pipes) for _ in range(processes)]
        for each in started:
            stack.enter_context(each)
            stack.callback(each.kill)
        for each in started:
            if each.stdout.readline() != "ready\n":
                raise RuntimeError(f"{name}, {members} at once: a process ended")
        for each in started:
            each.stdin.write("go\n")
            each.stdin.flush()
        return sum(json.loads(each.stdout.readline()) for each in started)


def measurements(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield what each measurement found; the most informative come first."""
    tests = ["-q", "-m", "gpu", "-n", "0", "tests/jobs/training"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *tests, *(["--co"] if args.rehearse else [])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    last = (done.stdout.strip() or done.stderr.strip()).splitlines()[-1:]
    yield {"what": "tests", "failed": done.returncode != 0, "found": " ".join(last)}
    members = 4 if args.rehearse else 32
    compared = [("mlp, 64 and 32 wide", {"batch_size": 1024})]
    compared += [(name, {"rows": 128, "hparams": {"batch": 128}}) for name in ("cnn", "vit")]
    for name, one_step in compared:
        for what, more in [("one step", {"epochs": 1, **one_step}), ("whole training", {})]:
            together = trained(name, [*range(members)], args, **more)
            alone = [trained(name, [number], args, **more)[0] for number in range(members)]
            pairs = [(one.scores, other.scores) for one, other in zip(together, alone, strict=True)]
            largest = max(float(np.abs(one - other).max()) for one, other in pairs)
            labels = sum(int(((one >= 0) != (other >= 0)).sum()) for one, other in pairs)
            against = f"{name}: stack against alone, {what}"
            yield {"what": against, "largest": largest, "labels": labels}
    for name in NETWORKS:
        forms = [(1, 1), (1, 2), *([] if args.rehearse else [(1, 4)])]
        forms += [(members, 1), (members, 2)]
        base = 0.0
        for at_once, processes in forms:
            each: dict[str, Any] = {"what": name, "at_once": at_once, "processes": processes}
            try:
                rate = fits_a_minute(name, at_once, processes, args)
            except (RuntimeError, ValueError) as error:  # out of memory, for example
                yield {**each, "failed": str(error)}
                continue
            base = base or rate
            yield {**each, "fits_a_minute": rate, "times": rate / base}


def table(found: list[dict[str, Any]], device: str) -> str:
    """Return the Markdown page."""
    lines = [f"# Forms of training on {device}", ""]
    lines += [f"- {json.dumps(each)}" for each in found if "at_once" not in each]
    lines += ["", "| network | seeds a step | processes | fits a minute | × sequential |"]
    lines += ["|---|---|---|---|---|"]
    for each in (each for each in found if "at_once" in each):
        rate = f"{each['fits_a_minute']:.1f} | {each['times']:.2f}" if "times" in each else "— | —"
        lines.append(f"| {each['what']} | {each['at_once']} | {each['processes']} | {rate} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure until all is done or the time is over."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--seconds", type=float, default=540.0)
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--fit", choices=NETWORKS)
    parser.add_argument("--members", type=int, default=1)
    args = parser.parse_args()
    if args.fit:
        fit(args)
        return
    args.each = 0.0 if args.rehearse else 8.0
    recipe = Recipe.here() if args.rehearse else Recipe.here(gpu())
    found: list[dict[str, Any]] = []
    began = time.monotonic()
    for each in measurements(args):
        found.append(each)
        print(json.dumps(each), flush=True)
        whole = {"rehearsal": args.rehearse, "recipe": recipe.to_json(), "found": found}
        (args.out / "gpu_session.json").write_text(json.dumps(whole, indent=1))
        page = table(found, f"{recipe.device_class}{', a rehearsal' if args.rehearse else ''}")
        (args.out / "gpu_session.md").write_text(page)
        if not args.rehearse and time.monotonic() - began > args.seconds:
            print("the time is over", flush=True)
            break


def gpu() -> str:
    """Return the GPU's model."""
    from manyseed.jobs.training.handling import gpu_model

    return gpu_model()


if __name__ == "__main__":
    main()
