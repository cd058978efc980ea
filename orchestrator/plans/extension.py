"""Give new cells their groups: the layout of each, and what a sweep file must not ask of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from manyseed.jobs.checks import Refused
from manyseed.jobs.classifiers.record import MODELLESS
from manyseed.jobs.datasets import DatasetInfo
from manyseed.jobs.ensembling.methods import NONE, member_epochs, sizes
from manyseed.jobs.own.table import UNCHANGED
from manyseed.jobs.response import DBI, DBI_LAYERS, PARTS, ResponseDesign
from manyseed.jobs.response.resolution import resolve
from manyseed.jobs.run import Cell
from manyseed.orchestrator.errors import UserError, refused, toml_value
from manyseed.orchestrator.grids.expansion import Expansion
from manyseed.orchestrator.grids.sweepfile import Keep, Response, SweepFile
from manyseed.orchestrator.paths import encode_name
from manyseed.orchestrator.plans.keptmodels import may_be_met, require_condition
from manyseed.orchestrator.plans.layout import PAIR, Groups
from manyseed.orchestrator.plans.plan import METHOD
from manyseed.orchestrator.store.arrays import method_of
from manyseed.orchestrator.store.coordinates import (
    COORDINATES,
    DECLARED,
    PARAMETERS,
    RESPONSE,
    RESPONSE_ARRAYS,
    TRAIN_ACCURACY,
    Coordinate,
    OptionalArray,
    TooLarge,
    of_members,
)
from manyseed.orchestrator.store.schema import UNSIZED, GroupSpec, own_name, planned_group


@dataclass(frozen=True, slots=True)
class Extras:
    """What a group stores besides predictions, in fields of `GroupSpec`."""

    optional: tuple[OptionalArray, ...] = ()
    coordinates: tuple[Coordinate, ...] = ()
    response: str = ""
    parameters: str = ""
    parameters_where: str = ""


def with_responses(further: Extras, asked: ResponseDesign) -> Extras:
    """Add the arrays that store each model's answers, measured when it is trained."""
    grids = asked.grids
    lengths = {
        "response": len(asked.responses),
        "draw": asked.draws,
        "magnitude": len(grids[0]),
        "part": len(PARTS),
        "layer": len(DBI_LAYERS),
    }
    arrays = (*RESPONSE_ARRAYS, *([DBI] if asked.dbi else []))
    names = list(dict.fromkeys(name for name, _ in asked.responses))
    values: dict[str, tuple[Any, list[str]]] = {
        "response_transform": ([names.index(name) for name, _ in asked.responses], names),
        "response_layer": ([layer for _, layer in asked.responses], []),
        "response_magnitude": (grids, []),
        "part": ([*range(len(PARTS))], [*PARTS]),
    }
    if asked.dbi:
        values["layer"] = (DBI_LAYERS, [])
    declared = [DECLARED[name] for name in arrays]
    return replace(
        further,
        optional=(
            *further.optional,
            *(one.of(lengths[dim] for dim in one.dims) for one in declared),
        ),
        coordinates=tuple(
            COORDINATES[name].of(codes, meanings) for name, (codes, meanings) in values.items()
        ),
        response=json.dumps(asked.to_attributes(), sort_keys=True),
    )


def with_parameters(
    further: Extras,
    canonicals: Iterable[str],
    dataset: DatasetInfo,
    classifier: str,
    where: str = "",
) -> Extras:
    """Add the array that stores the parameters of trained models.

    `canonicals`: canonical descriptions of the group's cells. `where`: the condition on runs whose
    parameters are kept; empty for all runs.
    """
    from manyseed.jobs.parameters import layouts  # builds networks, which workers do not need

    models = layouts((Cell.from_text(text) for text in canonicals), dataset, classifier)
    length, dtype = max(model.numbers for model in models), models[0].dtype
    by_hparams = sorted(models, key=lambda model: sorted(model.hparams.items()))
    described = [model.to_attributes() for model in by_hparams]
    return replace(
        further,
        optional=(*further.optional, PARAMETERS.of((length,), dtype)),
        parameters=json.dumps(described, sort_keys=True),
        parameters_where=where,
    )


_FIXED = {
    "scores": "keep.scores",
    "dtype": "keep.dtype",
    "epochs": "snapshots",
    "samples": "points of a test set",
    "class_names": "classes",
    "probability": "probabilities",
    "curves": "keep.curves",
    "response": "[response]",
}
"""The fields of a layout that a sweep file decides, and their names for users."""
_ELSE = {"[response]": "; models whose parameters are kept can be asked by manyseed respond"}
_KEPT = {
    array: f"keep.{declared.keep}"
    for array, declared in DECLARED.items()
    if declared.keep != RESPONSE
}
"""The same for optional arrays, by name."""


def merged(held: GroupSpec, wanted: GroupSpec, path: Path, *, exists: bool) -> GroupSpec:
    """Return the layout of a group to which cells are added.

    `held` and `wanted`: the layout planned so far, and the layout for the added cells alone.
    `path`: the sweep file, for messages. `exists`: whether an earlier planning fixed the layout, so
    that it never changes.
    """
    if held.parameters and wanted.parameters and held.parameters_where == wanted.parameters_where:
        wanted = _with_parameters_of(held, wanted, path)
    facts = [(name, getattr(held, field), getattr(wanted, field)) for field, name in _FIXED.items()]
    facts += [(name, _how(held, array), _how(wanted, array)) for array, name in _KEPT.items()]
    facts += [(name, _along(held, name), _along(wanted, name)) for name in COORDINATES]
    for name, before, now in facts:
        if before != now:
            raise UserError(
                f"{held.dataset} × {held.named} is stored with {name} = "
                f"{toml_value(before)}; this file asks for {toml_value(now)}",
                file=path,
                remedy="restore it, give the dataset or classifier another name in the file, "
                "or plan into another directory with --out" + _ELSE.get(name, ""),
            )
    if exists:
        return held
    return replace(held, split_length=max(held.split_length, wanted.split_length))


def _with_parameters_of(held: GroupSpec, wanted: GroupSpec, path: Path) -> GroupSpec:
    """Give `wanted` the parameter array of `held`, if that has room for the models of `wanted`."""
    known = json.loads(held.parameters)
    lacking = [model for model in json.loads(wanted.parameters) if model not in known]
    if lacking:
        hparams = lacking[0]["hparams"].items()
        described = ", ".join(f"{name} = {toml_value(value)}" for name, value in hparams)
        raise UserError(
            f"{held.dataset} × {held.named} is stored with parameters of models of other "
            f"sizes; this file asks for models{described and ' with '}{described}",
            file=path,
            key="keep.parameters",
            value=True,
            remedy="plan these cells into another directory with --out",
        )
    stored = next(array for array in held.optional if array.name == PARAMETERS.name)
    optional = tuple(stored if a.name == PARAMETERS.name else a for a in wanted.optional)
    return replace(wanted, optional=optional)


def _how(spec: GroupSpec, array: str) -> object:
    """Return whether a group has an optional array, or its shape and dtype if it has dimensions."""
    declared = next((one for one in spec.optional if one.name == array), None)
    if declared is not None and array == PARAMETERS.name:  # `_with_parameters_of` checks its shape
        return spec.parameters_where or True
    if declared is None or not declared.dims:
        return declared is not None
    return [*declared.shape, declared.dtype]


def _along(spec: GroupSpec, coordinate: str) -> object:
    """Return a coordinate of a group's optional arrays; an empty list if there is none."""
    return [[*one.values, *one.meanings] for one in spec.coordinates if one.name == coordinate]


def extended(
    groups: Groups, asked: pl.DataFrame, file: SweepFile, expansion: Expansion, path: Path
) -> Groups:
    """Return groups and those that new cells need.

    `asked`: columns dataset, classifier, canonical, repeats, runs, group (null for a new cell) and
    the `LATER` axes. `file` and `expansion`: the sweep file and its cells. `path`: the file, for
    messages.
    """
    for keep in (file.keep, *(table.keep for table in file.dataset.values() if table.keep)):
        if isinstance(keep.parameters, str):
            require_condition(keep.parameters, path)
    specs = list(groups.specs)
    numbers = dict(groups.numbers)
    wanted = asked.group_by(*PAIR, METHOD, "group", maintain_order=True).agg(
        pl.col("repeats").max(),
        (pl.col("repeats").cast(pl.Int64) * pl.col("runs")).sum().alias("all"),
        pl.col("canonical"),
    )
    methods = [Cell.from_text(canonicals[0]).ensembling for canonicals in wanted["canonical"]]
    keeps = {name: file.keep_of(name) for name in wanted["dataset"].unique(maintain_order=True)}
    for (*names, group, repeats, runs, canonicals), method in zip(
        wanted.iter_rows(), methods, strict=True
    ):
        dataset, classifier, ensembling = key = tuple(names)
        keep = keeps[dataset]
        if method is not None and file.response is not None:
            raise UserError(
                "response curves are measured of single networks, so cells with an ensembling "
                "method have none",
                file=path,
                key="response",
                remedy="leave it out, or move these cells into a sweep file of their own",
            )
        if expansion.classifiers[classifier, dataset].canonical.get("form") in MODELLESS:
            _require_no_model(classifier, keep, file.response, path)
        number = numbers.get(key) if group is None else group
        _check_names(dataset, classifier, ensembling, path, new=number is None)
        try:
            spec = _spec(
                len(specs),
                key,
                (repeats, runs),
                keep,
                file.response,
                method,
                expansion,
                canonicals,
            )
        except TooLarge as error:
            raise UserError(
                str(error),
                file=path,
                key="keep.members",
                value="all",
                remedy='keep.members = "sizes", fewer members or fewer test points',
            ) from None
        except Refused as error:
            table = "keep" if error.option == PARAMETERS.keep else "response"
            raise refused(
                error,
                file=path,
                key=f"{table}.{error.option}",
                value=error.value,
                remedy="leave it out, or move these datasets and classifiers into a sweep file "
                "of their own",
            ) from None
        except ValueError as error:
            raise UserError(
                str(error),
                file=path,
                key="dataset",
                value=dataset,
                remedy='give it fewer test points with "test", or fewer snapshots',
            ) from None
        if number is None:
            numbers[key] = len(specs)
            specs.append(spec)
        else:
            specs[number] = merged(specs[number], spec, path, exists=number < len(groups.specs))
    return Groups(tuple(specs))


def _check_names(dataset: str, classifier: str, ensembling: str, path: Path, *, new: bool) -> None:
    """Refuse names that no folder of the store can have, or that could clash with another group."""
    if new and "~" in method_of(ensembling):
        raise UserError(
            "a method's name cannot contain ~, which joins names of the store's folders",
            file=path,
            key="ensembling",
            value=method_of(ensembling),
            remedy="choose another name",
        )
    if new and "~" in classifier:
        raise UserError(
            "a classifier's name cannot contain ~, which precedes the ensembling method in names "
            "of the store's folders",
            file=path,
            key="classifier",
            value=classifier,
            remedy="choose another name",
        )
    for key, name in (("dataset", dataset), ("classifier", own_name(classifier, ensembling))):
        try:
            encode_name(name)
        except ValueError as error:
            raise UserError(
                str(error),
                file=path,
                key=key,
                value=name,
                remedy="choose a shorter name: a character beyond ASCII takes 6 to 12 of them",
            ) from None


def _require_no_model(classifier: str, keep: Keep, response: Response | None, path: Path) -> None:
    """Refuse measurements of models for a function or a command, which returns only scores."""
    asked = {
        "response": response is not None,
        "keep.train_accuracy": keep.train_accuracy,
    }
    for key in (key for key, is_asked in asked.items() if is_asked):
        raise UserError(
            f"{classifier} is a training function or a command, which returns scores of the test "
            "set and no model that could be asked about other rows",
            file=path,
            key=key,
            remedy="leave it out, or move these cells into a sweep file of their own",
        )


def _spec(
    number: int,
    key: tuple[str, str, str],
    planned: tuple[int, int],
    keep: Keep,
    response: Response | None,
    method: Mapping[str, Any] | None,
    expansion: Expansion,
    canonicals: Sequence[str],
) -> GroupSpec:
    """Return the layout of a new group, with `planned` repeats and total runs.

    `key` is its dataset, classifier and `GroupSpec.ensembling`; `canonicals` describe its cells.
    """
    dataset, classifier, ensembling = key
    info, model = expansion.datasets[dataset], expansion.classifiers[classifier, dataset]
    scores, dtype = keep.resolve(len(info.class_names))
    epochs = model.snapshots or (0,)
    further = Extras((TRAIN_ACCURACY.of(),) if keep.train_accuracy else ())
    if response is not None:
        options = response.options()
        is_raw = model.canonical.get("encode") in UNCHANGED
        questions = resolve(options, info, model.record.fit, (dataset, classifier), is_raw=is_raw)
        further = with_responses(further, questions)
    if method is not None:
        taken = member_epochs(method, model.epochs or 0)
        epochs, points = taken[-1:], (info.n_test, len(info.class_names))
        kept = keep.members_of(points[1])
        further = Extras(*of_members(kept, taken, sizes(len(taken)), points, dtype))
    if keep.parameters:
        where = keep.parameters if isinstance(keep.parameters, str) else ""
        name = method_of(ensembling) or NONE
        if not where or may_be_met(where, dataset, classifier, name):
            further = with_parameters(further, canonicals, info, classifier, where)
    spec = GroupSpec(
        number=number,
        dataset=dataset,
        classifier=classifier,
        samples=info.n_test,
        class_names=info.class_names,
        epochs=epochs,
        scores=scores,
        dtype=dtype,
        probability=model.probability,
        curves=bool(keep.curves and model.snapshots),
        ensembling=ensembling,
        optional=further.optional,
        coordinates=further.coordinates,
        response=further.response,
        parameters=further.parameters,
        parameters_where=further.parameters_where,
        **UNSIZED,
    )
    return planned_group(spec, repeats=planned[0], runs=planned[1])
