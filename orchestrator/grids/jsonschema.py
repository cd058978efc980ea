"""The sweep file's JSON Schema, with which editors complete and check it.

It is made from the models in `sweepfile`, and from the options of classifiers and datasets that
`jobs` declares. It covers single values; ``plan`` checks whether they fit together.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import math
from collections.abc import Mapping
from typing import Any, get_args

from manyseed.jobs import classifiers, datasets
from manyseed.jobs.checks import Option
from manyseed.jobs.classifiers.optimizers import DECLARED as OPTIMIZERS
from manyseed.jobs.classifiers.optimizers import OPTIONS as OF_OPTIMIZERS
from manyseed.jobs.classifiers.record import EPOCHS_OPTION, Classifier, Defaults
from manyseed.jobs.datasets.function import KIND as FUNCTION
from manyseed.jobs.datasets.sources import SOURCES
from manyseed.jobs.ensembling import methods
from manyseed.jobs.hparams.grid import RANGES
from manyseed.jobs.hparams.kinds import Categorical, Continuous, Free, Hparam
from manyseed.jobs.images.schemes import AUGMENTATIONS
from manyseed.jobs.own.network import EPOCHS
from manyseed.jobs.own.table import ENCODINGS, ROWS, SCORES
from manyseed.jobs.own.table import SOURCES as SOURCES_OF_SEEDS
from manyseed.jobs.perturb import names as schemes
from manyseed.orchestrator.grids import sweepfile
from manyseed.orchestrator.grids.grid import HPARAMS
from manyseed.orchestrator.grids.sweepfile import SweepFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]

_OWN = "own"
"""The name that stands for users' own code among classifiers' tables."""

_SNAPSHOTS: Schema = {
    "description": "Epochs whose predictions are kept besides those of the last.",
    "type": "array",
    "items": {"type": "integer", "minimum": 1},
}
_GRID: Schema = {
    "description": 'Values of hparams, every combination a cell: hparams = ["grid"].',
    "minProperties": 1,
}
_DEVICE: Schema = {"description": "Where to train; not part of the identity (default: cpu)."}


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
    values = {
        hparam.name: {"description": f"Values of {hparam.name}.", **_values(_hparam(hparam))}
        for hparam in record.space
    }
    options: Schema = {
        "hparams": {
            "description": "Anchors: used as they are, and the centre of every perturbation.",
            **_closed_object({hparam.name: _hparam(hparam) for hparam in record.space}),
        },
        "grid": _GRID | _closed_object(values),
        "device": _DEVICE | {"enum": [*record.devices]},
    }
    if record.epochs is not None:
        options["epochs"] = _option(EPOCHS_OPTION, f"How long to train (default: {record.epochs}).")
        options["snapshots"] = {**_SNAPSHOTS}
    if record.library is not None:
        options["defaults"] = {
            "description": "Whose defaults the anchors are (default: study).",
            "enum": [*get_args(Defaults)],
        }
    options |= {
        key: _option(OPTIMIZERS[key], OPTIMIZERS[key].about)
        if key in OPTIMIZERS
        else {"description": f"Option of {record.name}."}
        for key in record.options
    }
    kind = table["properties"]["kind"] | {"const": record.name}
    return _closed_object({"kind": kind, **options}) | {"title": record.name}


def _closed_object(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _own() -> Schema:
    """Return the table of a classifier in the user's own code."""
    value: Schema = {"type": ["string", "number", "boolean"]}
    keys: Schema = {
        "low": {"type": "number"},
        "high": {"type": "number"},
        "log": {"type": "boolean"},
        "levels": {"type": "array", "items": value, "minItems": 1, "uniqueItems": True},
        "default": value,
    }
    hparam = _closed_object(keys) | {"required": ["default"]}
    entry: Schema = {"type": "string", "pattern": r"^[\w.]+:[\w.]+$"}
    properties: Schema = {
        "estimator": entry
        | {"description": 'A class or function that makes an estimator: "module:name".'},
        "train": entry
        | {"description": 'A function that trains and returns scores: "module:name".'},
        "module": entry
        | {"description": 'A class or function that makes a torch.nn.Module: "module:name".'},
        "command": {
            "description": "The command line to run, with placeholders in braces.",
            "type": "string",
        },
        "rows": {
            "description": "For a command: the format of its files of rows (default: npz).",
            "enum": [*ROWS],
        },
        "files": {
            "description": "For a command: files to copy besides those that it names.",
            "type": "array",
            "items": {"type": "string"},
        },
        "timeout": {
            "description": "For a command: seconds after which it is killed (default: never).",
            "type": "number",
            "exclusiveMinimum": 0,
        },
        **{key: _option(OPTIMIZERS[key], OPTIMIZERS[key].about) for key in OF_OPTIMIZERS},
        "epochs": _option(EPOCHS_OPTION, f"For a module: how long to train (default: {EPOCHS})."),
        "snapshots": {**_SNAPSHOTS},
        "version": {
            "description": "Your version number of the code, part of the identity (default: 1).",
            "type": "integer",
            "minimum": 1,
        },
        "params": {"description": "The arguments that it is called with.", "type": "object"},
        "space": {
            "description": "Hparams that may be perturbed and tuned.",
            "type": "object",
            "additionalProperties": hparam,
        },
        "encode": {"description": "How rows are encoded (default: raw).", "enum": [*ENCODINGS]},
        "scores": {
            "description": "The method that gives scores; by default the first that the model has.",
            "enum": sorted({each for methods in SCORES.values() for each in methods}),
        },
        "seeds": {
            "description": "Parameters that take a seed, each with its stream.",
            "type": "object",
            "additionalProperties": {"enum": [*SOURCES_OF_SEEDS]},
        },
        "probe": {
            "description": "Whether planning fits it to a few made-up rows (default: true).",
            "type": "boolean",
        },
        "hparams": {"description": "Anchors.", "type": "object", "additionalProperties": value},
        "grid": _GRID | {"type": "object", "additionalProperties": _values(value)},
        "device": _DEVICE | {"enum": ["cpu", "gpu"]},
    }
    return _closed_object(properties) | {"title": "code of your own"}


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
    described: Schema = {"title": hparam.name, "description": f"Default: {hparam.default}."}
    assert not isinstance(hparam, Free)  # only users' own code has these
    if isinstance(hparam, Continuous):
        return described | {"type": "number", "minimum": hparam.low, "maximum": hparam.high}
    if isinstance(hparam, Categorical) or not isinstance(hparam.levels, range):
        return described | {"enum": [*hparam.levels]}
    ends = {"minimum": hparam.levels[0], "maximum": hparam.levels[-1]}
    return described | {"type": "integer", **ends}


def _of_sources() -> Mapping[str, Schema]:
    """Return the keys that only some sources take, each with these sources."""
    sources_of: dict[str, list[str]] = {}
    for kind, source in SOURCES.items():
        for key in source.parameters:
            sources_of.setdefault(key, []).append("data" if kind == FUNCTION else f"{kind}:…")
    return {key: {"description": f"For {', '.join(kinds)}."} for key, kinds in sources_of.items()}


def _of_methods() -> Mapping[str, Schema]:
    """Return the options of ensembling methods, each with the methods that have it."""
    methods_of: dict[str, list[str]] = {}
    for name, method in methods.METHODS.items():
        for option, default in method.defaults.items():
            methods_of.setdefault(option, []).append(f"{name} (default: {default})")
    options = {
        option: _option(methods.OPTIONS[option], f"For {', '.join(names)}.")
        for option, names in methods_of.items()
    }
    members = methods.OPTIONS["members"]
    return {"members": _option(members, members.about), **options}


def _option(option: Option, about: str) -> Schema:
    """Return the schema of an option."""
    described: Schema = {"description": about}
    if option.numbers == "none":
        return described | {"enum": [*option.words]}
    bounds = {
        "minimum": option.least,
        "exclusiveMinimum": option.above,
        "maximum": option.most,
        "exclusiveMaximum": option.below,
    }
    number: Schema = {"type": "integer" if option.numbers == "whole" else "number"}
    number |= {word: bound for word, bound in bounds.items() if math.isfinite(bound)}
    if not option.words:
        return described | number
    return described | {"anyOf": [number, *({"const": word} for word in option.words)]}


def _known() -> Mapping[str, list[str]]:
    """Return values to offer as completions in a grid's lists; others may be valid, too."""
    return {
        "dataset": [*datasets.names(), *datasets.bare_names()],
        "classifier": [*classifiers.names()],
        "perturb_continuous": [*schemes("continuous")],
        "perturb_categorical": [*schemes("categorical")],
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
