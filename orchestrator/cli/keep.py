"""The verbs that keep predictions: verify, compact, seal, split, merge, export, import, rerun."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyseed.orchestrator.cli import arguments
from manyseed.orchestrator.cli.arguments import (
    Directory,
    Json,
    alone,
    argument,
    optional,
    pairs,
    require_outside,
    switch,
    takes,
    written_to,
)
from manyseed.orchestrator.cli.output import (
    bar,
    console,
    counted,
    print_json,
    say,
    say_next,
    say_training,
    shards_done,
    size,
)
from manyseed.orchestrator.cli.status import print_values
from manyseed.orchestrator.errors import RunsError, Unread, UserError, command, flag

if TYPE_CHECKING:
    from manyseed.orchestrator.runs import Differences, Rerun
    from manyseed.orchestrator.sweep import Sweep
    from manyseed.orchestrator.upkeep import Verified

_NAMED = 20  # how many runs are named; ``--json`` names all
_FOREIGN = 5  # files


@takes("verify", "repair")
def verify(
    directory: Directory,
    tidy: bool = switch(
        "--compact",
        "Instead: publish the runs in journals, remove files no longer needed, "
        "consolidate metadata.",
    ),
    sealed: bool = switch(
        "--sealed", "Instead: compare every file with the receipt that manyseed seal DIR wrote."
    ),
    as_json: Json = False,
    **options: Any,
) -> None:
    """Check every finished run: checksum, finite scores, shape, labels that match the scores.

    Exit code 1 if something is wrong, or stays so after a repair. manyseed seal DIR writes a
    receipt for --sealed.

    Examples:

        manyseed verify quickstart

        manyseed verify quickstart --repair

        manyseed verify quickstart --compact

        manyseed verify quickstart --sealed
    """
    from manyseed.analysis.counts import some
    from manyseed.orchestrator.plans.plan import Plan
    from manyseed.orchestrator.submissions.submission import training
    from manyseed.orchestrator.sweep import Sweep

    if tidy:
        alone("--compact", **options, json=as_json, sealed=sealed)
        compact(directory)
        return
    if sealed:
        alone("--sealed", **options)
        _verify_sealed(Sweep(directory), as_json)
        return
    sweep = Sweep(directory)
    with shards_done("verifying", quiet=as_json) as progress:
        result = sweep.verify(**options, progress=progress)
    if as_json:
        print_json(result)
    else:
        for finding in result["findings"]:
            rows = f" ({counted(finding['rows'], 'row')})" if finding["rows"] else ""
            say(f"{finding['group']}: {finding['problem']}{rows}")
            if runs := finding["runs"]:
                more = len(runs) - _FEW_NAMED
                rest = f" and {more:,} more, which --json names" if more > 0 else ""
                say(f"  runs {', '.join(runs[:_FEW_NAMED])}{rest}")
        say(f"Checked {counted(result['runs_checked'], 'finished run')}: {_verdict(result)}")
        if unchecked := result.get("groups_unchecked", []):
            say(f"Not checked before that is repaired: all runs of {some(unchecked, _FEW_NAMED)}.")
        for sentence in result.get("not_mended", ()):
            say(sentence)
        if result.get("runs_set_back"):
            more = len(result["set_back"]) - _NAMED
            rest = f" and {more:,} more, which --json names" if more > 0 else ""
            say(f"Set back: {', '.join(result['set_back'][:_NAMED])}{rest}.")
            say_training("Next", sweep.paths, "resume")
    if left := len(result.get("not_mended", ())):
        are = "findings are" if left > 1 else "finding is"
        raise RunsError(f"{left:,} {are} not mended")
    if result["findings"] and not options["repair"]:
        n, retrain = result["runs_wrong"], f"; then: {training(sweep.paths, 'resume')}"
        raise RunsError(
            (f"{n:,} {'run is' if n == 1 else 'runs are'} wrong" if n else "the store is damaged")
            + f"\n  repair it with: {command('verify', directory, '--repair')}"
            + ("" if Plan.read(sweep.paths).is_imported else retrain)
        )


def _verdict(result: Verified) -> str:
    if not result["findings"]:
        return "nothing is wrong."
    if "runs_set_back" not in result:
        n = result["runs_wrong"]
        wrong = f"{n:,} {'is' if n == 1 else 'are'} wrong." * bool(n)
        return wrong or "their predictions are whole, other files are damaged."
    healed, back = result["runs_healed"], result["runs_set_back"]
    if not healed and not back:
        rest = " as far as possible" if result["not_mended"] else ""
        return f"what was wrong is repaired{rest}, no run is lost."
    return f"{healed:,} restored from journals, {back:,} set back to be trained again."


def _verify_sealed(sweep: Sweep, as_json: bool) -> None:
    from manyseed.analysis.counts import some

    with shards_done("comparing", what="files", quiet=as_json) as progress:
        result = sweep.verify_sealed(progress=progress)
    findings = result["findings"]
    if as_json:
        print_json(result)
    else:
        for finding in findings[:_NAMED]:
            say(f"{finding['file']}: {finding['problem']}")
        if len(findings) > _NAMED:
            say(f"and {len(findings) - _NAMED:,} more, which --json names")
        if result["not_here"]:
            say(f"Not here, as in an archive: {', '.join(result['not_here'])}.")
        if foreign := result["foreign"]:
            named = some(foreign, _FOREIGN)
            say(f"Not sealed, as no part of a sweep: {counted(len(foreign), 'file')} ({named}).")
        say(
            f"Checked {counted(result['files_checked'], 'file')} "
            f"({size(result['bytes_checked'])}) sealed {result['sealed']}: "
            + (f"{len(findings):,} not as sealed." if findings else "each is as it was sealed.")
        )
        say(f"SHA-256 of the receipt: {result['receipt']}")
    if findings:
        again = command("seal", sweep.directory)
        raise RunsError(
            f"{counted(len(findings), 'file')} not as sealed\n  take them from the copy that was "
            f"sealed; or, if they were changed on purpose, seal it again: {again}"
        )


@takes("seal", "terms")
def seal(directory: Directory, as_json: Json = False, **options: Any) -> None:
    """Write a receipt with the SHA-256 of plan, predictions, tables and report.

    It is an RO-Crate, ro-crate-metadata.json, that names the code, packages and data, too. Whoever
    gets the sweep, or what export wrote of it, checks it with manyseed verify DIR --sealed.

    Examples:

        manyseed seal sweep

        manyseed seal sweep --terms CC-BY-4.0
    """
    from manyseed.orchestrator.sweep import Sweep

    with shards_done("sealing", what="files", quiet=as_json) as progress:
        result = Sweep(directory).seal(**options, progress=progress)
    if as_json:
        print_json(result)
        return
    say(
        f"Sealed {counted(result['files'], 'file')} ({size(result['bytes'])}) with "
        f"{result['finished']:,} of {counted(result['runs'], 'run')}: {result['file']}"
    )
    say(f"SHA-256 of the receipt: {result['receipt']}")
    say_next("Check it", "verify", directory, "--sealed")


@takes("split", "where", where={"autocompletion": arguments.condition})
def split(
    directory: Directory,
    out: Path = written_to("The new directory.", default=..., metavar="PART"),
    as_json: Json = False,
    **options: Any,
) -> None:
    """Make a part of a sweep that is trained elsewhere, with the cells that meet a condition.

    The part is a sweep directory, whose runs have the same identities. Copy it to another site,
    train it there as usual, copy it back, and add its runs with manyseed merge DIR PART.

    Examples:

        manyseed split sweep --where "classifier = 'mlp'" --out part
    """
    from manyseed.orchestrator.sweep import Sweep

    made = Sweep(directory).split(**options, out=out)
    if as_json:
        print_json(made)
        return
    say(
        f"{out} has {counted(made['cells'], 'cell')} with {counted(made['runs'], 'run')}, "
        f"{made['finished']:,} of them finished."
    )
    say_next("Train it, elsewhere", "submit", out)
    say_next("The rest here", "submit", directory, "--only", f"NOT ({options['where']})")
    say_next("Then", "merge", directory, out)


def merge(
    directory: Directory,
    parts: list[Path] = argument("PART…", "Directories that split made.", ...),
    as_json: Json = False,
) -> None:
    """Add the finished runs of parts to the sweep that they were split from.

    Each keeps its recipe. Runs that the sweep has with the same bytes are left out, so that merging
    twice changes nothing; if it has other bytes of a run, nothing is merged, and the run is named.

    Examples:

        manyseed merge sweep part

        manyseed merge sweep part-1 part-2
    """
    from manyseed.orchestrator.sweep import Sweep

    with shards_done("merging", what="runs", quiet=as_json) as progress:
        result = Sweep(directory).merge(parts, progress=progress)
    if as_json:
        print_json(result)
        return
    same = f"; {result['runs_equal']:,} were there with the same bytes" * bool(result["runs_equal"])
    say(f"Added {counted(result['runs_added'], 'run')}{same}.")
    say(f"{result['finished']:,} of {counted(result['runs'], 'run')} are finished.")
    if result["finished"] == result["runs"]:
        say_next("Next", "analyze", directory)
    else:
        say_next("Next", "status", directory)


def compact(directory: Directory) -> None:
    """Publish the runs in journals, remove files no longer needed, consolidate metadata.

    Examples:

        manyseed compact quickstart
    """
    from manyseed.orchestrator.sweep import Sweep

    with shards_done("compacting") as progress:
        result = Sweep(directory).compact(progress)
    say(
        f"Published {counted(result.published, 'run')}, removed "
        f"{counted(result.journals, 'journal')} and {counted(result.partial, 'temporary file')}."
    )
    if result.damaged:
        say(
            f"Kept {counted(len(result.damaged), 'journal')} with unreadable parts that are not "
            f"published: {', '.join(result.damaged)}"
        )
        say_next("Next", "verify", directory, "--repair")
    if result.foreign:
        say(
            f"Ignored {counted(len(result.foreign), 'journal')} of another sweep: "
            f"{', '.join(result.foreign)}"
        )


def export(
    directory: Directory,
    output: Path = written_to(
        "A new file whose name ends with .zip, .parquet or .csv.", default=...
    ),
) -> None:
    """Write a portable copy of the predictions as one file.

    FILE.zip is a Zarr zip store with everything, for
    xarray.open_datatree(zarr.storage.ZipStore(FILE), engine="zarr"); FILE.parquet is a table with
    one row per run and snapshot that holds the labels, without scores and learning curves; FILE.csv
    has a line per run, snapshot and test point, with ids or files of points that have some.

    Examples:

        manyseed export sweep --out sweep.zip

        manyseed export sweep --out labels.csv

        manyseed export sweep --out labels.parquet
    """
    from manyseed.orchestrator.sweep import Sweep

    file = Sweep(directory).export(output)
    say(f"Wrote {file} ({size(file.stat().st_size)}).")
    if file.suffix != ".zip":
        say("It holds labels; export a .zip for scores and learning curves.")


@takes(
    "importing:import_predictions",
    *("out", "dataset", "classifier", "truth", "classes", "runs", "probability"),
    *("probabilities", "columns", "key", "name", "exclude"),
    name={"metavar": "PATTERN"},
    exclude={"metavar": "PATTERN"},
    truth={"metavar": "FILE"},
    classes={"metavar": "NAME,…|FILE"},
    runs={"metavar": "TABLE"},
    probability={"metavar": "softmax|ovr|none"},
)
def import_(
    files: list[Path] | None = argument(
        "[DIR] FILE…",
        "Predictions, or folders of them; before these, optionally, an import to add to.",
    ),
    out: Path | None = written_to("The new directory.", metavar="DIR"),
    classifier: list[str] | None = optional(
        "NAME|NAME=FILE",
        "The classifier's name; or, once for each file, a classifier and its file.",
        shown="imported",
    ),
    columns: list[str] | None = optional(
        "OURS=THEIRS,…",
        "The names of columns: truth=label,prediction=pred,confidence='p_{class}' (or logits).",
    ),
    key: list[str] | None = optional(
        "OURS=THEIRS,…",
        "The names of entries in NPZ and PyTorch files: scores=preds,y_true=targets.",
    ),
    map_: Path | None = optional(
        "FILE",
        "A TOML file with any of these options, for files of one kind: name, columns, key, …",
        "--map",
    ),
    **options: Any,
) -> None:
    """Make a sweep directory from predictions that were made elsewhere.

    FILE is an NPZ with scores (run, sample, class) or labels (run, sample) and y_true; a file of
    torch.save with tensors of these names; an NPY with scores or labels; CSV or Parquet tables with
    OpenML's columns, one per run; or the output of manyseed export. analyze, query, report and
    howmany take the directory like any other. Several files of arrays with the same dataset and
    classifier are further runs; a folder stands for the files in it.

    If a directory stands before the files, they are added to the import in it as further runs: all
    of them or none.

    Examples:

        manyseed import logits.npz --out imported

        manyseed import seed-1.npz seed-2.npz --out imported --dataset digits --classifier cnn

        manyseed import folder-of-seeds --out imported --key scores=logits,y_true=targets

        manyseed import --classifier cnn=a.npz --classifier vit=b.npz --out both --dataset digits

        manyseed import imported seed-3.npz seed-4.npz

        manyseed import run-1.csv run-2.csv run-3.csv --out imported --dataset vehicle

        manyseed import multirun --out imported --name '{classifier}/seed={run}/test.csv'
    """
    from manyseed.orchestrator.cli.importing import (
        accuracies,
        directory_of,
        into_of,
        test_sets_of,
        typed,
        with_place,
    )
    from manyseed.orchestrator.grids.scriptfile import BESIDE
    from manyseed.orchestrator.importing import import_predictions
    from manyseed.orchestrator.importing.mapping import options_of, read_map
    from manyseed.orchestrator.importing.predictions import left_out
    from manyseed.orchestrator.importing.scores import FLOOR
    from manyseed.orchestrator.sweep import Sweep

    name, of_each = _given_classifiers(classifier or [])
    options |= {"columns": pairs(columns or [], "--columns"), "key": pairs(key or [], "--key")}
    options["classifier"] = name
    of_map = {} if map_ is None else read_map(map_)
    for option in [*of_map]:
        if options[option] in (None, False, {}, [], "softmax"):  # what is given counts more
            options[option] = of_map[option]
        else:
            del of_map[option]
    name = options["classifier"]
    files = left_out(files or [], [map_])
    into = into_of(files, out)
    unnamed = files[bool(into) :]
    if of_each and unnamed and name is None:
        raise UserError(
            "has no classifier, but other files do",
            file=unnamed[0],
            remedy=f"--classifier {[*of_each][-1]}={unnamed[0]}, or --classifier NAME for the "
            "files without one",
        )
    options |= {"classifiers": of_each, "adding": into is not None}
    directory = directory_of(into, out, unnamed, options)
    before = Sweep(directory).survey().counts if into else {"done": 0, "copy": 0}
    with options_of(map_, of_map):
        try:
            seen = import_predictions(unnamed, directory, **options)
        except Unread as error:
            if map_ is not None:
                raise
            raise error.told(
                error.options, typed(unnamed, out, options, error.options, into)
            ) from None
        except UserError as error:
            raise with_place(error, into, out, unnamed, options) from None
    done = Sweep(directory).survey().counts
    held, now = (each["done"] + each["copy"] for each in (before, done))
    if into is None:
        say(f"Imported {counted(now, 'run')} into {directory}: {_pairs_of(directory)}.")
        for line in test_sets_of(directory):
            say(line)
    else:
        say(f"Added {counted(now - held, 'run')} to {directory}, which holds {now:,} now.")
    for line in accuracies(seen.right):
        say(line)
    if floored := seen.floored:
        say(
            f"{floored:,} {'prediction' if floored == 1 else 'predictions'} of a test point "
            f"{'gives' if floored == 1 else 'give'} a class less than the probability "
            f"{FLOOR:.2g}, which is used instead, since the logarithm of 0 is not a score."
        )
    if into is None:
        say(f"Another classifier on these rows: {command('docs')} {BESIDE}")
    say_next("Next", "analyze", directory, then=["answers", directory])


def _pairs_of(directory: Path) -> str:
    """Name the classifiers of each dataset of a sweep."""
    from manyseed.analysis.counts import some
    from manyseed.orchestrator.paths import SweepPaths
    from manyseed.orchestrator.plans.plan import Plan

    plan, pairs = Plan.read(SweepPaths(directory)), dict[str, dict[str, str]]()
    runs = plan.all_rows.join(plan.cells, on="cell", maintain_order="left")
    counts = runs.group_by("dataset", "classifier", maintain_order=True).len()
    are_even = counts["len"].n_unique() == 1
    for dataset, name, n in counts.rows():
        pairs.setdefault(dataset, {})[name] = name if are_even else f"{name} ({n:,})"
    told = (
        f"dataset {dataset}, classifier{'s' * (len(of) > 1)} {some([*of.values()], _FEW_NAMED)}"
        for dataset, of in pairs.items()
    )
    return some([*told], _FEW_NAMED)


_FEW_NAMED = 5


def _given_classifiers(given: list[str]) -> tuple[str | None, dict[str, list[Path]]]:
    """Return the name without a file, if any, and the files of each other classifier."""
    from manyseed.orchestrator.errors import UserError

    names = [text for text in given if "=" not in text]
    if len(names) > 1:
        raise UserError(
            "names the classifier of the files a second time",
            key="--classifier",
            value=names[1],
            remedy=f"--classifier {names[1]}=FILE",
        )
    files: dict[str, list[Path]] = {}
    for text in given:
        if "=" in text:
            name, _, file = text.partition("=")
            files.setdefault(name, []).append(Path(file))
    return names[0] if names else None, files


@takes(
    "rerun_where",
    *("where", "best", "overwrite", "other_recipe"),
    where={"autocompletion": arguments.condition},
)
def rerun(
    directory: Directory,
    run: str | None = argument(
        "[RUN]", "Cell, repeat and run, counted from 0: 12:0:3. Or use --where and --best."
    ),
    check: bool = switch("--check", "Exit code 1 unless it is equal bit for bit."),
    save: Path | None = optional(
        "FILE|FOLDER",
        "Write the model: .pt or .npz for networks, .npz for lr-sgd and svm-sgd, .json "
        "for xgb, .skops for estimators. For several runs, a folder with a file each. manyseed "
        "status DIR RUN says how to read it.",
    ),
    as_json: Json = False,
    **options: Any,
) -> None:
    """Train a run again, or those that --where or --best choose, and compare the predictions.

    With its original recipe, a run must be equal bit for bit; with another recipe, the command
    reports how much differs. Several runs are chosen in the result tables, so analyze first.

    Examples:

        manyseed rerun sweep 12:0:3 --check

        manyseed rerun sweep 12:0:3 --save model.pt

        manyseed rerun sweep --best 1 --save models

        manyseed rerun sweep --where "classifier = 'mlp' AND accuracy > 0.9" --save models
    """
    from manyseed.orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    require_outside(save, sweep, "--save")
    if run is None:
        if options["where"] is None and options["best"] is None:
            remedy = "name a run, such as 12:0:3; or several with --where SQL, --best N"
            raise UserError("which run?", key="RUN", remedy=remedy)
        _several(partial(sweep.rerun_where, save=save, **options), save, check, as_json)
        return
    for name, given in options.items():
        if given not in (None, False):
            raise UserError(f"is for several runs, not for {run}", key=flag(name), value=given)
    value = sweep.rerun(run, save)
    if as_json:
        print_json(value)
    else:
        print_values(value)
    if check and value["same_recipe"] and not value["equal"]:
        raise RunsError(
            f"run {run} trained again in its own recipe differs: {value['labels_differ']:,} of "
            f"{value['labels']:,} labels\n  code of your own probably draws random numbers that do "
            f"not come from its seeds; else check the store: {command('verify', directory)}"
        )


def _several(
    train: Callable[..., list[Rerun]], save: Path | None, check: bool, as_json: bool
) -> None:
    """Train several runs again, report each, and exit with 1 if something is wrong."""
    with bar(quiet=as_json or not console.is_terminal) as progress:
        task = progress.add_task("training", total=None, note="runs")

        def tell(one: Rerun, total: int) -> None:
            progress.update(task, advance=1, total=total)
            if not as_json:
                say(_outcome(one))

        done = train(tell=tell)
    if as_json:
        print_json({"runs": [one.to_json() for one in done]})
    else:
        for text in _summary(done, save):
            say(text)
    if wrong := [one for one in done if one.problem or (check and _is_wrong(one))]:
        which = ", ".join(one.address for one in wrong[:5]) + (", …" if len(wrong) > 5 else "")
        raise RunsError(
            f"of {counted(len(done), 'run')}, {len(wrong):,} could not be trained again or differ: "
            f"{which}"
        )


def _is_wrong(one: Rerun) -> bool:
    found = one.comparison
    return found is not None and found["same_recipe"] and not found["equal"]


def _outcome(one: Rerun) -> str:
    """Return the outcome of a run."""
    if one.was_there:
        return f"{one.address}  {one.file} exists already"
    parts = []
    if (found := one.comparison) is not None and not one.problem:
        parts = ["equal bit for bit" if found["equal"] else _difference(found)]
    if one.problem:
        parts.append(one.problem)
    if one.file is not None:
        parts.append(str(one.file))
    return f"{one.address}  {'; '.join(parts)}"


def _difference(found: Differences) -> str:
    largest = found["largest_difference"]
    scores = "" if largest is None else f", scores by {largest:.2g} at most"
    recipe = "" if found["same_recipe"] else ", with another recipe"
    if "recipe_unknown" in found:
        recipe = f", with an unknown recipe: {found['recipe_unknown']}"
    return f"{found['labels_differ']:,} of {found['labels']:,} labels differ{scores}{recipe}"


def _summary(done: list[Rerun], folder: Path | None) -> list[str]:
    """Return the outcome of all runs, and how to read the models."""
    from manyseed.jobs.parameters import READ

    trained = [one.comparison for one in done if one.comparison is not None]
    equal = sum(found["equal"] for found in trained)
    lines = [f"{counted(len(trained), 'run')} trained again, {equal:,} equal bit for bit."]
    if folder is not None:
        files = [one.file for one in done if one.file is not None]
        old = sum(one.was_there for one in done)
        before = f", {old:,} of them from before (--overwrite trains them again)" if old else ""
        lines.append(f"{counted(len(files), 'model')} in {folder}{before}.")
        lines += [f"Load: {READ[ending]}" for ending in sorted({file.suffix for file in files})]
    return lines
