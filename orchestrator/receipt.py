"""The receipt of a sweep: SHA-256 of its files in an RO-Crate, and their comparison with it.

It is one file, ``ro-crate-metadata.json``: RO-Crate 1.1 with the profile Workflow Run Crate 0.5,
written as plain JSON-LD, of which only a few entities are needed. Part of a seal is what cannot be
computed again, and the results; not what commands rewrite as they go: journals, logs, caches,
locks, and the copies of records inside the store from which it repairs itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import quote, unquote

from manyseed.jobs.datasets.imagefolder import is_foreign
from manyseed.orchestrator.computing.tables import Analysis
from manyseed.orchestrator.disk.placing import opened, place, read_plain
from manyseed.orchestrator.disk.records import json_text, locked, read_json
from manyseed.orchestrator.errors import DamagedFile, UserError, command
from manyseed.orchestrator.paths import CHUNK, METADATA, PACKED, RECEIPT, REWRITTEN, SweepPaths
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.provenance import Recipe, code_here, packages_of, read_recipes
from manyseed.orchestrator.submissions.submission import submissions
from manyseed.orchestrator.survey import survey
from manyseed.orchestrator.upkeep import compact, require_untrained
from manyseed.slurm.local import available_cores

_NAME = r"[^/.][^/]*"
_SEALED = re.compile(
    rf"(?:{PACKED})"
    rf"|predictions\.zarr/(?:{_NAME}/){{0,3}}(?:{re.escape(METADATA)}|{CHUNK})"
    r"|results/(?!inputs\.)[a-z_]+\.parquet|results/(?:analysis|until)\.json"
    rf"|responses/{_NAME}\.parquet|report/(?:{_NAME}/)*{_NAME}"
    rf"|tasks/code/(?:(?!__pycache__/){_NAME}/)*{_NAME}",
    re.ASCII,
)
"""The names of the files that a seal holds."""

_RECORD = "results/analysis.json"
_FOLDERS = ("plan", "predictions.zarr", "results", "responses", "report", "tasks/code")
_NOT_EXPORTED = ("results", "responses", "report", "tasks/code")
_TASKS = Path("tasks")
_MOST_THREADS = 8

_SPEC = "https://w3id.org/ro/crate/1.1"
_CONTEXT = [f"{_SPEC}/context", "https://w3id.org/ro/terms/workflow-run/context"]
_WORKFLOW_CRATE = "https://w3id.org/workflowhub/workflow-ro-crate/1.0"
_PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": ("Process Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/workflow/0.5": ("Workflow Run Crate", "0.5"),
    _WORKFLOW_CRATE: ("Workflow RO-Crate", "1.0"),
}
_FORMATS = {".json": "application/json", ".toml": "application/toml", ".html": "text/html"}
_FORMATS |= {".parquet": "application/vnd.apache.parquet", ".py": "text/x-python"}
_UNLICENSED = "Not stated: ask those who made this sweep."
_COUNTS = {"runs": "runs planned", "finished": "runs finished", "analysed": "time of the analysis"}

Entity = dict[str, Any]


class Sealed(TypedDict):
    """What was sealed, as JSON values: `receipt` is the SHA-256 of the receipt itself."""

    file: str
    receipt: str
    sealed: str
    files: int
    bytes: int
    runs: int
    finished: int


class DifferingFile(TypedDict):
    """A file that is not as it was sealed."""

    file: str
    problem: str


class SealCheck(TypedDict):
    """The result of comparing a sweep with its receipt, as JSON values."""

    receipt: str  # its SHA-256
    sealed: str
    files_checked: int
    bytes_checked: int
    findings: list[DifferingFile]
    not_here: list[str]  # folders that archives do not hold, none of whose files is here
    foreign: list[str]  # files that are no part of a sweep, which are not compared


def seal(
    paths: SweepPaths,
    terms: str | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Sealed:
    """Write the receipt of a sweep at rest, replacing an earlier one; see `Sweep.seal`."""
    require_untrained(paths)
    compact(paths)
    with locked(paths.lock, "sealing") as lease:
        counts = survey(paths).counts
        files = _files(paths.directory)
        sums = dict(_summed(paths.directory, files, progress))
        for name, found in sums.items():
            if isinstance(found, OSError | DamagedFile):
                raise DamagedFile(paths.directory / name, _reason(found))
        state = {"runs": counts["runs"], "finished": counts["done"] + counts["copy"]}
        sealed = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        graph = [*_crate(paths, sealed, terms or _UNLICENSED, state, files, sums)]
        lines = ",\n".join(json.dumps(entity, ensure_ascii=False) for entity in graph)
        text = f'{{"@context": {json.dumps(_CONTEXT)},\n"@graph": [\n{lines}\n]}}\n'
        content = text.encode()
        place(paths.receipt, content, lease.check)
    return {
        "file": str(paths.receipt),
        "receipt": hashlib.sha256(content).hexdigest(),
        "sealed": sealed,
        "files": len(files),
        "bytes": sum(files.values()),
        "runs": state["runs"],
        "finished": state["finished"],
    }


def compare(
    paths: SweepPaths, progress: Callable[[int, int], None] = lambda done, of: None
) -> SealCheck:
    """Read every file once, and compare it with the receipt; see `Sweep.verify_sealed`."""
    content, entities = _read(paths)
    sealed = _sealed_files(paths, entities)
    there = _files(paths.directory)
    gone = [folder for folder in _NOT_EXPORTED if not any(_within(folder, there))]
    not_here = {folder: [*_within(folder, sealed)] for folder in gone}
    known = {name for names in not_here.values() for name in names}
    problems = dict.fromkeys(sealed.keys() - there.keys() - known, "is missing")
    problems |= dict.fromkeys(there.keys() - sealed.keys(), "is new")
    same_size = {}
    for name in sealed.keys() & there.keys():
        _, size = sealed[name]
        if size == there[name]:
            same_size[name] = size
        else:
            problems[name] = f"differs: it has {there[name]:,} bytes instead of {size:,}"
    for name, found in _summed(paths.directory, same_size, progress):
        if isinstance(found, OSError | DamagedFile):
            problems[name] = _reason(found)
        elif found != sealed[name][0] and not (
            name == _RECORD and _as_sealed(paths, entities, sealed[name][0])
        ):
            problems[name] = "differs"
    return {
        "receipt": hashlib.sha256(content).hexdigest(),
        "sealed": str(entities["./"].get("datePublished", "")),
        "files_checked": len(sealed.keys() & there.keys()),
        "bytes_checked": sum(same_size.values()),
        "findings": [{"file": name, "problem": problems[name]} for name in sorted(problems)],
        "not_here": [
            f"{folder} ({len(names):,} {'file' if len(names) == 1 else 'files'})"
            for folder, names in not_here.items()
            if names
        ],
        "foreign": sorted(_foreign(paths.directory)),
    }


def _as_sealed(paths: SweepPaths, entities: Mapping[str, Entity], digest: str) -> bool:
    """Return whether the record of the analysis is as sealed but for when it was computed."""
    try:
        before = str(entities["#analysed"]["value"])
        record = read_json(paths.analysis)
        record["analysed"] = before
    except (OSError, LookupError, TypeError, DamagedFile):
        return False
    return hashlib.sha256(json_text(record)).hexdigest() == digest


def changed(paths: SweepPaths, counts: Mapping[str, int]) -> str:
    """Say what commands changed since the seal, judging by counts and the analysis; or ""."""
    try:
        _, entities = _read(paths)
        was = {name: int(entities[f"#{name}"]["value"]) for name in ("runs", "finished")}
        analysed = entities.get("#analysed", {}).get("value", "")
        last = _analysis(paths)
    except DamagedFile as error:
        return str(error)
    except (LookupError, TypeError, ValueError, AttributeError):
        return str(_unknown(paths))
    now = {"runs": counts["runs"], "finished": counts["done"] + counts["copy"]}
    said = [
        f"{now[name]:,} runs are {word} instead of {was[name]:,}"
        for name, word in (("runs", "planned"), ("finished", "finished"))
        if now[name] != was[name]
    ]
    if last is not None and last.analysed != analysed:
        said.append("it was analysed anew" if analysed else "it was analysed")
    again = command("seal", paths.directory)
    return f"Since it was sealed, {', '.join(said)}: {again} writes a new receipt" if said else ""


def _files(directory: Path) -> dict[str, int]:
    """Return the files that a seal of a sweep holds, by name: their sizes in bytes."""
    found: dict[str, int] = {}
    for folder in ("", *_FOLDERS):
        for parent, _, names in os.walk(directory / folder):
            for name in names:
                file = Path(parent, name)
                known = file.relative_to(directory).as_posix()
                if _SEALED.fullmatch(known):
                    found[known] = _size(file)
            if not folder:
                break  # of the directory itself only its files
    return dict(sorted(found.items()))


def _foreign(directory: Path) -> Iterator[str]:
    """Yield the names of files that lie in a sweep and are no part of it."""
    for parent, folders, names in os.walk(directory):
        folder = Path(parent).relative_to(directory)
        folders[:] = [one for one in folders if not is_foreign(one) and folder / one != _TASKS]
        for name in names:
            file = (folder / name).as_posix()
            if is_foreign(name):
                continue  # of other programs, in every folder that they show
            if not _SEALED.fullmatch(file) and not re.fullmatch(REWRITTEN, file):
                yield file


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _summed(
    directory: Path, files: Mapping[str, int], progress: Callable[[int, int], None]
) -> Iterator[tuple[str, str | OSError | DamagedFile]]:
    """Yield the SHA-256 of files, or why one cannot be read; several are read at once."""

    def summed(name: str) -> str | OSError | DamagedFile:
        try:
            with opened(directory / name) as file:
                return hashlib.file_digest(file, "sha256").hexdigest()  # without the GIL
        except (OSError, DamagedFile) as error:
            return error

    largest = sorted(files, key=lambda name: -files[name])  # first, so that no thread is left alone
    progress(0, len(largest))
    # two for each core: one reads while the other hashes
    with ThreadPoolExecutor(min(_MOST_THREADS, 2 * available_cores())) as threads:
        for done, found in enumerate(zip(largest, threads.map(summed, largest), strict=True), 1):
            progress(done, len(largest))
            yield found


def _reason(error: OSError | DamagedFile) -> str:
    if isinstance(error, DamagedFile):
        return error.reason
    return f"cannot be read: {error.strerror or error}"


def _within(folder: str, names: Iterable[str]) -> Iterator[str]:
    return (name for name in names if name.startswith(f"{folder}/"))


def _read(paths: SweepPaths) -> tuple[bytes, dict[str, Entity]]:
    """Return the receipt, and its entities by their identities."""
    try:
        content = read_plain(paths.receipt)
    except FileNotFoundError:
        remedy = f"seal it: {command('seal', paths.directory)}"
        raise UserError("it has no receipt", file=paths.directory, remedy=remedy) from None
    try:
        entities = {entity["@id"]: entity for entity in json.loads(content)["@graph"]}
        if not isinstance(entities["./"], dict):
            raise TypeError
    except (ValueError, LookupError, TypeError, RecursionError):
        raise _unknown(paths) from None
    return content, entities


def _unknown(
    paths: SweepPaths, reason: str = "is not a receipt that manyseed wrote"
) -> DamagedFile:
    again = command("seal", paths.directory)
    return DamagedFile(
        paths.receipt, reason, f"restore it from a copy of the sweep, or write a new one: {again}"
    )


def _sealed_files(paths: SweepPaths, entities: Mapping[str, Entity]) -> dict[str, tuple[str, int]]:
    """Return the digest and the size of each file in the receipt; refuse names of others."""
    sealed = {}
    for identity, entity in entities.items():
        if "File" not in [*_several(entity.get("@type"))]:
            continue
        name = unquote(str(identity))
        try:
            sealed[name] = (str(entity["sha256"]), int(entity["contentSize"]))
        except (LookupError, TypeError, ValueError):
            raise _unknown(paths, f"does not say what {name} holds") from None
        if not _SEALED.fullmatch(name):
            raise _unknown(paths, f"names {name}, which is not part of a sweep")
    return sealed


def _several(value: object) -> Iterable[object]:
    return value if isinstance(value, list) else [value]


def _crate(
    paths: SweepPaths,
    sealed: str,
    terms: str,
    state: Mapping[str, int],
    files: Mapping[str, int],
    sums: Mapping[str, Any],
) -> Iterator[Entity]:
    """Yield the entities of the crate, each once."""
    plan, analysis = Plan.read(paths), _analysis(paths)
    told = {**state, "analysed": analysis.analysed if analysis else ""}
    counts: list[Entity] = [
        {"@id": f"#{name}", "@type": "PropertyValue", "name": _COUNTS[name], "value": value}
        for name, value in told.items()
        if value != ""
    ]
    recipes = {} if plan.is_imported else read_recipes(paths.recipes)
    software = [
        entity for number, recipe in recipes.items() for entity in _of_recipe(number, recipe)
    ]
    software += _of_code()
    data = [*_data(plan)]
    made = [_training(paths, plan, [one["@id"] for one in data])]
    actions = made if state["finished"] else []
    if analysis:
        tool = {"@id": "#analysis-software", "@type": "SoftwareApplication"}
        packages = packages_of(analysis.packages)
        tool |= {"name": "manyseed", "softwareVersion": analysis.packages.get("manyseed", "")}
        needs = _refer(one["@id"] for one in packages)
        software += [tool | {"softwareRequirements": needs}, *packages]
        actions.append(
            {
                "@id": f"#analysis-{analysis.analysed}",
                "@type": "CreateAction",
                "name": "Analysis of the predictions",
                "description": json.dumps(analysis.options),
                "endTime": analysis.analysed,
                "instrument": _refer(tool["@id"]),
                "object": _refer("predictions.zarr/"),
                "result": _refer("results/"),
            }
        )
    name = _name(paths)
    folders = [folder for folder in _FOLDERS if any(_within(folder, files))]
    yield {
        "@id": RECEIPT,
        "@type": "CreativeWork",
        "about": _refer("./"),
        "conformsTo": _refer([_SPEC, _WORKFLOW_CRATE]),
    }
    yield {
        "@id": "./",
        "@type": "Dataset",
        "name": name,
        "description": f"Predictions and results of {state['finished']:,} of {state['runs']:,} "
        f"runs of the sweep {name}: its plan, predictions, tables and report, with checksums.",
        "datePublished": sealed,
        "license": terms,
        "conformsTo": _refer(_PROFILES),
        "mainEntity": _refer("sweep.toml"),
        "hasPart": _refer(["sweep.toml", *(f"{folder}/" for folder in folders)]),
        "mentions": _refer([one["@id"] for one in (*actions, *data)]),
        "additionalProperty": _refer(one["@id"] for one in counts),
    }
    for profile, (title, version) in _PROFILES.items():
        yield {"@id": profile, "@type": "CreativeWork", "name": title, "version": version}
    yield {
        "@id": "#sweep-file",
        "@type": "ComputerLanguage",
        "name": "sweep file of manyseed",
        "identifier": "https://toml.io/",
        "url": "https://toml.io/",
    }
    for folder in folders:
        parts = [quote(one) for one in _within(folder, files)]
        yield {"@id": f"{folder}/", "@type": "Dataset", "name": folder, "hasPart": _refer(parts)}
    needed = [one["@id"] for one in software if one["@id"].startswith("#recipe-")]
    for file, size in files.items():
        entity: Entity = {"@id": quote(file), "@type": "File", "name": Path(file).name}
        if file == "sweep.toml":
            entity["@type"] = ["File", "SoftwareSourceCode", "ComputationalWorkflow"]
            entity |= {"name": name, "programmingLanguage": _refer("#sweep-file")}
            entity |= {"softwareRequirements": _refer(needed)} if needed else {}
        kind = _FORMATS.get(Path(file).suffix)
        entity |= {"encodingFormat": kind} if kind else {}
        yield entity | {"contentSize": str(size), "sha256": sums[file]}
    seen: set[str] = set()
    for one in (*actions, *data, *counts, *software):
        if one["@id"] not in seen:
            yield one
        seen.add(one["@id"])


def _refer(identities: str | Iterable[str]) -> Any:
    if isinstance(identities, str):
        return {"@id": identities}
    return [{"@id": identity} for identity in identities]


def _training(paths: SweepPaths, plan: Plan, data: list[str]) -> Entity:
    """Return the action that made the predictions."""
    kind = "Import of predictions made elsewhere" if plan.is_imported else "Training of the runs"
    action: Entity = {
        "@id": f"#training-{plan.identity}",
        "@type": "CreateAction",
        "name": kind,
        "description": "Each run's recipe, as recorded with it, is its number among plan/recipes.",
        "instrument": _refer("sweep.toml"),
        "object": _refer(["plan/", *data]),
        "result": _refer("predictions.zarr/"),
    }
    listed = submissions(paths)
    began = [one.intent.submitted for one in listed if one.intent.submitted]
    ended = [attempt.updated for one in listed for attempt in one.attempts() if attempt.updated]
    action |= {"startTime": _time(min(began))} if began else {}
    return action | ({"endTime": _time(max(ended))} if ended else {})


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _data(plan: Plan) -> Iterator[Entity]:
    """Yield the data sets, as their identities describe them, and the files of prepared copies."""
    from manyseed.jobs.datasets.cache import checksums, data_home

    for name, number in (
        plan.cells.group_by("dataset", maintain_order=True)
        .first()
        .select("dataset", "cell")
        .iter_rows()
    ):
        canonical = plan.cell(number).dataset
        files = checksums(canonical, data_home())
        entity = {
            "@id": f"#data-{quote(name)}",
            "@type": "CreativeWork",
            "name": name,
            "description": json.dumps(canonical, sort_keys=True),
        }
        if digest := canonical.get("digest"):
            entity["identifier"] = f"sha256:{str(digest).removeprefix('sha256:')}"
        parts = {file: f"{entity['@id']}/{file}" for file in files}
        yield entity | ({"hasPart": _refer(parts.values())} if parts else {})
        for file, identity in parts.items():
            yield {"@id": identity, "@type": "CreativeWork", "name": file, "sha256": files[file]}


def _of_recipe(number: int, recipe: Recipe) -> Iterator[Entity]:
    """Yield the software that a recipe names, and its packages."""
    packages = [*packages_of(recipe.packages or {})]
    entity: Entity = {
        "@id": f"#recipe-{number:04d}",
        "@type": "SoftwareApplication",
        "name": "manyseed",
        "softwareVersion": (recipe.packages or {}).get("manyseed", ""),
        "description": f"Python {recipe.python} on {recipe.device_class}",
        "softwareRequirements": _refer(one["@id"] for one in packages),
    }
    yield entity | ({"identifier": recipe.code} if recipe.code else {})
    yield from packages


def _of_code() -> Iterator[Entity]:
    """Yield manyseed's code as it was installed where the sweep was sealed."""
    code = code_here()
    dirty = ", with uncommitted changes" if code.changes else ""
    commit = f"commit {code.commit}{dirty}; " if code.commit else ""
    entity: Entity = {
        "@id": "#code",
        "@type": "SoftwareSourceCode",
        "name": "manyseed, as installed where the sweep was sealed",
        "version": code.version,
        "description": f"{commit}its training code is {code.training}",
        "identifier": code.training,
    }
    yield entity | ({"hasPart": _refer("#code-changes")} if code.changes else {})
    if code.changes:
        yield {
            "@id": "#code-changes",
            "@type": "CreativeWork",
            "name": "the difference from the commit, as git diff HEAD prints it",
            "sha256": code.changes,
        }


def _analysis(paths: SweepPaths) -> Analysis | None:
    try:
        return Analysis.read(paths)
    except FileNotFoundError:
        return None


def _name(paths: SweepPaths) -> str:
    """Return the sweep's name."""
    from manyseed.orchestrator.grids.loading import read_sweep_file

    return read_sweep_file(paths.sweep_file).name
