"""Select and merge classes, and choose which of two is the positive one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from manyseed.jobs.checks import Refused

Groups = Mapping[str, Sequence[str | int]]


@dataclass(frozen=True, slots=True)
class Grouping:
    """How the classes of a source become the classes of a dataset.

    Attributes
    ----------
    names : tuple of str
        The dataset's classes in the order of their indices.
    target : tuple of int
        The index in `names` of each class of the source, -1 where it is left out.
    groups : dict or None
        Canonical form: sorted names and members; None where every class stands for itself.
    positive : str or None
        With two classes, the one with index 1.
    """

    names: tuple[str, ...]
    target: tuple[int, ...]
    groups: dict[str, list[str]] | None
    positive: str | None


def group(source: Sequence[str], classes: Groups | None, positive: str | int | None) -> Grouping:
    """Group the classes of a source.

    The source's order is kept unless classes are merged; merged names are sorted. With two classes
    the positive one comes last, by default the one that already does.

    Raises
    ------
    Refused
        For a class that is unknown or named twice, an empty group, fewer than two classes, and a
        positive class that is not among two.
    """
    groups = _canonical(source, classes)
    names = list(source) if groups is None else list(groups)
    if len(names) < 2:
        option = "source" if groups is None else "classes"
        raise Refused(option, names, "are too few: a classifier needs two classes or more")
    chosen = _positive(names, positive)
    if chosen is not None:
        names.sort(key=lambda name: name == chosen)
    members = {name: [name] for name in names} if groups is None else groups
    index = {member: names.index(name) for name in names for member in members[name]}
    return Grouping(tuple(names), tuple(index.get(name, -1) for name in source), groups, chosen)


def _canonical(source: Sequence[str], classes: Groups | None) -> dict[str, list[str]] | None:
    if classes is None:
        return None
    seen: dict[str, str] = {}
    for name, members in classes.items():
        if isinstance(members, str) or not isinstance(members, Sequence) or not members:
            allowed = f"a list of classes of the source for {name!r}"
            raise Refused("classes", members, allowed=allowed)
        for member in map(str, members):
            if member not in source:
                raise Refused("classes", member, "unknown class", source)
            if member in seen:
                twice = f"is named twice, in {seen[member]!r} and {name!r}"
                raise Refused("classes", member, twice)
            seen[member] = name
    if len(seen) == len(source) and all(member == name for member, name in seen.items()):
        return None  # every class stands for itself
    return {name: sorted(map(str, classes[name])) for name in sorted(classes)}


def _positive(names: Sequence[str], positive: str | int | None) -> str | None:
    if len(names) > 2:
        if positive is not None:
            raise Refused(
                "positive",
                positive,
                f"needs two classes, there are {len(names)}, unless they are merged or selected",
                needs={"positive": None},
            )
        return None
    chosen = names[1] if positive is None else str(positive)
    if chosen not in names:
        raise Refused("positive", chosen, "unknown class", names)
    return chosen
