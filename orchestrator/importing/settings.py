"""Settings that other tools write beside predictions, which tell models apart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from manyseed.analysis.counts import some
from manyseed.orchestrator.calls import warn
from manyseed.orchestrator.errors import Unread, UserError, nearest
from manyseed.orchestrator.importing.classes import by_numbers
from manyseed.orchestrator.importing.filenames import RUNS
from manyseed.orchestrator.importing.predictions import Names

_FILES = (".hydra/overrides.yaml", "overrides.yaml", "hparams.yaml", "config.yaml")
"""Of Hydra, Lightning, and Weights & Biases."""
_ABOVE = 4  # folders in which they may be, from that of the predictions on
_LINE = re.compile(r"(?:- )?([\w.+~@/-]+?)\s*(?:=|:\s)\s*(\S.*)")
_MODEL = re.compile(
    r"(.*[._/])?(model|classifier|arch|architecture|net|network|backbone)([._]?name)?", re.I
)
_RUN = re.compile(rf"(.*[._/])?({RUNS}|.*_seed)", re.I)
_MOST_BYTES = 100_000
_SETTING = re.compile(r"\{([^{}]+)\}")


def require_like_settings(files: Sequence[Path], *, is_named: bool, form: str = "") -> None:
    """Refuse files as runs of one classifier if the settings beside them are of several.

    A setting that is another one for every file, such as an id, tells nothing, unless it is the
    model's; nor does a seed. `is_named`: whether paths or options name the classifier of each.
    `form`: the classifier's name with settings in it, if given so.
    """
    found = [dict(_beside(file)) for file in files]
    if len(files) < 2 or not all(found):
        return
    keys = [*_telling(found)]
    if not keys:
        return
    first, *others = dict.fromkeys(one.get(keys[0], "") for one in found)
    at = next(file for file, one in zip(files, found, strict=True) if one.get(keys[0], "") != first)
    what = (
        f"{keys[0]} is {first or 'not set'} beside it, {others[0] or 'not set'} beside {at}, so "
        "these are not runs of one classifier"
    )
    if is_named:
        remedy = "import those of each by itself, with --classifier NAME"
        raise UserError(what, file=files[0], remedy=remedy)
    has_model = _MODEL.fullmatch(keys[0]) and len(keys) <= _BARE
    parts = [
        f"{{{key}}}" if has_model or _MODEL.fullmatch(key) else f"{key}-{{{key}}}" for key in keys
    ]
    raise Unread(
        what,
        file=files[0],
        key=None,
        options={"classifier": "-".join([form, *parts] if form else parts)},
        before=f"name classifiers by {'it' if len(keys) == 1 else ' and '.join(keys)}: ",
    )


_BARE = 2  # settings whose values tell which is which


def _telling(found: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """Return the settings, the model's first, that tell files apart beyond those before."""
    telling = dict[str, list[str]]()
    keys = {key for one in found for key in one}
    for key in sorted(keys, key=lambda key: (not _MODEL.fullmatch(key), key)):
        values = [one.get(key, "") for one in found]
        if len({*values}) == 1 or _RUN.fullmatch(key) or any("/" in value for value in values):
            continue
        if len({*values}) == len(values) and not _MODEL.fullmatch(key):
            continue
        before = {*zip(*telling.values(), strict=True)} or {()}
        if len({*zip(*telling.values(), values, strict=True)}) > len(before):
            telling[key] = values
    return telling


def names_settings(classifier: str | None) -> bool:
    """Return whether a classifier's name has settings in it: ``{model}``."""
    return classifier is not None and _SETTING.search(classifier) is not None


def named_by_settings(form: str, files: Sequence[Path]) -> list[str]:
    """Return the name of each file's classifier, with the settings beside it in the place of keys.

    What is not set beside some files is ``unnamed``.
    """
    found = [dict(_beside(file)) for file in files]
    for key in _SETTING.findall(form):
        if found and not any(key in one for one in found):
            seen = sorted({name for one in found for name in one})
            raise UserError(
                f"there is no setting {key} beside this file",
                file=files[0],
                key="--classifier",
                value=form,
                remedy=nearest(key, seen) if seen else f"settings stand in {', '.join(_FILES)}",
            )
    names = []
    for one in found:  # keys have dots, which str.format would look up
        parts = _SETTING.split(form)
        parts[1::2] = [one.get(key) or "unnamed" for key in parts[1::2]]
        names.append("".join(parts))
    return names


def with_seeds(
    form: str, named: Sequence[tuple[Path, Names]], of_paths: Mapping[Path, dict[str, Any]]
) -> dict[Path, dict[str, Any]]:
    """Return what paths say, with the seed beside each file as its run, not the number of its job.

    `form`: the pattern of paths. They stay as they are where it names seeds, or where seeds do not
    tell the runs of a classifier apart.
    """
    found = dict(of_paths)
    before = re.search(r"([^/]*)\{run\}", form)
    if before is None or _SEED.fullmatch(before[1].strip("-_=. ")):
        return found
    settings = [dict(_beside(file)) for file, _ in named]
    keys = {key for one in settings for key in one if _SEED.fullmatch(key)}
    if len(keys) != 1:
        return found
    (key,) = keys
    seeds = [one.get(key, "") for one in settings]
    if not all(seed.isascii() and seed.isdecimal() and len(seed) < _DIGITS for seed in seeds):
        return found
    changed = dict[Path, dict[str, Any]]()
    runs = set[str]()
    for (file, names), seed in zip(named, seeds, strict=True):
        changed[file] = {**of_paths[file], "run": int(seed)}
        runs.add(repr((names, sorted(changed[file].items()))))
    if len(runs) < len(named) or changed == found:
        return found
    warn(f"Runs are numbered by {key} in the settings beside the files, not by their paths.")
    return changed


def without_predictions(folder: Path, files: Sequence[Path]) -> Iterator[str]:
    """Yield which folders of jobs, beside those of files, have settings but no predictions."""
    jobs = {job for file in files if (job := _job(file)) is not None}
    held = {parent for file in files for parent in file.absolute().parents}
    above = {job.parent for job in jobs if folder.absolute() in job.parents}
    every = [one for parent in above for one in parent.iterdir() if one.is_dir()]
    lacking = [
        one for one in every if one not in held and any((one / of).is_file() for of in _FILES)
    ]
    if lacking:
        lacking.sort(key=lambda one: by_numbers(str(one)))
        names = [str(one.relative_to(folder.absolute())) for one in lacking]
        yield f"{folder}: no predictions beside the settings of {some(names, _SHOWN)}. Did it fail?"


_SHOWN = 5


def _job(file: Path) -> Path | None:
    """Return the folder that holds the nearest settings above a file."""
    above = [*file.absolute().parents][:_ABOVE]
    return next((one for one in above if any((one / of).is_file() for of in _FILES)), None)


_SEED = re.compile(
    r"(.*[._/])?((random|model|init|torch|global)_?)?(seed|random_state|rng)s?", re.I
)
_DIGITS = 10  # of a number that is no run's


def _beside(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the settings of the nearest file of them, from the folder of `file` upwards."""
    for folder in [*file.absolute().parents][:_ABOVE]:
        for path in (folder / name for name in _FILES):
            with suppress(OSError):
                if path.is_file() and path.stat().st_size < _MOST_BYTES:
                    yield from _settings(path.read_text(errors="replace"))
                    return


def _settings(text: str) -> Iterator[tuple[str, str]]:
    """Yield top-level settings; Weights & Biases has ``value`` below each."""
    above = ""
    for line in filter(str.isprintable, text.splitlines()):
        if (match := _LINE.fullmatch(line.strip())) is None:
            above = "" if line[:1] == " " else line.strip().removesuffix(":")
        elif line[:1] != " ":
            yield match[1].lstrip("+~"), match[2].strip("'\" ")
        elif match[1] == "value" and above:
            yield above, match[2].strip("'\" ")
