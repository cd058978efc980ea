"""Which files of a folder are meant, and how to make of other formats what is read."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from manyseed.analysis.counts import some
from manyseed.orchestrator.calls import warn
from manyseed.orchestrator.errors import Unread, UserError
from manyseed.orchestrator.importing.arrays import READERS
from manyseed.orchestrator.importing.classes import by_numbers
from manyseed.orchestrator.importing.filenames import (
    form_of_one,
    form_of_tree,
    forms_of_data_sets,
    leaves_out,
)
from manyseed.orchestrator.importing.frames import TABLES
from manyseed.orchestrator.importing.mapping import is_named
from manyseed.orchestrator.importing.naming import holds_names, without_class_names
from manyseed.orchestrator.importing.predictions import TRUTHS
from manyseed.orchestrator.importing.truths import is_truth, tell_truth, true_classes, truths_in

FORMATS = (*READERS, *TABLES, ".zip")
_TO_PARQUET = "write_parquet(f.with_suffix('.parquet')) for f in {files}]"
_TO_NPZ = "[np.savez(f.with_suffix('.npz'), **{load}) for f in {{files}}]"
_LINES = {
    ".json": f"import json, polars as pl; [pl.DataFrame(json.load(open(f))).{_TO_PARQUET}",
    ".tsv": f"import polars as pl; [pl.read_csv(f, separator='\\t').{_TO_PARQUET}",
    ".feather": f"import polars as pl; [pl.read_ipc(f).{_TO_PARQUET}",
    ".xlsx": f"import polars as pl; [pl.read_excel(f).{_TO_PARQUET}",
    ".pkl": "import pickle, numpy as np; " + _TO_NPZ.format(load="pickle.load(open(f, 'rb'))"),
    ".joblib": "import joblib, numpy as np; " + _TO_NPZ.format(load="joblib.load(f)"),
    ".dill": "import dill, numpy as np; " + _TO_NPZ.format(load="dill.load(open(f, 'rb'))"),
}
_LINES |= {".pickle": _LINES[".pkl"], ".xls": _LINES[".xlsx"], ".ods": _LINES[".xlsx"]}
_SPLIT = (
    "import json, polars as pl; [pl.DataFrame(d['data'], schema=d['columns'], orient='row')."
    "write_parquet(f.with_suffix('.parquet')) for f in {files} for d in [json.load(open(f))]]"
)
"""Of JSON with keys columns and data: as Weights & Biases and pandas write tables."""
_RUNS = (
    "import json, polars as pl; [pl.DataFrame([{{{{k: {{{{**d, **r}}}}[k] for k in {keys}}}}} "
    "for r in d[{runs!r}]]).explode({lists}).write_parquet(f.with_suffix('.parquet')) "
    "for f in {{files}} for d in [json.load(open(f))]]"
)
"""Of JSON with a list of runs, each with lists of its test points."""
_PICKLES = (".pkl", ".pickle", ".joblib", ".dill")
_MOST_BYTES = 2**26
_WORDS = {
    (".gz", ".bz2", ".xz", ".zst", ".7z", ".tar"): "unpack it",
    (".txt", ".rds"): "save it as CSV or Parquet",
    (".h5", ".hdf5", ".mat", ".zarr"): "save it with numpy.savez",
}


def conversion(file: Path, folder: Path | None = None) -> str:
    """Return how to make a file, or all of its kind in a folder, readable; "" if unknown."""
    suffix = file.suffix.lower()
    if suffix not in _LINES:
        return next((how for of, how in _WORDS.items() if suffix in of), "")
    form = _LINES[suffix]
    if suffix == ".json":
        form = _SPLIT if _is_split(file) else _of_runs(file) or form
    kind = "".join(file.suffixes[-2:]) if file.name.endswith(".table.json") else file.suffix
    path = f"Path({str(folder or file)!r})"
    files = f"[{path}]" if folder is None else f"{path}.rglob({f'*{kind}'!r})"
    line = f"from pathlib import Path; {form.format(files=files)}"
    why, what = f"{suffix} is not read", "tables"
    if suffix in _PICKLES:
        why, what = "a pickle may run anything, and is not read", "dicts of arrays that you trust"
    if "read_excel" in line:
        what = f"{what}, with pip install fastexcel,"
    return f"{why}; make files of {what} readable:\n  python -c {shlex.quote(line)}"


def _is_split(file: Path) -> bool:
    """Return whether a file of JSON has its columns' names apart from its rows."""
    with suppress(OSError, ValueError, RecursionError):
        if file.stat().st_size <= _MOST_BYTES:
            held = json.loads(file.read_bytes())
            return isinstance(held, dict) and {"columns", "data"} <= {*held}
    return file.name.endswith(".table.json")


def _of_runs(file: Path) -> str:
    """Return how to read a file of JSON with a list of runs; "" if it is none."""
    held: Any = None
    with suppress(OSError, ValueError, RecursionError):
        if file.stat().st_size <= _MOST_BYTES:
            held = json.loads(file.read_bytes())
    for runs, listed in held.items() if isinstance(held, dict) else ():
        if not (isinstance(listed, list) and listed and all(isinstance(r, dict) for r in listed)):
            continue
        every = [{**held, **one} for one in listed]
        keys = [key for key in every[0] if key != runs and all(key in one for one in every)]
        plain = [key for key in keys if isinstance(every[0][key], str | int | float)]
        lists = [key for key in keys if isinstance(every[0][key], list)]
        n = max((len(every[0][key]) for key in lists), default=0)
        lists = [key for key in lists if len(every[0][key]) == n]
        if n > 1 and all(len({len(one[key]) for key in lists}) == 1 for one in every):
            return _RUNS.format(keys=[*plain, *lists], runs=runs, lists=lists)
    return ""


def is_folder(file: Any) -> bool:
    """Return whether this is the path of a folder, not a file or what is in memory."""
    return isinstance(file, Path) and file.is_dir()


def spread(file: Any, truths: list[Path]) -> list[Any]:
    """Return the files that are meant: those of a folder, seed-2 before seed-10.

    A folder's file of true classes goes to `truths`.
    """
    if not is_folder(file):
        return [file]
    every = [one for one in file.iterdir() if not one.name.startswith(".")]
    held = [one for one in every if one.suffix in FORMATS]
    if left := sorted(one.name for one in every if one not in held and _LEFT.fullmatch(one.name)):
        warn(f"{some(left, _MOST_NAMED)} in {file} {'was' if len(left) == 1 else 'were'} not read.")
    real = {one.resolve() for one in held if not one.is_symlink()}  # latest.npz → seed-4.npz
    held = [one for one in held if not one.is_symlink() or one.resolve() not in real]
    found = sorted((one for one in held if one.is_file()), key=lambda one: by_numbers(one.stem))
    found = without_class_names(found)
    truths += (own := truths_in(found))
    if len(own) == 1 < len(found) and own[0].stem not in TRUTHS:
        tell_truth(own[0])
    others = [one for one in found if one not in own]
    below = [one for one in sorted(file.glob("*/**/*")) if one.suffix in FORMATS]
    if not others or (below and len(others) == 1 and is_truth(others[0])):
        remedy = f"their names end in {', '.join(FORMATS)}"
        below = [one for one in below if not _OF_TRAINING.fullmatch(one.stem)] or below
        every = [one for one in below if not is_named(one.stem, "truth")] or below
        if every:
            example = every[0]
            path = example.relative_to(file).as_posix()
            same = [one for one in every if one.name == example.name]
            form = next(filter(None, map(form_of_tree, (every, same))), "")
            form = form or form_of_data_sets(every) or form_of_one(path)
            if leaves_out(form, every, file):
                remedy = f"its folders do; say with --name what their paths, such as {path}, mean: "
                remedy += "which part is the {run}, which the {classifier} if there are several"
                what = "this folder has no files of predictions"
                raise UserError(what, file=file, remedy=remedy)
            raise Unread(
                "this folder has no files of predictions",
                file=file,
                key=None,
                options={"name": form},
                before=f"its folders do; say what their paths, such as {path}, mean: ",
            )
        known = (*_LINES, *(suffix for of in _WORDS for suffix in of))
        others = [one for one in sorted(file.rglob("*")) if one.suffix.lower() in known]
        others = [one for one in others if one.is_file()]
        left = [one for one in others if not (_OF_TRAINING.fullmatch(one.stem) or holds_names(one))]
        if left:
            remedy = f"{remedy}; {conversion(left[0], file)}"
        elif others:
            metrics = f"{others[0].relative_to(file)} holds metrics or settings, no predictions"
            remedy = f"{metrics}; save what the model predicts for each test point; {remedy}"
        raise UserError("this folder has no files of predictions", file=file, remedy=remedy)
    return others


def form_of_data_sets(files: Sequence[Path]) -> str:
    """Return the pattern of folders of models and data sets, told by true classes; "" if none."""
    found = list[str]()
    for form, named in forms_of_data_sets(files):
        of_set: dict[str, set[bytes]] = {}
        for name, file in zip(named, files, strict=True):
            with suppress(UserError, OSError):
                of_set.setdefault(name, set()).add(true_classes(file, None).tobytes())
        digests = [next(iter(of)) for of in of_set.values() if len(of) == 1]
        if len({*digests}) == len({*named}):
            found.append(form)
    return found[0] if len(found) == 1 else ""


_OF_TRAINING = re.compile(
    r"(train(ing)?_?)?(metrics|log(s|_?history)?|history|progress|loss(es)?)|hparams|params|config"
    r"|trainer_state|(all|train|eval|test|predict)_(results|metrics)|wandb[-_]\w+|summary|args"
    r"|run_?info|vocab|(special_)?tokens(_map)?|(added|tokenizer|generation|model)_\w+",
    re.IGNORECASE,
)
"""What libraries write beside predictions, in formats of predictions."""

_LEFT = re.compile(r".*[.](csv|tsv|np[yz]|parquet|xlsx?|feather)([.](gz|bz2|xz|zst))?", re.I)

_MOST_NAMED = 5
