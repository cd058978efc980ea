"""Arguments that several commands share, and their completion in the shell."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

import typer
from typer.core import TyperCommand
from typer.models import ArgumentInfo

from manyseed.jobs.checks import parsed, quoted
from manyseed.orchestrator.cli.unknown import instead_told
from manyseed.orchestrator.errors import ManyseedError, UserError, command, flag

if TYPE_CHECKING:
    from rich.text import Text

    from manyseed.orchestrator.sweep import Sweep


def argument(metavar: str, meaning: str, default: Any = None, **details: Any) -> Any:
    """Return an argument; what holds without it, its meaning says."""
    return typer.Argument(default, metavar=metavar, help=meaning, show_default=False, **details)


def optional(
    metavar: str, meaning: str, *flags: str, shown: str | bool = False, **details: Any
) -> Any:
    """Return an option with a value; `shown` says what holds without it."""
    details = {"metavar": metavar or None, "help": meaning, "show_default": shown, **details}
    return typer.Option(details.pop("default", None), *flags, **details)


def written_to(meaning: str, *, metavar: str = "FILE", **details: Any) -> Any:
    """Return the option for what a verb writes to."""
    return optional(metavar, meaning, "--out", "-o", **details)


def switch(name: str, meaning: str, *others: str) -> Any:
    """Return an option without a value, which is off by default."""
    return typer.Option(False, name, *others, help=meaning)


Directory = Annotated[Path, argument("DIR", "The sweep directory.", ...)]
SweepToml = Annotated[Path, argument("SWEEP.toml", "The sweep file.", ...)]
Out = Annotated[
    Path | None,
    written_to("The sweep directory.", default=..., metavar="DIR", shown="./<name>"),
]
Settings = Annotated[
    list[str] | None,
    optional(
        "KEY=VALUE",
        "Override a value of the file, such as classifier.mlp.epochs=5; may be repeated.",
        "--set",
        default=...,
    ),
]


def shown_help(docstring: str) -> str:
    """Return a docstring as help text that wraps at any width, with markup escaped."""
    text = re.sub(r"(?<=\S)\n(?=\S)", " ", inspect.cleandoc(docstring))
    text = re.sub(r"^    (?=\S)", "$ ", text, flags=re.MULTILINE)
    if "[" not in text:
        return text
    from rich.markup import escape

    return escape(text)


@contextmanager
def spoken_of_options() -> Iterator[None]:
    """Within this block, print warnings, and let errors speak of options instead of arguments."""
    from manyseed.orchestrator.calls import told_by
    from manyseed.orchestrator.cli.output import errors, say

    try:
        with told_by(lambda text: say(text, style="yellow", to=errors)):
            yield
    except ManyseedError as error:
        error.from_python = False
        raise


Verb = TypeVar("Verb", bound=Callable[..., None])

_KINDS: dict[str, Any] = {"float": float, "int": int, "bool": bool}
_FLAGS: dict[str, dict[str, Any]] = {
    "where": {"short": "-w", "metavar": "SQL"},
    "metric": {"short": "-m"},
    "dry_run": {"short": "-n"},
    **{name: {"metavar": "COLUMN,…"} for name in ("by", "columns")},
    "cluster": {"metavar": "NAME"},
    **{name: {"metavar": "SQL"} for name in ("a", "b", "only")},
    **{name: {"min": 1} for name in ("workers", "limit", "best", "members", "most", "block")},
}
"""What options have besides name, type and help, whoever takes them."""

_PARAMETER = re.compile(r"^(\w+) : .*\n((?: {4}.*\n?)+)", re.MULTILINE)
_DEFAULT = re.compile(r"[;,] by default ([^.;]+)")


def takes(
    method: str, *names: str | inspect.Parameter, **details: Mapping[str, Any]
) -> Callable[[Verb], Verb]:
    """Let a verb take, in place of its ``**options``, parameters of a method of `Sweep`.

    Or of ``"module:function"`` below `manyseed.orchestrator`. Types and defaults are those of its
    signature, help is its docstring's; `details` are what `option` takes. `names` are in the order
    of the help; the verb's own options may be among them. All this is looked up when the verb is:
    see `with_options`.
    """

    def mark(verb: Verb) -> Verb:
        vars(verb)["takes"] = (method, names, details)
        return verb

    return mark


def with_options(verb: Callable[..., None]) -> None:
    """Give a verb the signature with the options that it takes, after its arguments."""
    if "__signature__" in vars(verb) or "takes" not in vars(verb):
        return
    from manyseed.orchestrator.calls import found
    from manyseed.orchestrator.sweep import Sweep

    name, names, details = vars(verb)["takes"]
    method = found(name) if ":" in name else inspect.unwrap(getattr(Sweep, name))
    known = inspect.signature(method).parameters
    told = meanings(inspect.getdoc(method) or "")  # empty with python -OO
    signature = inspect.signature(verb, eval_str=True)
    *every, _ = signature.parameters.values()
    arguments = [one for one in every if _is_argument(one)]
    own: dict[str, Any] = {one.name: one for one in every[len(arguments) :]}
    options = [
        one
        if isinstance(one, inspect.Parameter)
        else own.pop(one, None) or option(known[one], told.get(one, ""), **details.get(one, {}))
        for one in names
    ]
    parameters = [*arguments, *options, *own.values()]
    by_name = [one.replace(kind=one.KEYWORD_ONLY) for one in parameters]
    vars(verb)["__signature__"] = signature.replace(parameters=by_name)


def _is_argument(parameter: inspect.Parameter) -> bool:
    told = (parameter.default, *getattr(parameter.annotation, "__metadata__", ()))
    return any(isinstance(one, ArgumentInfo) for one in told)


def meanings(docstring: str) -> dict[str, str]:
    """Return what each parameter of a docstring means, by name, in the command's words."""
    return {
        name: re.sub(
            r"`(\w+)`", lambda match: flag(match[1]), " ".join(lines.split()).replace("``", "")
        )
        for name, lines in _PARAMETER.findall(docstring)
    }


def option(parameter: inspect.Parameter, meaning: str, **details: Any) -> inspect.Parameter:
    """Return the option for a function's parameter, a list for a text with commas.

    `details` are those of `typer.Option`; besides, `short` is a further flag, `off` that for false
    after a slash, and `default` another default than the function's.
    """
    details = {**_FLAGS.get(parameter.name, {}), **details}
    annotation = str(parameter.annotation)
    kind = _KINDS.get(annotation.partition(" | ")[0], str)
    if said := _DEFAULT.search(meaning):
        details["show_default"] = said[1]
    elif kind is bool:
        details.setdefault("show_default", False)
    name = flag(parameter.name)
    flags = [name + details.pop("off", ""), *details.pop("short", "").split()]
    if "Sequence[int]" in annotation:
        details = {"metavar": "N,N,…", **details}
        details["callback"] = lambda text: text and whole_numbers(text, name, "2,20")
    elif "Sequence[str]" in annotation:
        details["callback"] = names
    default = details.pop("default", parameter.default)
    default = None if default == () else default
    made = typer.Option(*flags, help=_DEFAULT.sub("", meaning), **details)
    taken: Any = Annotated[kind if default is not None else kind | None, made]
    return parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=taken, default=default)


class Command(TyperCommand):
    """A command whose help never truncates names of options, and whose errors name options."""

    now = ""  # of a verb that the help does not list: what does the same

    def invoke(self, ctx: Any) -> Any:
        """Run the command; its errors speak of options, also those of methods of `Sweep`."""
        if self.now and not ctx.params.get("as_json"):
            from manyseed.orchestrator.cli.output import errors, say

            earlier = ctx.command_path.partition(" ")[2]
            say(f"{earlier} is now: manyseed {self.now}", style="dim", to=errors)
        self._require_text(ctx.params)
        with spoken_of_options():
            return super().invoke(ctx)

    def _require_text(self, values: Mapping[str, Any]) -> None:
        """Refuse words that are no text, unless they name a file, before a library meets them."""
        for parameter in self.params:
            given = values.get(parameter.name)
            for word in given if isinstance(given, list) else [given]:
                if isinstance(word, str) and _BYTES.search(word) and not _names_file(word):
                    key = parameter.opts[0] if parameter.opts[0].startswith("-") else None
                    told = _BYTES.sub("\N{REPLACEMENT CHARACTER}", word)
                    raise UserError(f"{quoted(told)} is not UTF-8 text", key=key)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command's arguments; none may be empty."""
        without_conversion(self.get_params(ctx))
        if not ctx.resilient_parsing:
            require_words(self.get_params(ctx), args)
            places = [one for one in self.get_params(ctx) if not one.opts[0].startswith("-")]
            if len(places) > 1 and places[0].metavar == "DIR":
                require_order(ctx, args)
        with instead_told(ctx):
            return super().parse_args(ctx, [*_as_shown(self.get_params(ctx), args)])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help with names of options wrapped instead of truncated."""
        from typer import rich_utils

        for name in ("highlighter", "negative_highlighter"):
            if not isinstance(style := getattr(rich_utils, name), _Wrapping):
                setattr(rich_utils, name, _Wrapping(style))
        super().format_help(ctx, formatter)


def require_words(parameters: Sequence[Any], words: Sequence[str]) -> None:
    """Refuse an empty word, such as that of a shell's variable that is not set.

    Methods would take it as not given, or as the current folder.
    """
    flags = {name: one for one in parameters for name in one.opts if name.startswith("-")}
    places = [str(one.metavar) for one in parameters if not one.opts[0].startswith("-")]
    before = ""
    for word in words:
        name, equals, value = word.partition("=")
        is_whole = bool(equals) and name in flags and name.startswith("--")
        if not (value if is_whole else word).strip():
            key = name if is_whole else before
            if key not in flags or getattr(flags[key], "is_flag", False):
                key = " ".join(places)
            remedy = "give it a value, or leave it out; is a variable of the shell not set?"
            raise UserError("is empty", key=key, remedy=remedy)
        before = word


def require_order(ctx: Any, words: Sequence[str]) -> None:
    """Refuse words of which the second is the sweep directory, and the first is no path at all."""
    from manyseed.orchestrator.paths import SweepPaths

    first, second = (*words[:2], "-", "-")[:2]
    named = "-" not in (first[0], second[0]) and not Path(first).exists()
    if named and SweepPaths(Path(second)).cells.is_file():
        verb = ctx.command_path.partition(" ")[2].split()
        remedy = f"DIR comes first: {command(*verb, second, first, *words[2:])}"
        raise UserError("there is no such directory", key="DIR", value=first, remedy=remedy)


_TWINS = {"--output": "--out", "--where": "--only", "-w": "--only"}
"""Other names of options, which scripts may use; the help shows one."""


def _as_shown(parameters: Sequence[Any], words: Sequence[str]) -> Iterator[str]:
    """Yield words with the names of options that the help shows in place of their twins."""
    flags = {name: one for one in parameters for name in one.opts if name.startswith("-")}
    is_value = is_over = False
    for word in words:
        name, equals, value = word.partition("=")
        is_over = is_over or (word == "--" and not is_value)
        twin = None if name in flags or is_value or is_over else _TWINS.get(name)
        shown = f"{twin}{equals}{value}" if twin in flags else word
        yield shown
        option = flags.get(shown)
        is_value = not is_value and option is not None and not option.is_flag


_BYTES = re.compile("[\ud800-\udfff]")  # what Python makes of bytes that are not UTF-8


def _names_file(word: str) -> bool:
    with suppress(OSError):  # it is too long
        return Path(word).exists()
    return False


def without_conversion(parameters: Sequence[Any]) -> None:
    """Take texts and paths as they are: typer would import pydantic to convert them.

    Earlier versions of typer convert by themselves, and need no help.
    """
    for one in parameters:
        if hasattr(one, "get_runtime_param") and "get_runtime_param" not in vars(one):
            one.get_runtime_param = _AsGiven(one.get_runtime_param, one).itself


class _AsGiven:
    """Stands for typer's conversion of a parameter, which it calls if one is needed."""

    def __init__(self, usual: Callable[[], Any], parameter: Any) -> None:
        self.usual = usual
        self.annotation = parameter.type_descriptor.annotation
        self.limits = parameter.type_descriptor.parameter_info

    def itself(self) -> _AsGiven:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if param.nargs == 1 and not param.multiple:
            if value is None or type(value) is self.annotation:
                return value
            if isinstance(value, str) and self.annotation is Path:
                return Path(value)
            if self.annotation is int and re.fullmatch(r"[0-9]{1,15}", str(value)):
                least, most = self.limits.min, self.limits.max
                if (least is None or int(value) >= least) and (most is None or int(value) <= most):
                    return int(value)
            if self.annotation in (int, float) and isinstance(value, str):
                try:
                    parsed(str, value)
                except ValueError:
                    kind = "integer" if self.annotation is int else "float"
                    raise typer.BadParameter(
                        f"{value!r} is not a valid {kind}.", ctx=ctx, param=param
                    ) from None
            if self.annotation is float and isinstance(value, str):
                value = _share(value, param, ctx)
        elif not value:
            return ()
        elif not isinstance(value, str) and self.annotation in (list[str], list[Path]):
            (kind,) = get_args(self.annotation)
            return [kind(one) for one in value]
        return self.usual().coerce(value, param=param, ctx=ctx)


def _share(text: str, param: Any, ctx: Any) -> str:
    """Return a number as it is given, and a percentage as a share."""
    number = text.strip().removesuffix("%")
    try:
        float(number)
    except ValueError:
        reason = f"{text!r} is not a number; write it such as 0.01, or 1%"
        raise typer.BadParameter(reason, ctx=ctx, param=param) from None
    return number if number == text.strip() else repr(float(number) / 100)


class _Wrapping:
    """A style that lets names wrap."""

    def __init__(self, style: Callable[[str], Text]) -> None:
        self.style = style

    def __call__(self, text: str) -> Text:
        styled = self.style(text)
        styled.overflow = "fold"
        return styled


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Caption = Annotated[
    str | None,
    optional("TEXT", "Of a LaTeX or Markdown table; plain text.", "--caption", default=...),
]
Label = Annotated[str | None, optional("tab:NAME", "Its label.", "--label", default=...)]
Bold = Annotated[
    str | None,
    optional(
        "best[:COLUMN,…]",
        "Best values in bold, per dataset, or per group of these columns.",
        "--bold",
        default=...,
    ),
]
OwnMetrics = Annotated[
    list[str] | None,
    optional(
        "MODULE:FUNCTION", "A metric of your own; may be repeated.", "--metric", "-m", default=...
    ),
]


def names(text: str | None) -> list[str]:
    """Return the names in a comma-separated list."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def whole_numbers(text: str, key: str, example: str) -> list[int]:
    """Return the integers in a comma-separated list; refuse anything else."""
    try:
        return [parsed(int, name) for name in names(text)]
    except ValueError:
        remedy = f"such as: {key} {example}"
        message = "not a list of whole numbers"
        raise UserError(message, key=key, value=text, remedy=remedy) from None


def alone(key: str, remedy: str = "leave out one of them", **others: Any) -> None:
    """Refuse what does not go with `key`, an option that asks for something else."""
    for name, value in others.items():
        if value not in (None, False, "", []):
            option = name if name.isupper() else flag(name)
            reason = f"cannot be combined with {key}"
            raise UserError(reason, key=option, value=value, remedy=remedy)


def only_with(key: str, is_given: bool, **others: Any) -> None:
    """Refuse what belongs to `key`, an option that is not given."""
    for name, value in others.items():
        if not is_given and value not in (None, False):
            raise UserError(f"applies only with {key}", key=flag(name), value=value)


def require_outside(output: Path | None, sweep: Sweep, key: str = "--out") -> None:
    """Refuse to write among the files of a sweep."""
    from manyseed.orchestrator.cli.formats import is_pipe

    if output is None or is_pipe(output):
        return
    target, paths = output.resolve(), sweep.readable
    reserved = (paths.plan, paths.results, paths.tasks, paths.store, paths.sweep_file)
    if any(target.is_relative_to(place.resolve()) for place in reserved):
        raise UserError(
            "is among the sweep's own files",
            key=key,
            value=str(output),
            remedy="write to another folder",
        )


_EQUAL = re.compile(r"(?P<before>.*?\b(?P<name>\w+)\s*(?:==|=|!=|<>)\s*)'(?P<begun>[^']*)")
_IN = re.compile(
    r"(?P<before>.*?\b(?P<name>\w+)\s+(?:NOT\s+)?IN\s*\((?:\s*'[^']*'\s*,)*\s*)'(?P<begun>[^']*)",
    re.IGNORECASE,
)
_WORD = re.compile(r"(?P<before>.*?)(?P<begun>\w*)", re.DOTALL)
_MOST_VALUES = 100


def tables(incomplete: str) -> list[str]:
    """Complete the name of a table."""
    from manyseed.analysis.tables.schema import table_names

    return _beginning(table_names(), incomplete)


def kinds(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the kind of a figure."""
    from manyseed.orchestrator.sweep import Sweep

    with suppress(Exception):
        return _beginning(Sweep(ctx.params["directory"]).plot.kinds["kind"], incomplete)
    return []


def columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the last of several column names separated by commas."""
    before, comma, begun = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _beginning(_columns(ctx), begun)]


def sort(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a column to sort by."""
    minus = "-" if incomplete.startswith("-") else ""
    names = _beginning(_columns(ctx), incomplete.removeprefix("-"))
    return [f"{minus}{name}" for name in names]


def functions(incomplete: str) -> list[str]:
    """Complete the last of several functions separated by commas."""
    from manyseed.orchestrator.asking.grouping import FUNCTIONS

    before, comma, begun = incomplete.rpartition(",")
    names = _beginning((*FUNCTIONS, "q05", "q95"), begun)
    return [f"{before}{comma}{name}" for name in names]


def formats(incomplete: str) -> list[str]:
    """Complete the name of a format."""
    from manyseed.orchestrator.cli.formats import FORMATS

    return _beginning(FORMATS, incomplete)


def condition(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the last word of a condition: a column, or after ``= '`` one of its values."""
    if match := _EQUAL.fullmatch(incomplete) or _IN.fullmatch(incomplete):
        values = _beginning(_values(ctx, match["name"]), match["begun"])
        return [f"{match['before']}'{value}'" for value in values]
    if incomplete.count("'") % 2:
        return []
    match = _WORD.fullmatch(incomplete)
    assert match is not None
    return [f"{match['before']}{name}" for name in _beginning(_columns(ctx), match["begun"])]


def _beginning(names: Iterable[str], begun: str) -> list[str]:
    return [name for name in names if name.startswith(begun)]


def _file(ctx: typer.Context) -> Path:
    """Return the file of the queried table, without checking its checksum."""
    from manyseed.orchestrator.paths import SweepPaths

    if "directories" not in ctx.params:  # a command that chooses runs
        return SweepPaths(Path(ctx.params["directory"])).table("runs")
    (directory, *_) = ctx.params["directories"]
    return SweepPaths(Path(directory)).table(ctx.params.get("table") or "cells")


def _columns(ctx: typer.Context) -> list[str]:
    import polars as pl

    from manyseed.orchestrator.asking.query import ADDRESSES

    with suppress(Exception):  # completion must not print errors
        names = list(pl.read_parquet_schema(_file(ctx)))
        return [*(name for name, run in ADDRESSES.items() if run in names), *names]
    return []


def _values(ctx: typer.Context, name: str) -> list[str]:
    import polars as pl

    with suppress(Exception):
        frame = pl.scan_parquet(_file(ctx), glob=False).select(pl.col(name).drop_nulls().unique())
        if frame.collect_schema()[name] == pl.String:
            values: list[str] = frame.collect()[name].sort().head(_MOST_VALUES).to_list()
            return [value.replace("'", "''") for value in values]
    return []


def found(folder: Path) -> tuple[list[str], list[str]]:
    """Return the names of the sweep directories and of the sweep files in a folder."""
    from manyseed.orchestrator.paths import SweepPaths

    sweeps, files = [], []
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return [], []
    for entry in entries:
        try:
            if entry.suffix == ".toml" and entry.is_file():
                with entry.open(encoding="utf-8") as file:
                    is_sweep = "[[grid]]" in file.read(100_000)
                files += [entry.name] if is_sweep else []
            elif entry.is_dir() and SweepPaths(entry).is_sweep:
                sweeps.append(entry.name)
        except (OSError, UnicodeDecodeError):
            continue
    return sweeps, files


def pairs(given: list[str], name: str) -> dict[str, str]:
    """Return pairs such as ``scores=preds,y_true=targets`` by the first of each."""
    found: dict[str, str] = {}
    for text in given:
        for pair in re.split(r",(?=\w+(?:\.[^,=]+)?=)", text):
            own, equals, theirs = pair.partition("=")
            if not equals or not theirs:
                raise UserError("is not OURS=THEIRS", key=name, value=pair)
            found[own.strip()] = theirs
    return found
