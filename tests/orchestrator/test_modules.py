"""The modules of all packages: named on the page of the design, and without circles."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from manyseed.analysis.tables.schema import table_names

ROOT = Path(__file__).parents[2]
PACKAGES = ("orchestrator", "jobs", "slurm", "analysis")
FOUND = (
    *("analysis/figures", "analysis/metrics", "jobs/classifiers"),
    "orchestrator/results/questions",
)
"""Whose new files are kinds, metrics, classifiers and questions by themselves."""
OPEN = re.compile(
    "orchestrator/(sweep|importing/__init__|asking/query|results/(figures|(answers|questions)/.*))"
    "|jobs/(checks|run|perturb|classifiers/record|datasets/(info|sources)|ensembling/methods"
    "|training/(handling|network))"
    "|analysis/(options|(alphahat|metrics|response|uncertainty)/.*|figures/kind|graph/predictions"
    "|questions/question)"
)
"""What users and contributors call: elsewhere, docstrings are sentences."""
SECTION = re.compile(r"^(Parameters|Returns|Yields|Raises|Attributes)\n---", re.MULTILINE)
FILES = [file for name in PACKAGES for file in (ROOT / name).rglob("*.py")]


NAME = re.compile(r"(?<!`)`([a-z_]\w*(?:\.\w+)+)`(?!`)")


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_bytes())


def name_of(file: Path) -> str:
    parts = ("manyseed", *file.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


def imports(file: Path, modules: set[str]) -> Iterator[str]:
    """Yield the modules that a file imports, anywhere in it."""
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else str(node.module) for name in names]
        else:
            continue
        yield from (name for name in names if name in modules)


def named() -> dict[str, set[str]]:
    """Return the modules that the page names, by folder."""
    found = defaultdict(set)
    text = (ROOT / "docs" / "design.md").read_text()
    for package, said in re.findall(r"^- \*\*(\w+)\*\*: (.*(?:\n  .*)*)", text, re.MULTILINE):
        found[package] |= set(re.findall(r"`(\w+)`", said))
    folder = ""
    for row in re.findall(r"^\|(.*)\|$", text, re.MULTILINE):
        cells = [cell.strip() for cell in row.split("|")]
        if len(cells) == 3:
            folder = cells[0].strip("`/") or folder
            is_library = folder.partition("/")[0] in PACKAGES
            package = folder if is_library else f"orchestrator/{folder}"
            found[package] |= set(re.findall(r"`(\w+)`", cells[2]))
    return {package: names for package, names in found.items() if names}


def test_the_page_of_the_design_names_every_module() -> None:
    there = defaultdict(set)
    for file in FILES:
        if file.stem != "__init__":
            there[file.parent.relative_to(ROOT).as_posix()].add(file.stem)
    said = named()
    for room in FOUND:
        there[room] &= said[room]
    assert said == there


def test_the_page_of_the_design_orders_rooms_as_the_contracts_do() -> None:
    text = (ROOT / "docs" / "design.md").read_text()
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    for begins, contract in zip(
        ("orchestrator, from the top", "its store", "analysis"),
        settings["contracts"][1:],
        strict=True,
    ):
        said = re.search(rf"^- {begins}: (.*(?:\n  .*)*)", text, re.MULTILINE)
        assert said is not None, begins
        layers = [{*re.findall(r"`(\w+)`", layer)} for layer in said[1].split("·")]
        assert layers == [{*re.findall(r"\w+", layer)} for layer in contract["layers"]], begins


def test_the_page_of_the_design_lists_every_result_table() -> None:
    text = (ROOT / "docs" / "design.md").read_text()
    said = re.search(r"^  results/ +(.*?)\.parquet", text, re.MULTILINE | re.DOTALL)
    assert said is not None
    assert {*re.findall(r"\w+", said[1])} == {*table_names()}


def test_no_module_needs_itself() -> None:
    """Not even where imports stand in functions, or for types alone."""
    modules = {name_of(file) for file in FILES}
    graph = {name_of(file): {*imports(file, modules)} for file in FILES}
    TopologicalSorter(graph).prepare()


def code_lines(file: Path) -> int:
    """Count the lines of a module that are code: no docstring, import, comment or blank line."""
    text = file.read_text()
    lines = {n for n, line in enumerate(text.splitlines(), 1) if line.strip()[:1] not in ("", "#")}
    for node in ast.walk(ast.parse(text)):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if documented and ast.get_docstring(node) is not None:
            node = node.body[0]
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        lines -= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    return len(lines)


def test_a_module_can_be_read_at_once() -> None:
    assert {file: n for file in FILES if (n := code_lines(file)) > 400} == {}


def test_a_class_shares_its_name_with_no_other() -> None:
    """Each library's own way to refuse apart: libraries import no common module."""
    places = defaultdict(list)
    for file in FILES:
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(f"{file.relative_to(ROOT)}:{node.lineno}")
    shared = {name: found for name, found in places.items() if len(found) > 1}
    assert set(shared) == {"Refused", "UnknownOption"}, shared


def test_sections_in_docstrings_stand_where_users_and_contributors_call() -> None:
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    wrong = []
    for file in FILES:
        place = file.relative_to(ROOT).with_suffix("").as_posix()
        for node in ast.walk(parsed(file)):
            if not isinstance(node, kinds) or not SECTION.search(ast.get_docstring(node) or ""):
                continue
            if re.match("_[^_]", node.name) or not OPEN.fullmatch(place):
                wrong.append(f"{place}:{node.lineno} {node.name}")
    assert wrong == []


def defined(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module defines or imports, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)


def test_docstrings_name_what_exists() -> None:
    """Dotted names in single backticks that begin with one of our folders or modules."""
    inside = {name_of(file): {*defined(parsed(file))} for file in FILES}
    ending = defaultdict(list)  # modules by each end of their names
    for name in inside:
        parts = name.split(".")
        for start in range(1, len(parts)):
            ending[".".join(parts[start:])].append(name)
    ours = {name.split(".")[0] for name in ending}
    wrong = []
    for file in FILES:
        for node in ast.walk(parsed(file)):
            if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                continue
            for word in NAME.findall(str(node.value.value)):
                parts = word.split(".")
                exists = any(
                    {*parts[at:]} <= inside[module]
                    for at in range(1, len(parts) + 1)
                    for module in ending[".".join(parts[:at])]
                )
                if parts[0] in ours and not exists:
                    wrong.append(f"{file.relative_to(ROOT)}:{node.lineno} {word}")
    assert wrong == []
