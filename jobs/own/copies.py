"""Users' code of any form: find its modules or a command's files, pin them, and use a copy.

Modules are found by parsing, not by importing: the entry point's module or package, and every local
one that it imports anywhere. Packages are taken whole.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import re
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from manyseed.jobs.checks import Refused, did_you_mean, did_you_mean_path
from manyseed.jobs.own.table import command_name, entries_of
from manyseed.jobs.whole import Taken, appearing

_MOST_MODULES = 2000


@dataclass(frozen=True, slots=True)
class Code:
    """The code of an entry point.

    `root`: the folder that local modules are imported from; None for an installed library. `files`:
    local modules by their path below `root`. `library`: the name and version of an installed
    library.
    """

    root: Path | None
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    library: str = ""

    @property
    def digest(self) -> str:
        """What identifies the code: the SHA-256 of local files, or a library's version."""
        if self.root is None:
            return self.library
        whole = hashlib.sha256()
        for name in sorted(self.files):
            each = hashlib.sha256(self.files[name]).hexdigest()
            whole.update(f"{each} {name}\n".encode())
        return f"sha256:{whole.hexdigest()}"

    def copy_to(self, folder: Path) -> None:
        """Copy local modules to a folder, which appears whole, unless it exists."""
        if folder.is_dir():
            return
        try:
            with appearing(folder) as new:
                for name, content in self.files.items():
                    file = new / name
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(content)
        except Taken:  # another process was faster
            pass


def find_modules(option: str, entries: Sequence[str], roots: Sequence[Path]) -> Code:
    """Find the code of entry points without importing it.

    `option`: the option that gave them, for messages. `entries`: ``"module:name"``, the main one
    first. `roots`: folders to search before installed modules, in order.
    """
    codes = [_find_module(option, entry, roots) for entry in entries]
    local = [code for code in codes if code.root is not None]
    if not local:
        return codes[0]
    if others := [code.root for code in local if code.root != local[0].root]:
        reason = f"needs modules of {local[0].root} and of {others[0]}: put them into one folder"
        raise Refused(option, entries[0], reason)
    return Code(local[0].root, {k: v for code in local for k, v in code.files.items()})


def _find_module(option: str, entry: str, roots: Sequence[Path]) -> Code:
    module = entry.partition(":")[0]
    top = module.partition(".")[0]
    for root in roots:
        if (place := _place(root, top)) is not None:
            if module == f"{top}.py" and place.is_file():
                raise _names_a_file(option, entry, module)
            return _local(option, entry, module, root)
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:  # nothing, or a folder without an __init__.py
        for root in roots:
            if (root / f"{module.replace('.', '/')}.py").is_file():
                return _local(option, entry, module, root)
    if spec is None:
        places = ", ".join(dict.fromkeys(map(str, roots)))
        absent = f"there is no module {top}, neither installed nor in {places}"
        raise Refused(option, entry, absent + _near_module(top, roots))
    origin = Path(spec.origin) if spec.origin and spec.has_location else None
    if origin is not None and not _is_installed(top, origin):
        root = origin.parent.parent if spec.submodule_search_locations else origin.parent
        return _local(option, entry, module, root)  # an editable installation
    return Code(None, library=_version(top))


def differing(before: Path, now: Code) -> Iterator[tuple[str, str, str]]:
    """Yield the files in which a copy and the code differ: name, text before, text now."""
    copied = {
        file.relative_to(before).as_posix(): file.read_bytes()
        for file in before.rglob("*")
        if file.is_file() and file.parent.name != "__pycache__"
    }
    for name in sorted(copied.keys() | now.files.keys()):
        old, new = copied.get(name, b""), now.files.get(name, b"")
        if old != new:
            yield name, old.decode(errors="replace"), new.decode(errors="replace")


def use_modules(folder: Path, entries: Sequence[str]) -> None:
    """Let this process import modules from a copy, in preference to others of these names."""
    if not folder.is_dir():
        raise ImportError(f"{folder}, the copy of {', '.join(entries)}, is missing")
    for entry in entries:
        top = entry.partition(":")[0].partition(".")[0]
        loaded = getattr(sys.modules.get(top), "__file__", None)
        if loaded and _place(folder, top) and not Path(loaded).is_relative_to(folder):
            raise ImportError(
                f"{top} was already imported from {loaded}: start a new Python process, or rename "
                "it if another module has that name"
            )
    if (place := str(folder)) not in sys.path:
        sys.path.insert(0, place)


def forget_modules(folder: Path) -> None:
    """Undo `use`, and forget the modules imported from the copy."""
    with suppress(ValueError):
        sys.path.remove(str(folder))
    for name, module in [*sys.modules.items()]:
        file = getattr(module, "__file__", None)
        if file and Path(file).is_relative_to(folder):
            del sys.modules[name]


def _near_module(name: str, roots: Sequence[Path]) -> str:
    files = (file for root in roots for file in (*root.glob("*.py"), *root.glob("*/__init__.py")))
    stems = (file.parent.name if file.name == "__init__.py" else file.stem for file in files)
    return did_you_mean(name, sorted({*stems}))


def _names_a_file(option: str, entry: str, module: str) -> Refused:
    named = f"{module.removesuffix('.py')}{entry.removeprefix(module)}"
    return Refused(option, entry, f'names a module, not a file: "{named}"')


def _local(option: str, entry: str, module: str, root: Path) -> Code:
    top = module.partition(".")[0]
    files = closure(option, entry, root, [top], () if _place(root, top) else (top,))
    wanted = module.replace(".", "/")
    if not {f"{wanted}.py", f"{wanted}/__init__.py"} & files.keys():
        if (whole := wanted.removesuffix("/py")) != wanted and f"{whole}.py" in files:
            raise _names_a_file(option, entry, module)
        raise Refused(option, entry, f"there is no {wanted}.py in {root}")
    return Code(root.resolve(), files)


def closure(
    option: str, entry: str, root: Path, tops: Sequence[str], plain: Sequence[str] = ()
) -> dict[str, bytes]:
    """Return modules of a folder, and all modules in it that they import, by path.

    `option` and `entry`: the option and value that named them, for messages. `tops`: first parts of
    the modules' names; modules that are not in the folder are skipped. `plain`: those of these that
    are folders without an ``__init__.py``; others like this are not taken for modules.
    """
    files: dict[str, bytes] = {}
    waiting, seen = [*tops], set()
    while waiting:
        top = waiting.pop()
        place = root / top if top in plain else _place(root, top)
        if top in seen or place is None:
            continue
        seen.add(top)
        for file in [place] if place.is_file() else sorted(place.rglob("*.py")):
            name = file.relative_to(root).as_posix()
            files[name] = content_of(option, entry, file)
            if len(files) > _MOST_MODULES:
                reason = f"it imports more than {_MOST_MODULES:,} modules in {root}"
                raise Refused(option, entry, reason)
            waiting += imported(option, entry, file, files[name])
    return files


def content_of(option: str, entry: str, file: Path) -> bytes:
    """Read a file."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise Refused(option, entry, f"{file} cannot be read: {error.strerror}") from None


def _place(root: Path, top: str) -> Path | None:
    """Return a module's file or a package's folder."""
    package, file = root / top, root / f"{top}.py"
    if file.is_file():
        return file
    return package if (package / "__init__.py").is_file() else None


def imported(option: str, entry: str, file: Path, content: bytes) -> Iterator[str]:
    """Yield the first parts of the names that a Python file imports, anywhere in it."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError) as error:
        raise Refused(option, entry, f"{file} is not Python: {error}") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]


def _is_installed(top: str, file: Path) -> bool:
    places = {*site.getsitepackages(), site.getusersitepackages(), *sysconfig.get_paths().values()}
    places |= {
        place for place in sys.path if Path(place).name in ("site-packages", "dist-packages")
    }
    if any(file.is_relative_to(place) for place in places):
        return True
    # elsewhere on the path, as after `pip install --target`; editable files are not listed
    listed = (importlib.metadata.distribution(name) for name in distributions(top))
    return any(file == each.locate_file(path) for each in listed for path in each.files or ())


def distributions(top: str) -> list[str]:
    """Name the installed distributions that have a module, as `packages_distributions` does.

    That function asks whether each file of each package exists: a second in a usual environment.
    """
    found = set()
    for one in importlib.metadata.distributions():
        if declared := (one.read_text("top_level.txt") or "").split():
            modules = set(declared)
        elif (record := one.read_text("RECORD")) is not None:
            has = re.search(rf'^"?{re.escape(top)}(?:/|\.[^/\n]*,)', record, re.MULTILINE)
            modules = {top} if has else set()
        else:
            paths = map(PurePosixPath, one.files or ())
            modules = {path.parts[0].partition(".")[0] for path in paths}
        if top in modules:
            found.add(one.metadata["Name"])
    return sorted(found)


def _version(top: str) -> str:
    if top in sys.stdlib_module_names:
        return "Python"
    names = distributions(top)
    return " ".join(f"{name} {importlib.metadata.version(name)}" for name in names) or top


_MOST_FILES, _MOST_BYTES = 2000, 100 * 10**6


def find_files(words: Sequence[str], patterns: Sequence[str], roots: Sequence[Path]) -> Code:
    """Find the files of a command, in the first folder that has a file its words name.

    Files with absolute paths are not among them: they are used where they are.

    `words`: the command's. `patterns`: further files, whole folders and patterns, in the same
    folder. `roots`: folders to search, in order.
    """
    text = " ".join(words)
    root = next((root for root in roots if [*_named(words, root)]), None)
    script = PurePosixPath(command_name(words))
    if root is None and (script.suffix and not script.is_absolute()) and "-m" not in words:
        places = ", ".join(dict.fromkeys(map(str, roots)))
        near = next(filter(None, (did_you_mean_path(root / script) for root in roots)), "")
        raise Refused("command", text, f"there is no {script} in {places}{near}")
    if root is None and not patterns:
        return Code(None, library=words[0])
    root = root or roots[0]
    files: dict[str, bytes] = {}
    for name in _named(words, root):
        files |= _with_imports(text, root, name)
    for pattern in patterns:
        matching = [*_matching(root, pattern)]
        if not matching:
            raise Refused("files", pattern, f"{root} has nothing of that name")
        for file in matching:
            files[file.relative_to(root).as_posix()] = content_of("command", text, file)
    size = sum(map(len, files.values()))
    if len(files) > _MOST_FILES or size > _MOST_BYTES:
        reason = f"{len(files):,} files of {size / 1e6:,.0f} MB would be copied for every run; "
        raise Refused("command", text, reason + "name data by absolute paths")
    return Code(root.resolve(), files)


def _named(words: Sequence[str], root: Path) -> Iterator[str]:
    """Yield the files and modules of a folder that words name, also after an equals sign."""
    for number, word in enumerate(words):
        if number and words[number - 1] == "-m":
            top = word.partition(".")[0]
            yield from (name for name in (top, f"{top}.py") if (root / name).exists())
            continue
        for name in (word, word.partition("=")[2]):
            path = PurePosixPath(name)
            is_inside = not path.is_absolute() and ".." not in path.parts
            if name and "{" not in name and is_inside and (root / name).is_file():
                yield path.as_posix()


def _with_imports(text: str, root: Path, name: str) -> dict[str, bytes]:
    """Return a file, with the local modules that it imports if it is Python; packages whole."""
    file = root / name
    if file.is_dir():
        return closure("command", text, root, [name])
    files = {name: content_of("command", text, file)}
    if file.suffix == ".py":
        tops = [*imported("command", text, file, files[name])]
        modules = closure("command", text, file.parent, tops)
        prefix = file.parent.relative_to(root)
        files |= {(prefix / each).as_posix(): content for each, content in modules.items()}
    return files


def _matching(root: Path, pattern: str) -> Iterator[Path]:
    for path in sorted(root.glob(pattern)):
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                yield file


def find(
    form: str, entries: Sequence[str], canonical: Mapping[str, Any], roots: Sequence[Path]
) -> Code:
    """Find the code of a table, or of a canonical description, without importing it.

    `form`: the key that names the code. `entries`: `jobs.own.table.entries_of`. `canonical`: for a
    command, with its words and files. `roots`: folders to search, in order.
    """
    if form != "command":
        return find_modules(form, entries, roots)
    return find_files(canonical["command"], canonical.get("files", ()), roots)


def use(folder: Path, canonical: Mapping[str, Any]) -> None:
    """Let this process fit a user's own classifier with a copy of its code.

    `folder`: the copy. `canonical`: the classifier's description.
    """
    if canonical["form"] != "command":
        use_modules(folder, entries_of(canonical))
        return
    from manyseed.jobs.own import command

    if not folder.is_dir():
        raise ImportError(f"{folder}, the copy of {canonical['name']}, is missing")
    command.use(folder, canonical)


def forget(folder: Path) -> None:
    """Undo `use`."""
    from manyseed.jobs.own import command

    forget_modules(folder)
    command.forget(folder)
