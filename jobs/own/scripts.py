"""Which files a command is made of: those that its words name, what they import, and more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from manyseed.jobs.checks import Refused
from manyseed.jobs.own.modules import Code, closure, imported
from manyseed.jobs.own.words import entry

_MOST_FILES, _MOST_BYTES = 2000, 100 * 10**6


def find_files(words: Sequence[str], patterns: Sequence[str], roots: Sequence[Path]) -> Code:
    """Find the files of a command, in the first folder that has one that its words name.

    A file that is named by an absolute path is none of them: it is used where it lies.

    Parameters
    ----------
    words : sequence of str
        Of the command.
    patterns : sequence of str
        Further files, folders with all that is in them, and patterns, in the same folder.
    roots : sequence of Path
        Folders that are looked into, in this order.

    Raises
    ------
    Refused
        Where a script or what a pattern stands for is not there, or the files are too many.
    """
    text = " ".join(words)
    root = next((root for root in roots if [*_named(words, root)]), None)
    script = PurePosixPath(entry(words))
    if root is None and (script.suffix and not script.is_absolute()) and "-m" not in words:
        places = ", ".join(dict.fromkeys(map(str, roots)))
        raise Refused("command", text, f"there is no {script} in {places}")
    if root is None and not patterns:
        return Code(None, library=words[0])
    root = root or roots[0]
    files: dict[str, bytes] = {}
    for name in _named(words, root):
        files |= _with_imports(text, root, name)
    for pattern in patterns:
        found = [*_matching(root, pattern)]
        if not found:
            raise Refused("files", pattern, f"{root} has nothing of that name")
        files |= {file.relative_to(root).as_posix(): _content(text, file) for file in found}
    size = sum(map(len, files.values()))
    if len(files) > _MOST_FILES or size > _MOST_BYTES:
        reason = f"{len(files):,} files of {size / 1e6:,.0f} MB are to be copied for every run; "
        raise Refused("command", text, reason + "name data by absolute paths")
    return Code(root.resolve(), files)


def _named(words: Sequence[str], root: Path) -> Iterator[str]:
    """Yield the files and modules of a folder that words name, also behind an equals sign."""
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
    """Return a file, of Python with the local modules that it imports; a package comes whole."""
    file = root / name
    if file.is_dir():
        return closure("command", text, root, [name])
    files = {name: _content(text, file)}
    if file.suffix == ".py":
        try:
            tops = [*imported(files[name])]
        except (SyntaxError, ValueError) as error:
            raise Refused("command", text, f"{file} is no Python: {error}") from None
        found = closure("command", text, file.parent, tops)
        prefix = file.parent.relative_to(root)
        files |= {(prefix / each).as_posix(): content for each, content in found.items()}
    return files


def _matching(root: Path, pattern: str) -> Iterator[Path]:
    for found in sorted(root.glob(pattern)):
        for file in sorted(found.rglob("*")) if found.is_dir() else [found]:
            if file.is_file() and "__pycache__" not in file.parts:
                yield file


def _content(text: str, file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise Refused("command", text, f"{file} cannot be read: {error.strerror}") from None
