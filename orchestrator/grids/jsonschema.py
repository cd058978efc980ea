"""The sweep file's JSON Schema, by which editors complete and check it.

It is made from the models of `sweepfile`; what tables of classifiers and datasets hold besides is
what `jobs` knows of each. The schema knows single values; what fits together, `plan` checks.
"""

from __future__ import annotations

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
from manyseed.orchestrator.grids.grid import HPARAMS
from manyseed.orchestrator.grids.sweepfile import SweepFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]

_OWN = "own"
"""Among the names of classifiers' tables: that of users' code."""


def schema() -> Schema:
    """Return the schema of a sweep file, as JSON values."""
    found = SweepFile.model_json_schema()
    tables = found["$defs"]
    for name, record in classifiers.CLASSIFIERS.items():
        tables[f"classifier {name}"] = _classifier(record, tables["ClassifierTable"])
    tables[f"classifier {_OWN}"] = _own()
    found["properties"]["classifier"] |= {
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
    for table in (found, *tables.values()):
        for key, value in table["properties"].items():
            value["title"] = key
    described = {"title": "manyseed sweep file", "description": "What is trained, and how often."}
    return {"$schema": DIALECT, **_without_null(found), **described}


def _reference(classifier: str) -> Schema:
    return {"$ref": f"#/$defs/classifier {classifier}"}


def _classifier(record: Classifier, table: Schema) -> Schema:
    """Return the table of a classifier with its options."""
    options: Schema = {
        "hparams": {
            "description": "Anchors: used as they are, and the centre of every perturbation.",
            "type": "object",
            "additionalProperties": False,
            "properties": {hparam.name: _hparam(hparam) for hparam in record.space},
        },
        "grid": {
            "description": 'Values of hparams, every combination a cell: hparams = ["grid"].',
            "type": "object",
            "additionalProperties": False,
            "minProperties": 1,
            "properties": {
                hparam.name: {
                    "description": f"Values of {hparam.name}.",
                    **_values(_hparam(hparam)),
                }
                for hparam in record.space
            },
        },
        "device": {
            "description": "Where to train; no part of the identity (default: cpu).",
            "enum": [*record.devices],
        },
    }
    if record.epochs is not None:
        options["epochs"] = _option(EPOCHS_OPTION, f"How long to train (default: {record.epochs}).")
        options["snapshots"] = {
            "description": "Epochs whose predictions are kept beside the last one's.",
            "type": "array",
            "items": {"type": "integer", "minimum": 1},
        }
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
    properties = {"kind": kind, **options}
    return {
        "title": record.name,
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


def _own() -> Schema:
    """Return the table of a classifier that is code of the user's."""
    value: Schema = {"type": ["string", "number", "boolean"]}
    hparam: Schema = {
        "type": "object",
        "required": ["default"],
        "additionalProperties": False,
        "properties": {
            "low": {"type": "number"},
            "high": {"type": "number"},
            "log": {"type": "boolean"},
            "levels": {"type": "array", "items": value, "minItems": 1, "uniqueItems": True},
            "default": value,
        },
    }
    entry: Schema = {"type": "string", "pattern": r"^[\w.]+:[\w.]+$"}
    properties: Schema = {
        "estimator": entry
        | {"description": 'What makes an estimator: "module:name", a class or a function.'},
        "train": entry
        | {"description": 'A function that trains and returns scores: "module:name".'},
        "module": entry | {"description": 'What makes a torch.nn.Module: "module:name".'},
        "command": {
            "description": "What is run, a word after the other, with placeholders in braces.",
            "type": "string",
        },
        "rows": {
            "description": "Of a command, the form of its files of rows (default: npz).",
            "enum": [*ROWS],
        },
        "files": {
            "description": "Of a command, what is copied beside the files that it names.",
            "type": "array",
            "items": {"type": "string"},
        },
        "timeout": {
            "description": "Of a command, after how many seconds it is ended (default: never).",
            "type": "number",
            "exclusiveMinimum": 0,
        },
        **{key: _option(OPTIMIZERS[key], OPTIMIZERS[key].about) for key in OF_OPTIMIZERS},
        "epochs": _option(EPOCHS_OPTION, f"Of a module, how long to train (default: {EPOCHS})."),
        "snapshots": {
            "description": "Of a module, epochs whose predictions are kept beside the last one's.",
            "type": "array",
            "items": {"type": "integer", "minimum": 1},
        },
        "version": {
            "description": "Your number for what the code does: part of the identity (default: 1).",
            "type": "integer",
            "minimum": 1,
        },
        "params": {"description": "What it is called with.", "type": "object"},
        "space": {
            "description": "Hparams that may be perturbed and tuned.",
            "type": "object",
            "additionalProperties": hparam,
        },
        "encode": {"description": "How rows are given (default: raw).", "enum": [*ENCODINGS]},
        "scores": {
            "description": "What a fit's scores are; by default the first that the model has.",
            "enum": sorted({each for of in SCORES.values() for each in of}),
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
        "hparams": {
            "description": "Anchors.",
            "type": "object",
            "additionalProperties": value,
        },
        "grid": {
            "description": 'Values of hparams, every combination a cell: hparams = ["grid"].',
            "type": "object",
            "minProperties": 1,
            "additionalProperties": _values(value),
        },
        "device": {
            "description": "Where to train; no part of the identity (default: cpu).",
            "enum": ["cpu", "gpu"],
        },
    }
    return {
        "title": "code of your own",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


def _values(of: Schema) -> Schema:
    """Return a list of values, or the range that it is."""
    ends: Schema = {"type": "array", "items": {"type": "number"}, "minItems": 3, "maxItems": 3}
    return {
        "type": ["array", "object"],
        "items": of,
        "minItems": 1,
        "uniqueItems": True,
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
        "properties": {kind: ends | {"description": "First, last, how many."} for kind in RANGES},
    }


def _hparam(hparam: Hparam) -> Schema:
    described: Schema = {"title": hparam.name, "description": f"Default: {hparam.default}."}
    assert not isinstance(hparam, Free)  # of users' own code alone
    if isinstance(hparam, Continuous):
        return described | {"type": "number", "minimum": hparam.low, "maximum": hparam.high}
    if isinstance(hparam, Categorical) or not isinstance(hparam.levels, range):
        return described | {"enum": [*hparam.levels]}
    ends = {"minimum": hparam.levels[0], "maximum": hparam.levels[-1]}
    return described | {"type": "integer", **ends}


def _of_sources() -> Mapping[str, Schema]:
    """Return the keys that sources take besides, each with the sources that take it."""
    found: dict[str, list[str]] = {}
    for kind, source in SOURCES.items():
        for key in source.parameters:
            found.setdefault(key, []).append("data" if kind == FUNCTION else f"{kind}:…")
    return {key: {"description": f"Of {', '.join(kinds)}."} for key, kinds in found.items()}


def _of_methods() -> Mapping[str, Schema]:
    """Return the options of ensembling methods, each with the methods that have it."""
    found: dict[str, dict[str, object]] = {}
    for name, method in methods.METHODS.items():
        for option, default in method.defaults.items():
            found.setdefault(option, {})[name] = default
    described = {
        option: ", ".join(f"{name} (default: {default})" for name, default in of.items())
        for option, of in found.items()
    }
    members = methods.OPTIONS["members"]
    options = {name: _option(methods.OPTIONS[name], f"Of {of}.") for name, of in described.items()}
    return {"members": _option(members, members.about), **options}


def _option(option: Option, about: str) -> Schema:
    """Return what an option may be."""
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
    """Return values that lists of a grid may hold, for completion; others may be right, too."""
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
    """Return a schema without null, which TOML has not."""
    if isinstance(value, list):
        return [_without_null(item) for item in value if item != {"type": "null"}]
    if not isinstance(value, dict):
        return value
    kept = {key: _without_null(item) for key, item in value.items() if item is not None}
    if len(alternatives := kept.get("anyOf", ())) == 1:
        del kept["anyOf"]
        return alternatives[0] | kept
    return kept
