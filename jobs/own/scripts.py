"""The files of a command: those that its words name, their imports, and further ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from manyseed.jobs.checks import Refused
from manyseed.jobs.own.modules import Code, closure, content_of, imported
from manyseed.jobs.own.words import command_name

_MOST_FILES, _MOST_BYTES = 2000, 100 * 10**6


def find_files(words: Sequence[str], patterns: Sequence[str], roots: Sequence[Path]) -> Code:
    """Find the files of a command, in the first folder that has a file its words name.

    Files with absolute paths are not among them: they are used where they are.

    Parameters
    ----------
    words : sequence of str
        The command's.
    patterns : sequence of str
        Further files, whole folders and patterns, in the same folder.
    roots : sequence of Path
        Folders to search, in order.

    Raises
    ------
    Refused
        Where the script is missing, a pattern matches nothing, or the files are too many or large.
    """
    text = " ".join(words)
    root = next((root for root in roots if [*_named(words, root)]), None)
    script = PurePosixPath(command_name(words))
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
