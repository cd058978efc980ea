"""Give new cells their groups: the layout of each, and what a sweep file must not ask of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from manyseed.jobs.checks import Refused
from manyseed.jobs.classifiers.record import MODELLESS
from manyseed.jobs.ensembling.methods import NONE, member_epochs, sizes
from manyseed.jobs.response.resolution import resolve
from manyseed.jobs.run import Cell
from manyseed.orchestrator.errors import UserError, refused
from manyseed.orchestrator.grids.expansion import Expansion
from manyseed.orchestrator.grids.sweepfile import Keep, Response, SweepFile
from manyseed.orchestrator.paths import encode_name
from manyseed.orchestrator.plans.further import Further, with_parameters, with_responses
from manyseed.orchestrator.plans.groups import PAIR, Groups
from manyseed.orchestrator.plans.keptmodels import may_be_met, require_condition
from manyseed.orchestrator.plans.merging import merged
from manyseed.orchestrator.plans.plan import METHOD
from manyseed.orchestrator.store.arrays import SEEN
from manyseed.orchestrator.store.coordinates import PARAMETERS, TRAIN_ACCURACY, TooLarge, of_members
from manyseed.orchestrator.store.schema import GroupSpec, own_name, planned_group


def extended(
    groups: Groups, asked: pl.DataFrame, file: SweepFile, expansion: Expansion, path: Path
) -> Groups:
    """Return groups and those that new cells need.

    Parameters
    ----------
    groups : Groups
    asked : DataFrame
        Columns dataset, classifier, canonical, repeats, runs, group (null for a new cell) and
        the `LATER` axes.
    file, expansion
        The sweep file and its cells.
    path : Path
        The file, for messages.

    Raises
    ------
    UserError
        If the file changes the layout of an existing group, or a group cannot be stored.
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
    if new and "~" in ensembling.removesuffix(SEEN):
        raise UserError(
            "a method's name cannot contain ~, which joins names of the store's folders",
            file=path,
            key="ensembling",
            value=ensembling.removesuffix(SEEN),
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
    further = Further((TRAIN_ACCURACY.of(),) if keep.train_accuracy else ())
    if response is not None:
        options = response.options()
        is_raw = model.canonical.get("encode") == "raw"
        questions = resolve(options, info, model.record.fit, (dataset, classifier), is_raw=is_raw)
        further = with_responses(further, questions)
    if method is not None:
        taken = member_epochs(method, model.epochs or 0)
        epochs, points = taken[-1:], (info.n_test, len(info.class_names))
        kept = keep.members_of(points[1])
        further = Further(*of_members(kept, taken, sizes(len(taken)), points, dtype))
    if keep.parameters:
        where = keep.parameters if isinstance(keep.parameters, str) else ""
        name = ensembling.removesuffix(SEEN) or NONE
        if not where or may_be_met(where, dataset, classifier, name):
            further = with_parameters(further, canonicals, info, classifier, where)
    return planned_group(
        number=number,
        dataset=dataset,
        classifier=classifier,
        samples=info.n_test,
        class_names=info.class_names,
        epochs=epochs,
        scores=scores,
        dtype=dtype,
        probability=model.probability,
        repeats=planned[0],
        runs=planned[1],
        curves=bool(keep.curves and model.snapshots),
        ensembling=ensembling,
        optional=further.optional,
        coordinates=further.coordinates,
        response=further.response,
        parameters=further.parameters,
        parameters_where=further.parameters_where,
    )
