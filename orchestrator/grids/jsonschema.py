"""The sweep file's JSON Schema, with which editors complete and check it.

It is made from the models in `sweepfile`, and from the options of classifiers and datasets that
`jobs` declares. It covers single values; ``plan`` checks whether they fit together.
"""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Mapping
from typing import Any

from manyseed.jobs import classifiers, datasets
from manyseed.jobs.checks import Option, closed
from manyseed.jobs.classifiers.record import Classifier
from manyseed.jobs.datasets.function import KIND as FUNCTION
from manyseed.jobs.datasets.sources import SOURCES
from manyseed.jobs.ensembling import methods
from manyseed.jobs.hparams.grid import RANGES
from manyseed.jobs.hparams.kinds import Hparam
from manyseed.jobs.images import AUGMENTATIONS
from manyseed.jobs.own.table import SPACE, TABLE
from manyseed.jobs.perturb import names as schemes
from manyseed.orchestrator.grids import sweepfile
from manyseed.orchestrator.grids.grid import HPARAMS
from manyseed.orchestrator.grids.sweepfile import SweepFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]

_OWN = "own"  # the name that stands for users' own code among classifiers' tables


def schema() -> Schema:
    """Return the schema of a sweep file, as JSON values."""
    root = SweepFile.model_json_schema()
    tables = root["$defs"]
    _describe({SweepFile.__name__: root, **tables, "_OwnMetrics": tables["Analysis"]})
    for name, record in classifiers.CLASSIFIERS.items():
        tables[f"classifier {name}"] = _classifier(record, tables["ClassifierTable"])
    tables[f"classifier {_OWN}"] = _own()
    root["properties"]["classifier"] |= {
        "properties": {name: _reference(name) for name in classifiers.names()},
        "additionalProperties": {
            "description": "A classifier under a name of your own.",
            "type": "object",
            "properties": {"kind": {"enum": [*classifiers.names()]}},
            "allOf": [
                {
                    "if": {"properties": {"kind": {"const": name}}, "required": ["kind"]},
                    "then": _reference(name),
                }
                for name in classifiers.names()
            ]
            + [
                {
                    "if": {"anyOf": [{"required": [form]} for form in classifiers.FORMS]},
                    "then": _reference(_OWN),
                    "else": {"required": ["kind"]},
                }
            ],
        },
    }
    del tables["ClassifierTable"]
    tables["DatasetTable"]["properties"] |= _of_sources()
    tables["EnsemblingTable"]["properties"]["kind"] |= {"enum": [*methods.names()]}
    tables["EnsemblingTable"]["properties"] |= _of_methods()
    tables["EnsemblingTable"]["additionalProperties"] = False
    lists = tables["Grid"]["properties"]
    for key, known in _known().items():
        lists[key]["items"] = {"anyOf": [{"enum": known}, lists[key]["items"]]}
    lists["hparams"]["items"] = {
        "anyOf": [{"enum": [*HPARAMS]}, {"type": "string", "pattern": r"^\s*\w+\s*=.*$"}]
    }
    for table in (root, *tables.values()):
        for key, value in table["properties"].items():
            value["title"] = key
    described = {"title": "manyseed sweep file", "description": "What is trained, and how often."}
    return {"$schema": DIALECT, **_without_null(root), **described}


def _describe(tables: Mapping[str, Schema]) -> None:
    """Describe every key of the models' tables by its docstring in `sweepfile`.

    Pydantic can do so when a model is made, but takes longer than most commands, which need none.
    """
    for model in ast.parse(inspect.getsource(sweepfile)).body:
        if not isinstance(model, ast.ClassDef) or model.name not in tables:
            continue
        for field, after in itertools.pairwise(model.body):
            match field, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=key)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    properties = tables[model.name]["properties"]
                    described = {**properties[key], "description": inspect.cleandoc(text)}
                    properties[key] = dict(sorted(described.items()))


def _reference(classifier: str) -> Schema:
    return {"$ref": f"#/$defs/classifier {classifier}"}


def _classifier(record: Classifier, table: Schema) -> Schema:
    """Return the table of a classifier with its options."""
    properties = {name: option.schema() for name, option in record.table.items()}
    properties["kind"] = table["properties"]["kind"] | {"const": record.name}
    hparams = {hparam.name: _hparam(hparam) for hparam in record.space}
    properties["hparams"] |= closed(hparams)
    described = {name: {"description": f"Values of {name}."} for name in hparams}
    values = {name: described[name] | _values(one) for name, one in hparams.items()}
    properties["grid"] |= {**closed(values), "minProperties": 1}
    return closed(properties) | {"title": record.name}


def _own() -> Schema:
    """Return the table of a classifier in the user's own code."""
    properties = {name: option.schema() for name, option in TABLE.items()}
    hparam = closed({name: option.schema() for name, option in SPACE.items()})
    properties["space"]["additionalProperties"] = hparam | {"required": ["default"]}
    values = _values(SPACE["default"].schema())
    properties["grid"] |= {"additionalProperties": values, "minProperties": 1}
    return closed(properties) | {"title": "code of your own"}


def _values(item: Schema) -> Schema:
    """Return the schema of a list of values, or of a range."""
    ends: Schema = {"type": "array", "items": {"type": "number"}, "minItems": 3, "maxItems": 3}
    return {
        "type": ["array", "object"],
        "items": item,
        "minItems": 1,
        "uniqueItems": True,
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
        "properties": {kind: ends | {"description": "First, last, number."} for kind in RANGES},
    }


def _hparam(hparam: Hparam) -> Schema:
    return {"title": hparam.name, **hparam.option.schema(f"Default: {hparam.default}.")}


def _of_sources() -> Mapping[str, Schema]:
    """Return the keys that only some sources take, each with these sources."""
    sources_of: dict[str, list[str]] = {}
    options: dict[str, Option] = {}
    for kind, source in SOURCES.items():
        for key, option in source.parameters.items():
            options.setdefault(key, option)
            sources_of.setdefault(key, []).append("data" if kind == FUNCTION else f"{kind}:…")
    described = {
        key: f"{option.described} For {', '.join(sources_of[key])}."
        for key, option in options.items()
    }
    return {
        key: {"description": described[key]}
        if option.kind is object
        else option.schema(described[key])
        for key, option in options.items()
    }


def _of_methods() -> Mapping[str, Schema]:
    """Return the options of ensembling methods, each with the methods that have it."""
    methods_of: dict[str, list[str]] = {}
    for name, method in methods.METHODS.items():
        for option, default in method.defaults.items():
            methods_of.setdefault(option, []).append(f"{name} (default: {default})")
    options = {
        option: methods.OPTIONS[option].schema(f"For {', '.join(names)}.")
        for option, names in methods_of.items()
    }
    return {"members": methods.OPTIONS["members"].schema(), **options}


def _known() -> Mapping[str, list[str]]:
    """Return values to offer as completions in a grid's lists; others may be valid, too."""
    return {
        "dataset": [*datasets.names(), *datasets.bare_names()],
        "classifier": [*classifiers.names()],
        "perturb_continuous": [*schemes("continuous")],
        "perturb_categorical": [*schemes("categorical")],
        "perturb_labels": [*schemes("labels")],
        "augment": ["none", *AUGMENTATIONS],
        "ensembling": [methods.NONE, *methods.names()],
        "test_augment": ["none", *AUGMENTATIONS],
    }


def _without_null(value: Any) -> Any:
    """Return a schema without null, which TOML does not have."""
    if isinstance(value, list):
        return [_without_null(item) for item in value if item != {"type": "null"}]
    if not isinstance(value, dict):
        return value
    kept = {key: _without_null(item) for key, item in value.items() if item is not None}
    if len(alternatives := kept.get("anyOf", ())) == 1:
        del kept["anyOf"]
        return alternatives[0] | kept
    return kept
