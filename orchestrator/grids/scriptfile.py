"""A program that reads its arguments: those that it declares, and how it is run for each seed.

The file is parsed; its code is not imported.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from manyseed.jobs.own.estimator import SEEDS
from manyseed.orchestrator.errors import UserError, command, shell_word

PROGRAMS = {".py": "python ", ".R": "Rscript ", ".jl": "julia ", ".sh": "bash "}
ARGUMENTS = {
    *("argv", "parse_args", "parse_known_args", "argparse", "optparse", "getopt", "absl", "hydra"),
    *("click", "typer", "fire", "docopt", "tyro", "jsonargparse", "simple_parsing"),
}
"""Names that a script uses to read its arguments."""

BESIDE = "import#other-classifiers"
"""Where the docs say how other classifiers stand beside imported ones."""

_OF_SEEDS = (*SEEDS, "manual_seed", "rng_seed")
_OF_OUTPUT = (
    *("out", "output", "out_file", "output_file", "save", "preds", "predictions", "outfile", "o"),
    *("out_path", "output_path", "save_path", "save_to", "pred_file", "preds_file", "results"),
)
_OF_FOLDERS = ("out_dir", "outdir", "output_dir", "save_dir", "results_dir", "log_dir", "logdir")
_OF_DATA = ("data", "data_file", "data_path", "dataset", "csv", "input", "input_file", "file")
"""What scripts call their options for the seed, the output and the data, in lower case."""


def statements_of(file: Path, model: str) -> list[ast.stmt]:
    """Return the statements of a Python file, or refuse `model`, which it was given as."""
    try:
        return ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError) as error:
        message = f"{file} is not valid Python: {error}"
        raise UserError(message, key="MODEL", value=model) from None


def names_in(statements: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield all names that statements use."""
    for node in (node for statement in statements for node in ast.walk(statement)):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (each.asname or each.name.partition(".")[0] for each in node.names)
            yield from (each.name.partition(".")[0] for each in node.names)


@dataclass(frozen=True, slots=True)
class _Argument:
    """An argument that a script declares; `flag` is how it is typed, empty for one by position."""

    flag: str
    name: str
    default: object = None

    @property
    def word(self) -> str:
        return self.name.replace("-", "_").lower()

    def given(self, value: str) -> str:
        return f"{self.flag} {value}".strip()


def _calls(statements: Sequence[ast.stmt]) -> list[ast.Call]:
    nodes = (node for statement in statements for node in ast.walk(statement))
    return [node for node in nodes if isinstance(node, ast.Call)]


def _declared(statements: Sequence[ast.stmt]) -> Iterator[_Argument]:
    """Yield the arguments that take a value, each by all of its long names, or its only one."""
    for call in _calls(statements):
        words = [each.value for each in call.args if isinstance(each, ast.Constant)]
        names = [word for word in words if isinstance(word, str)]
        given = {
            each.arg: each.value.value
            for each in call.keywords
            if isinstance(each.value, ast.Constant)
        }
        if str(given.get("action", "")).startswith(("store_", "count")):
            continue
        flags = [name for name in names if name.startswith("--")]
        if getattr(call.func, "attr", "") == "add_argument":
            flags = flags or names[:1]
        for flag in flags:
            name = flag.lstrip("-")
            yield _Argument(flag * flag.startswith("-"), name, given.get("default"))


def script_options(script: Path) -> dict[str, int | float | None]:
    """Return the long options that a script declares, without dashes, with defaults if numbers."""
    return {
        each.name: value
        if isinstance(value := each.default, int | float) and not isinstance(value, bool)
        else None
        for each in _declared(statements_of(script, str(script)))
        if each.flag.startswith("--")
    }


def seed_loop(script: Path, name: str, data: str = "DATA") -> list[str]:
    """Return how a script that reads its own data is run for each seed, and its output imported.

    Where no argument says which seed or where to write, what to add to it comes first.

    `name`: what to call the classifier. `data`: the file that the script is given, if it has an
    option for one.
    """
    statements = statements_of(script, str(script)) if script.suffix == ".py" else []
    known = [*_declared(statements)]
    seed = next((each for each in known if each.word in _OF_SEEDS), None)
    out = next((each for each in known if each.word in _OF_OUTPUT), None)
    out = out or next((each for each in known if each.word in _OF_FOLDERS), None)
    is_read = bool(known) or (
        bool(statements) and ARGUMENTS.isdisjoint(names_in(statements))
    )  # else other means may declare them
    if seed is not None and out is not None:
        begin = [
            "A script that reads its own data needs no change: run it for each seed, and import:"
        ]
    elif is_read:
        begin = [*_to_add(script, statements, seed, out)]
    else:
        begin = [
            "A script that reads its own data, and takes a seed and a file to write, needs no "
            "change: run it for each seed, and import:"
        ]
    suffix = _suffix(statements, out) if out or not is_read else ".npz"
    value = {seed: "$s", out: f"preds/seed-$s{suffix}"}
    value |= {each: shell_word(data) for each in known if each.word in _OF_DATA}
    given = [each.given(value[each]) for each in known if each in value]
    given += ["--seed $s"] * (seed is None) + [f"--out preds/seed-$s{suffix}"] * (out is None)
    start = PROGRAMS.get(script.suffix, "./") + shell_word(str(script))
    line, called = " ".join([start, *given]), ("--classifier", name)
    return [
        *begin,
        f"  mkdir preds; for s in $(seq 20); do {line}; done",
        f"  {command('import', 'preds', '--out', f'{script.stem}-sweep', *called)}",
        f"  {command('docs')} {BESIDE}  # to compare it with another",
    ]


def _to_add(
    script: Path, statements: Sequence[ast.stmt], seed: _Argument | None, out: _Argument | None
) -> Iterator[str]:
    """Yield what to add to a script so that arguments say which seed, and where to write."""
    says = ["which seed"] * (seed is None) + ["where to write"] * (out is None)
    yield f"If it reads its own data: no argument of {script} says {' or '.join(says)}. Add:"
    called = [each.func for each in _calls(statements)]
    methods = [each for each in called if isinstance(each, ast.Attribute)]
    parsers = [ast.unparse(each.value) for each in methods if each.attr == "add_argument"]
    if "click" in (names := {*names_in(statements)}):
        declared = {"seed": '@click.option("--seed", type=int)', "out": '@click.option("--out")'}
        taken = "{}"
    else:
        parser, taken = (parsers or ["parser"])[0], f"{_parsed(statements)}.{{}}"
        if not parsers:
            yield "  import argparse; parser = argparse.ArgumentParser()"
        declared = {
            "seed": f'{parser}.add_argument("--seed", type=int)',
            "out": f'{parser}.add_argument("--out")',
        }
    if seed is None:
        yield f"  {declared['seed']}"
    if out is None:
        yield f"  {declared['out']}"
    if not parsers and taken != "{}":
        yield "  args = parser.parse_args()"
    if seed is None:
        yield f"  {_seeded(names, taken.format('seed'))}"
    if out is None:
        numpy = "np" if "np" in names else "import numpy as np; np"
        yield f"  {numpy}.savez({taken.format('out')}, scores=scores, y_true=y_true)"
        yield (
            "(scores: a row for each test row and a column for each class, such as logits; "
            "y_true: their true classes)"
        )
    yield "Then run it for each seed, and import:"


def _parsed(statements: Sequence[ast.stmt]) -> str:
    """Return what a script calls its parsed arguments."""
    nodes = (node for statement in statements for node in ast.walk(statement))
    assigned = [node for node in nodes if isinstance(node, ast.Assign)]
    for each in assigned:
        if getattr(getattr(each.value, "func", None), "attr", "") == "parse_args":
            return ast.unparse(each.targets[0])
    return "args"


def _seeded(names: Collection[str], seed: str) -> str:
    """Return a line that seeds what a script draws from."""
    used = {
        "torch": f"torch.manual_seed({seed})",
        "np": f"np.random.seed({seed})",
        "random": f"random.seed({seed})",
    }
    lines = [line for name, line in used.items() if name in names]
    return "; ".join(lines) or f"and pass {seed} to what draws random numbers"


_WRITTEN = {"to_csv": ".csv", "to_parquet": ".parquet", "savez_compressed": ".npz", "savez": ".npz"}


def _suffix(statements: Sequence[ast.stmt], out: _Argument | None) -> str:
    """Return the suffix of what a script writes: by its option's default, or what it calls."""
    if out is not None and out.word in _OF_FOLDERS:
        return ""
    if out is not None and (suffix := Path(str(out.default)).suffix):
        return suffix
    names = {getattr(call.func, "attr", "") for call in _calls(statements)}
    return next((suffix for name, suffix in _WRITTEN.items() if name in names), ".npz")
