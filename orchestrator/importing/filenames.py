"""What the names of files say: what they share, and whose runs, models, folds, epochs they are."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from os.path import commonprefix
from pathlib import Path

from manyseed.analysis.counts import some
from manyseed.orchestrator.errors import Unread, UserError

RUNS = (
    r"(?:(?:(?:random|model|init|torch|np|numpy)[\W_]*)?(?:seeds?|inits?|rngs?|rs|s|r"
    r"|versions?|runs?|reps?|repeats?|replica(?:te)?s?|repetitions?|trials?|tries|try|attempts?)"
    r"|random[\W_]*states?)"
)
"""What others call runs."""

OF_RUNS = rf"(?:{RUNS}|folds?)"
"""What they call what they number in names of files."""

MODEL = "{classifier}"
"""Stands for the classifier in paths, and in names of columns or entries."""

_SEED = re.compile(rf"(?:^|[\W_]+){OF_RUNS}?[\W_]*[0-9]*$", re.IGNORECASE)


def common_name(files: Sequence[Path]) -> str:
    """Return what to call files of one dataset: what their names share but for the seed.

    Or else their folder.
    """
    start, end = shared_ends([file.stem for file in files])
    kept = _SEED.sub("", start) or end.strip("-_. ")
    return kept or files[0].resolve().parent.name or "imported"


_NUMBERED = re.compile(
    rf"(?P<kind>.+?)??(?P<form>(?:[\W_]+{OF_RUNS}?[\W_]*)?)[0-9]+(?P<rest>[^0-9]*)",
    re.IGNORECASE,
)


def models_of(files: Sequence[Path]) -> tuple[str, dict[str, int]]:
    """Return the pattern of numbered files' paths, and how many begin with each name before it.

    The pattern has ``{classifier}`` for the names if there are several; "" if there is none.
    """
    top = os.path.commonpath([file.absolute().parent for file in files])
    paths = [file.absolute().relative_to(top).as_posix() for file in files]
    found = [each for path in paths if (each := _NUMBERED.fullmatch(hidden(path)))]
    forms = {f"{each['form']}{{run}}{each['rest']}" for each in found}
    counts = Counter(shown_again(each["kind"] or "") for each in found)
    is_unlike = len(counts) > 1 and "" in counts
    if (
        len(found) < len(paths)
        or len(forms) > 1
        or is_unlike
        or any("/" in name for name in counts)
    ):
        return _of_files_after_runs(paths)
    if len(counts) == 1:
        return f"{next(iter(counts))}{forms.pop()}", dict(counts)
    if forms == {f"{{run}}{found[0]['rest']}"} and max(counts.values()) == 1:  # gpt2, t5
        of = {path.removesuffix(found[0]["rest"]): 1 for path in paths}
        return f"{MODEL}{found[0]['rest']}", of
    found_before = _BEFORE.match(shared_ends(counts)[0])  # model=cnn, model=vit
    start = found_before[0] if found_before else ""
    named = {name.removeprefix(start): n for name, n in counts.items()}
    return f"{start}{{classifier}}{forms.pop()}", named


def _of_files_after_runs(paths: Sequence[str]) -> tuple[str, dict[str, int]]:
    """Return the pattern of paths that begin with the run: ``seed0_cnn.csv``, ``seed0_vit.csv``."""
    (suffix,) = suffixes if len(suffixes := {Path(path).suffix for path in paths}) == 1 else ("",)
    form, counts = _after_runs([path.removesuffix(suffix) for path in paths])
    are_runs = all(name.isdecimal() or is_of_runs(name) for name in counts)
    is_split = any(_VARIANT.fullmatch(name) for name in counts)
    if are_runs or is_split or any("/" in name for name in counts):
        return "", {}
    return form + suffix, counts


def models_apart(files: Sequence[Path]) -> tuple[str, list[str]]:
    """Return the pattern of files whose names differ by words, not by numbers, and the words.

    The pattern has ``{classifier}`` for the words; "" if what differs may be called runs.
    """
    top = os.path.commonpath([file.absolute().parent for file in files])
    paths = [file.absolute().relative_to(top).as_posix() for file in files]
    if len({file.suffix for file in files}) > 1:
        paths = [f"{path.removesuffix(Path(path).suffix)}.*" for path in paths]
    start, end = word_ends(paths)
    if family := _FAMILY_FIRST.search(start):  # vit-b16, vit-l16
        start = start[: family.start()]
    words = [path[len(start) : len(path) - len(end)] for path in paths]
    plain = {re.sub("[0-9]+", "", hidden(word)) for word in words}
    of_runs = re.compile(rf"(?:.*[\W_])?{OF_RUNS}[\W_]*", re.IGNORECASE)
    if (
        len(plain) < len(words)
        or "" in plain
        or any("/" in word or is_of_runs(word) for word in words)
        or of_runs.fullmatch(start)
    ):
        return "", []
    return f"{start}{{classifier}}{end}", words


def form_of_models(names: Sequence[str]) -> str:
    """Return the form of columns or entries that differ in a word, and maybe in a number."""
    if len({*names}) < 2:
        return ""
    files = [Path(name.translate(_APART)) for name in names]  # which have suffixes and folders
    form, counts = models_of(files)
    if len(counts) < 2:
        form, counts = _after_runs([file.name for file in files])
    if len(counts) < 2:
        form, words = models_apart(files)
        counts = dict.fromkeys(words, 1)
    is_of_one = len(counts) < 2 or any(_OF_ONE.fullmatch(word) for word in counts)
    return "" if is_of_one else form.translate({to: chr(of) for of, to in _APART.items()})


_APART = {ord("."): 0x1F, ord("/"): 0x1E}
_RUN_FIRST = re.compile(
    rf"((?:.*[\W_])?{OF_RUNS}[\W_]*|)([0-9]+)([\W_]+)(.*[^\W_].*)", re.IGNORECASE | re.DOTALL
)


def _after_runs(names: Sequence[str]) -> tuple[str, dict[str, int]]:
    """Return the form of names that begin with the run (``seed0_cnn``), and each model's count.

    None if each name has a number and a word of its own: what follows may be an id of the run.
    """
    found = [each.groups() for name in names if (each := _RUN_FIRST.fullmatch(name))]
    forms = {(before, between) for before, _, between, _ in found}
    if len(found) < len(names) or len(forms) != 1:
        return "", {}
    counts = Counter(model for *_, model in found)
    plain = {re.sub("[0-9]+", "", hidden(model)) for model in counts}
    are_words = len(plain) == len(counts) < len(names)
    if len({number for _, number, *_ in found}) == len(names) and not are_words:
        return "", {}
    ((before, between),) = forms
    return f"{before}{{run}}{between}{MODEL}", dict(counts)


_OF_ONE = re.compile(
    r"(y|train|test|val|dev|eval)(ing)?|(y_?)?(pred.*|proba?s?|probabilit(y|ies)|scores?|logits?"
    r"|labels?|true|truth|targets?|softmax|class(es)?|conf(idence)?s?)",
    re.IGNORECASE,
)
"""Words that tell apart what is of one classifier."""


def is_of_runs(name: str) -> bool:
    """Return whether a name ends in what numbers runs or folds: ``fold1``, ``cv-split2``."""
    return (
        re.fullmatch(rf"(.*[\W_])?(?:{OF_RUNS}|cv|splits?|k)[\W_]*[0-9]+", name, re.I) is not None
    )


def form_of_tree(files: Sequence[Path]) -> str:
    """Return the pattern of files in folders, "" if it is not certain."""
    forms = _forms_of(files)[1]
    form = "/".join(forms)
    read = max(form.count(part) for part in ("{classifier}", "{run}"))
    is_read_once = read == 1 or (read == 0 and "*" in form)
    return form if forms and all(forms) and is_read_once else ""


def forms_of_data_sets(files: Sequence[Path]) -> Iterator[tuple[str, list[str]]]:
    """Yield the patterns of folders that differ by words on two levels, one of them data sets.

    And what each names the data set of each file.
    """
    paths, forms = _forms_of(files)
    levels = [at for at, form in enumerate(forms) if MODEL in form]
    are_plain = all(forms) and "/".join(forms).count(MODEL) == len(levels) == len({*levels})
    if len(levels) == 2 and are_plain and "/".join(forms).count("{run}") < 2:
        for at in levels:
            own = [*forms[:at], forms[at].replace(MODEL, "{dataset}"), *forms[at + 1 :]]
            yield "/".join(own), [path.parts[at] for path in paths]


def _forms_of(files: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Return the paths of files below their common folder, and the form of each level, "" if none.

    No forms if they are not equally deep.
    """
    top = os.path.commonpath([file.absolute().parent for file in files])
    paths = [file.absolute().relative_to(top) for file in files]
    if len({len(path.parts) for path in paths}) != 1:
        return paths, []
    forms = []
    for each in zip(*(path.parts for path in paths), strict=True):
        names = [*dict.fromkeys(each)]
        of = [Path(name) for name in names]
        form = (
            _form_of_logged(names, paths)
            or _form_of_times(names)
            or _form_of_numbers(of)
            or models_of(of)[0]
            or models_apart(of)[0]
        )
        forms.append(names[0] if len(names) == 1 else form)
    form = "/".join(forms)
    if form.count("{run}") > 1:  # fold0/seed1.csv
        form = _FOLD_OF_RUNS.sub(r"\1{repeat}", form, count=1)
    forms = form.split("/")
    numbered = [at for at, part in enumerate(forms) if "{run}" in part]
    above = [path.parts[numbered[0]] for path in paths] if len(numbered) == 2 else []
    if above and min(Counter(above).values()) > 1 and not any(map(is_of_runs, above)):
        forms[numbered[0]] = MODEL  # bs32/seed0.csv
        form = "/".join(forms)
    if "*" in forms and "{run}" in form and "{classifier}" not in form:
        at = forms.index("*")
        below = {path.parts[:at] + path.parts[at + 1 :] for path in paths}
        if len(below) < len(paths):  # the same runs below each date
            forms[at] = MODEL
    return paths, forms


def leaves_out(form: str, files: Sequence[Path], top: Path) -> bool:
    """Return whether a pattern leaves out files like those it matches: other numbers or folders."""
    any_of = re.compile(re.sub(r"\\\{\w+\\\}|\\\*", "[^/]*", re.escape(form)))
    taken, left = set[str](), set[str]()
    for file in files:
        path = file.relative_to(top).as_posix()
        kinds = taken if any_of.fullmatch(path) else left
        kinds |= {re.sub("[0-9]+", "0", path), re.sub("[0-9]+", "0", file.name)}
    return bool(taken & left)


def _form_of_numbers(names: Sequence[Path]) -> str:
    """Return the form of names that are nothing but numbers."""
    suffixes = {name.suffix for name in names}
    are_numbers = all(name.stem.isdecimal() for name in names) and len(suffixes) == 1
    return f"{{run}}{suffixes.pop()}" if are_numbers else ""


def form_of_one(path: str) -> str:
    """Return the likely pattern of a path such as ``cnn/seed3/test.csv``, the only one of it."""
    folder, *names = path.split("/")
    if is_of_runs(folder) or folder.isdecimal():
        return "/".join([re.sub("[0-9]+$", "{run}", folder), *names])
    of_run = next((at for at, name in enumerate(names) if is_of_runs(Path(name).stem)), 0)
    names[of_run] = re.sub("[0-9]+", "{run}", names[of_run], count=1)
    return "/".join(["{classifier}", *names])


_TIMED = re.compile(r"(.*?)[0-9]{8}[_-]?[0-9]{6}.*")


_LOGGED = re.compile(r"(.+)_[0-9]+_[0-9a-f]{6,}(\.table\.\w+)")  # of Weights & Biases


def _form_of_logged(names: Sequence[str], paths: Sequence[Path]) -> str:
    """Return the form of tables that are logged once in each run: name, step and a digest."""
    found = [_LOGGED.fullmatch(name) for name in names]
    forms = {f"{each[1]}_*{each[2]}" for each in found if each}
    is_once = len({path.parent for path in paths}) == len(paths)
    return forms.pop() if all(found) and len(forms) == 1 and is_once and len(names) > 1 else ""


_DATED = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{2}-[0-9]{2}-[0-9]{2}")  # of Hydra


def _form_of_times(names: Sequence[str]) -> str:
    """Return the form of names with the second of their start: ``run-20240131_120501-x8k2``."""
    if len(names) > 1 and all(_DATED.fullmatch(name) for name in names):
        return "*"
    found = [_TIMED.fullmatch(name) for name in names]
    starts = {each[1] for each in found if each}
    return f"{starts.pop()}*" if all(found) and len(starts) == 1 and len(names) > 1 else ""


_BEFORE = re.compile(
    r"[^/=]*=|(y_)?(pred\w*?|outputs?|logits?|prob\w*?|scores?|results?)[\W_]+", re.I
)


def form_of_folds(files: Sequence[Path]) -> str:
    """Return the pattern of files that are of a fold each: {repeat}, and {run} for seeds."""
    forms = {
        _OF_SEED.sub(r"\1{run}", _OF_FOLD.sub(r"\1{repeat}", file.name, count=1), count=1)
        for file in files
    }
    (form,) = forms if len(forms) == 1 else ("",)
    return form if "{repeat}" in form else ""


_OF_FOLD = re.compile(r"((?:^|[\W_])(?:cv[\W_]*)?(?:folds?|splits?|cv|k)[\W_]*)[0-9]+", re.I)
_FOLD_OF_RUNS = re.compile(_OF_FOLD.pattern.replace("[0-9]+", r"\{run\}"), re.I)
_OF_SEED = re.compile(r"((?:^|[\W_])(?:seeds?|runs?|s|r)[\W_]*)[0-9]+", re.I)


def shared_ends(names: Iterable[str]) -> tuple[str, str]:
    """Return how all names begin, letter by letter, and how they end after that."""
    start = commonprefix(names := [*names])  # noqa: RUF071
    ends = [name[len(start) :][::-1] for name in names]
    return start, commonprefix(ends)[::-1]  # noqa: RUF071


def word_ends(names: Iterable[str]) -> tuple[str, str]:
    """Return how all names begin, up to a whole word, and how they end after one."""
    start, end = shared_ends(names)
    before, after = re.match(r".*[\W_]|", start, re.DOTALL), re.search(r"[\W_].*", end, re.DOTALL)
    return before[0] if before else "", after[0] if after else ""


def require_one_kind(files: Sequence[Path]) -> None:
    """Refuse files whose names say that they are of one run: its epochs, its splits, its ensemble.

    These are no further runs; the command takes those of one kind.
    """
    kinds: dict[str, list[Path]] = {}
    runs: dict[str, set[str]] = {}
    for file in files:
        path = file.absolute().as_posix()
        found = [*_VARIANT.finditer(path, len(file.absolute().parent.as_posix()))][-1:]
        kind = re.sub(r"[\W_]", "", found[0][0].lower()) if found else ""
        rest = _VARIANT.sub("", path) if found else path
        kinds.setdefault(kind, []).append(file)
        runs.setdefault(re.sub(r"[\W_]", "", rest), set()).add(kind)
    several = next((named for named in runs.values() if len(named) > 1), set[str]())
    lone = [kind for kind, of in kinds.items() if len(of) == 1 and _OVER_RUNS.fullmatch(kind)]
    if not several and not (lone and len(kinds) > 1):
        return
    best = max(kinds, key=lambda kind: (_rank(kind), kind)) if several else ""
    if best not in kinds:
        best = max(kinds, key=lambda kind: len(kinds[kind]))
    named = shown_again(models_of([Path(hidden(str(one), _VARIANT)) for one in kinds[best]])[0])
    shown = some(sorted(f"{kind or 'others'} ({len(of):,})" for kind, of in kinds.items()), 5)
    what = f"the names of files are of {len(kinds)} kinds, {shown}, which are not runs of one kind"
    if not named:
        remedy = "give the files of one kind alone, one for each run"
        raise UserError(what, file=files[0], remedy=remedy)
    if "{classifier}" not in named and "{run}" not in named:
        named = f"*{named}"
    raise Unread(
        what,
        file=files[0],
        key=None,
        options={"name": named},
        before="take those of one: ",
    )


_VARIANT = re.compile(
    r"(?<![a-z])(?:(?:epochs?|ep|steps?|iter(?:ation)?s?|ckpt|checkpoint)[\W_]*[0-9]+"
    r"|train(?:ing)?|val(?:id(?:ation)?)?|dev|test(?:ing)?|final|last|latest|best"
    r"|ensembled?|averaged?|avg|mean|majority(?:_?vote)?|swa|ema)(?![a-z0-9])",
    re.IGNORECASE,
)
_HIDE = {ord(str(digit)): 0x12000 + digit for digit in range(10)}  # cuneiform letters
_FAMILY = (
    r"(?<![a-z])(?:(?:pre|wide|se)?[\W_]?res[\W_]?ne(?:x?t)|vgg|(?:dense|conv|mobile)[\W_]?net|wrn|vit"
    "|deit)"
)
_FAMILY_FIRST = re.compile(rf"{_FAMILY}[\W_]*$", re.IGNORECASE)
_DEPTH = re.compile(
    rf"(?:{_FAMILY}(?:[\W_]?[bl])?[0-9]{{2,}}(?:[x.-]?[0-9]{{2,}})*"
    r"|(?<![a-z])(?:efficient|eff)[\W_]?net[\W_]?b[0-9])(?![0-9])",
    re.IGNORECASE,
)
"""Names of networks with a number of their own: ``resnet18``, ``wrn-28x10``."""


def hidden(text: str, what: re.Pattern[str] | None = None) -> str:
    """Return a text with digits hidden that number no runs: of networks, or of `what`."""
    return (what or _DEPTH).sub(lambda it: it[0].translate(_HIDE), text)


def shown_again(text: str) -> str:
    """Return a text with its hidden digits as they were."""
    return text.translate({to: chr(of) for of, to in _HIDE.items()})


_OVER_RUNS = re.compile("ensembled?|averaged?|avg|mean|majority(vote)?")
_RANKS = ("test", "testing", "final", "last", "latest", "best")


def _rank(kind: str) -> tuple[int, int]:
    number = re.search("[0-9]+$", kind)
    is_run = not re.match("train|val|dev|ens|av|mean|maj", kind)
    rank = len(_RANKS) - _RANKS.index(kind) if kind in _RANKS else 0
    return rank if is_run else -1, int(number[0]) if number else -1
