"""The receipt of a sweep: what the specification of RO-Crate asks, and what a comparison names."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest

from manyseed import Sweep
from manyseed.orchestrator import upkeep
from manyseed.orchestrator.disk.records import read_json, write_json
from manyseed.orchestrator.provenance import code_here
from tests.orchestrator.conftest import command, inside

PROFILES = (
    "https://w3id.org/ro/wfrun/process/0.5",
    "https://w3id.org/ro/wfrun/workflow/0.5",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0",
)
OUTSIDE = re.compile(
    r"\.[^/]+|.*\.given|tasks/(?!code/).*|results/(inputs\.parquet|[a-z]+\.json(\.z)?)"
    r"|predictions\.zarr/.*/(records\.\d+|crc32c\.json)"
)
"""Files that are no part of a seal, but may be in a sweep."""


def given(folder: Path, runs: int = 4) -> Path:
    scores = np.random.default_rng(runs).normal(size=(runs, 30, 3)).astype(np.float32)
    np.savez(folder / "a b.npz", scores=scores, y_true=np.arange(30) % 3)
    return folder / "a b.npz"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sealed sweep of predictions made elsewhere, analysed, with a page."""
    folder = tmp_path_factory.mktemp("made")
    sweep = Sweep.import_predictions([given(folder)], folder / "sweep")
    sweep.analyze(workers=1)
    sweep.paths.report.parent.mkdir()
    sweep.paths.report.write_text("<p>a page</p>")
    sweep.seal()
    return sweep.directory


@pytest.fixture
def sealed(made: Path, tmp_path: Path) -> Sweep:
    """A copy of it, which a test may harm."""
    return Sweep(shutil.copytree(made, tmp_path / "sweep"))


def crate(sweep: Sweep) -> dict[str, dict[str, Any]]:
    """Return the entities of a receipt by identity, each of which stands there once."""
    document = json.loads(sweep.paths.receipt.read_text())
    assert set(document) == {"@context", "@graph"}
    assert document["@context"][0] == "https://w3id.org/ro/crate/1.1/context"
    entities = {entity["@id"]: entity for entity in document["@graph"]}
    assert len(entities) == len(document["@graph"])
    return entities


def references(value: object) -> Iterator[str]:
    """Yield what a property refers to; in a flat document, all objects in it are references."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, dict):
            assert set(one) == {"@id"}
            yield one["@id"]


def reached(entities: dict[str, dict[str, Any]], start: str) -> set[str]:
    """Return all that is part of an entity, directly or indirectly."""
    parts = set(references(entities[start].get("hasPart", [])))
    return parts.union(*(reached(entities, part) for part in parts))


def check_crate(sweep: Sweep) -> dict[str, dict[str, Any]]:
    """Check what RO-Crate 1.1 and the profiles prescribe; return the entities."""
    entities = crate(sweep)
    descriptor, root = entities["ro-crate-metadata.json"], entities["./"]
    assert descriptor["@type"] == "CreativeWork"
    assert [*references(descriptor["about"])] == ["./"]
    assert "https://w3id.org/ro/crate/1.1" in references(descriptor["conformsTo"])
    assert root["@type"] == "Dataset"
    for name in ("name", "description", "license"):
        assert isinstance(root[name], str)
        assert root[name]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", root["datePublished"])
    assert set(references(root["conformsTo"])) == set(PROFILES)
    for profile in PROFILES:
        assert entities[profile]["@type"] == "CreativeWork"
        assert profile.endswith(entities[profile]["version"])
    for entity in entities.values():
        assert entity["@type"]
        for name, value in entity.items():
            for identity in references(value):
                is_specification = entity is descriptor and name == "conformsTo"
                assert is_specification or identity in entities, identity
    (main,) = references(root["mainEntity"])
    assert {*entities[main]["@type"]} == {"File", "SoftwareSourceCode", "ComputationalWorkflow"}
    (language,) = references(entities[main]["programmingLanguage"])
    assert entities[language]["@type"] == "ComputerLanguage"
    files = {name for name, one in entities.items() if "File" in one["@type"]}
    assert files <= reached(entities, "./")
    for name in files:
        content = (sweep.directory / unquote(name)).read_bytes()
        assert entities[name]["sha256"] == hashlib.sha256(content).hexdigest()
        assert entities[name]["contentSize"] == str(len(content))
    actions = {name for name, one in entities.items() if one["@type"] == "CreateAction"}
    assert actions <= set(references(root["mentions"]))
    if not entities["#finished"]["value"]:
        assert actions == set()
        return entities
    by_workflow = [one for one in actions if [*references(entities[one]["instrument"])] == [main]]
    assert len(by_workflow) == 1
    for action in actions:
        for name in ("name", "description", "instrument", "object", "result"):
            assert entities[action][name]
        for tool in references(entities[action]["instrument"]):
            kinds = {"SoftwareApplication", "ComputationalWorkflow"}
            assert kinds & {*np.atleast_1d(entities[tool]["@type"])}
    every = (file for file in sweep.directory.rglob("*") if file.is_file())
    names = {file.relative_to(sweep.directory).as_posix() for file in every}
    unsealed = names - {unquote(name) for name in files} - {"ro-crate-metadata.json"}
    assert [name for name in unsealed if not OUTSIDE.fullmatch(name)] == []
    assert {unquote(name) for name in files} <= names
    return entities


def test_a_receipt_is_what_the_specification_prescribes(made: Path) -> None:
    entities = check_crate(Sweep(made))
    assert "%20" in "".join(entities), "a name that is no address as it stands"
    assert entities["./"]["license"].startswith("Not stated")
    assert entities["#runs"]["value"] == entities["#finished"]["value"] == 4


def test_what_a_training_was_made_with_is_named(quick_analysed: Sweep, tmp_path: Path) -> None:
    sweep = Sweep(shutil.copytree(quick_analysed.directory, tmp_path / "sweep"))
    code, said = inside("seal", sweep.directory, "--terms", "CC-BY-4.0")
    assert code == 0, said
    assert hashlib.sha256(sweep.paths.receipt.read_bytes()).hexdigest() in said
    entities = check_crate(sweep)
    assert entities["./"]["license"] == "CC-BY-4.0"
    (number,) = [name for name in entities if name.startswith("#recipe-")]
    assert number in references(entities["sweep.toml"]["softwareRequirements"])
    packages = [entities[one] for one in references(entities[number]["softwareRequirements"])]
    assert {"name": "numpy", "softwareVersion": np.__version__}.items() <= max(
        (one for one in packages if one["name"] == "numpy"), key=len
    ).items()
    assert entities["#code"]["identifier"] == code_here().training
    training, analysis = sorted(
        (one for one in entities.values() if one["@type"] == "CreateAction"),
        key=lambda one: one["@id"],
        reverse=True,
    )
    assert "#data-cancer" in references(training["object"])
    assert entities["#data-cancer"]["identifier"].startswith("sha256:")
    assert training["startTime"] <= training["endTime"] <= analysis["endTime"]
    assert inside("verify", sweep.directory, "--sealed")[0] == 0


def test_a_plan_can_be_sealed_before_anything_is_trained(tmp_path: Path) -> None:
    grid = {"dataset": ["sklearn:wine"], "classifier": ["lr-sgd"]}
    text = {"name": "later", "seed": 1, "repeats": 1, "runs": 2, "grid": [grid]}
    sweep = Sweep.plan(text, tmp_path / "sweep")
    assert sweep.seal()["finished"] == 0
    check_crate(sweep)
    assert sweep.verify_sealed()["findings"] == []
    flip(sweep.paths.part(1))
    assert [one["file"] for one in sweep.verify_sealed()["findings"]] == ["plan/0001.parquet"]


def test_the_state_of_a_checkout_is_its_commit_and_what_differs() -> None:
    code = code_here()
    assert re.fullmatch("sha256:[0-9a-f]{64}", code.training)
    assert re.fullmatch("([0-9a-f]{40})?", code.commit)
    assert re.fullmatch("([0-9a-f]{64})?", code.changes)


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


SHARD = "predictions.zarr/a%20b/imported/label/c.0.0.0"


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        (SHARD, flip, "differs"),
        (SHARD, Path.unlink, "is missing"),
        (SHARD, lambda file: file.write_bytes(b"x"), r"differs: it has 1 bytes instead of [\d,]+"),
        (SHARD.replace("c.0.0.0", "c.1.0.0"), Path.touch, "is new"),
        ("predictions.zarr/zarr.json", flip, "differs"),
        ("sweep.toml", flip, "differs"),
        ("plan/0001.parquet", flip, "differs"),
        ("plan/0002.parquet", Path.touch, "is new"),
        ("results/cells.parquet", flip, "differs"),
        ("results/cells.parquet", Path.unlink, "is missing"),
        ("report/index.html", lambda file: (file.unlink(), file.mkdir()), "is missing"),
        ("report/more.html", Path.touch, "is new"),
    ],
)
def test_each_file_that_is_not_as_sealed_is_named(
    sealed: Sweep, name: str, change: Callable[[Path], object], problem: str
) -> None:
    if name == "report/index.html":  # a folder whose files are all gone is as in an archive
        (sealed.directory / "report" / "other.html").touch()
        sealed.seal()
    change(sealed.directory / name)
    result = sealed.verify_sealed()
    (finding,) = result["findings"]
    assert finding["file"] == name
    assert re.fullmatch(problem, finding["problem"])
    done = command("verify", sealed.directory, "--sealed", "--json")
    assert (done.returncode, json.loads(done.stdout)["findings"]) == (1, [finding])


def test_an_analysis_repeated_with_the_same_tables_is_as_sealed(sealed: Sweep) -> None:
    """Its record differs in when it was computed, and in nothing else."""
    record = read_json(sealed.paths.analysis)
    write_json(sealed.paths.analysis, record | {"analysed": "2001-01-01T00:00:00+00:00"})
    assert sealed.verify_sealed()["findings"] == []
    write_json(sealed.paths.analysis, record | {"outdated": ["cells"]})
    (finding,) = sealed.verify_sealed()["findings"]
    assert finding["file"] == "results/analysis.json"


def test_a_pipe_in_the_place_of_a_file_is_named(sealed: Sweep) -> None:
    file = sealed.directory / SHARD
    size = file.stat().st_size
    file.unlink()
    os.mkfifo(file)
    text = sealed.paths.receipt.read_text()
    sealed.paths.receipt.write_text(text.replace(f'"contentSize": "{size}"', '"contentSize": "0"'))
    (finding,) = [one for one in sealed.verify_sealed()["findings"] if one["file"] == SHARD]
    assert finding["problem"] == "is not a plain file"


def test_what_commands_rewrite_is_no_part_of_a_seal(sealed: Sweep) -> None:
    assert inside("status", sealed.directory)[0] == 0
    assert inside("answers", sealed.directory)[0] == 0
    assert inside("verify", sealed.directory)[0] == 0
    for name in ("tasks/0001/log.txt", "results/checked.json", "plan/.0001.parquet.partial"):
        (sealed.directory / name).parent.mkdir(parents=True, exist_ok=True)
        (sealed.directory / name).write_text("{}")
    code, said = inside("verify", sealed.directory, "--sealed")
    assert code == 0, said
    assert "each is as it was sealed" in said


def test_foreign_files_are_named_and_change_nothing(sealed: Sweep) -> None:
    assert sealed.verify_sealed()["foreign"] == []
    assert "no part of a sweep" not in inside("verify", sealed.directory, "--sealed")[1]
    names = ["notes.txt", "plan/0001.parquet.orig", "results/mine/table.csv", "results/x.csv"]
    for name in names:
        (sealed.directory / name).parent.mkdir(exist_ok=True)
        (sealed.directory / name).touch()
    (sealed.directory / ".hidden").touch()
    assert sealed.verify_sealed()["foreign"] == names
    code, said = inside("verify", sealed.directory, "--sealed")
    said = " ".join(said.split())
    assert code == 0
    assert "Not sealed, as no part of a sweep: 4 files (notes.txt, " in said
    assert "each is as it was sealed" in said


def test_an_archive_carries_the_receipt(sealed: Sweep, tmp_path: Path) -> None:
    archive = sealed.export(tmp_path / "all.zip")
    again = Sweep.import_predictions([archive], tmp_path / "again")
    assert again.paths.receipt.read_bytes() == sealed.paths.receipt.read_bytes()
    code, said = inside("verify", again.directory, "--sealed")
    assert code == 0, said
    assert "Not here, as in an archive: results (" in said
    flip(again.directory / SHARD)
    code, said = inside("verify", again.directory, "--sealed")
    assert code == 1
    assert f"{SHARD}: differs" in said.replace("\n", "")
    unsealed = Sweep.import_predictions([given(tmp_path)], tmp_path / "unsealed")
    archive = unsealed.export(tmp_path / "unsealed.zip")
    assert not Sweep.import_predictions([archive], tmp_path / "more").paths.receipt.exists()


def test_status_says_what_changed_since_the_seal(sealed: Sweep, tmp_path: Path) -> None:
    assert "sealed" not in inside("status", sealed.directory)[1]
    code, _ = inside("import", sealed.directory, given(tmp_path, runs=2))
    assert code == 0
    _, said = inside("status", sealed.directory)
    said = " ".join(said.split())
    assert "Since it was sealed, 6 runs are planned instead of 4, 6 runs are finished" in said
    assert {one["problem"] for one in sealed.verify_sealed()["findings"]} >= {"is new"}
    sealed.seal()
    assert "sealed" not in inside("status", sealed.directory)[1]
    assert sealed.verify_sealed()["findings"] == []
    sealed.analyze(workers=1)
    assert "it was analysed anew" in inside("status", sealed.directory)[1]


def altered(receipt: Path, change: Callable[[Any], object]) -> None:
    document = json.loads(receipt.read_text())
    change(document)
    receipt.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda one: one["@graph"].append({"@id": "../x", "@type": "File"}), "does not say what"),
        (lambda one: one["@graph"][-1].pop("@id"), "is not a receipt"),
        (lambda one: one.pop("@graph"), "is not a receipt"),
        (lambda one: one["@graph"].pop(1), "is not a receipt"),
        *(
            (
                lambda one, name=name: one["@graph"].append(
                    {"@id": name, "@type": ["File"], "contentSize": "1", "sha256": "0"}
                ),
                "which is not part of a sweep",
            )
            for name in ("../x", "/etc/passwd", "plan/../../x.json", "tasks/code/%2e%2e/x", "a.py")
        ),
    ],
)
def test_a_receipt_from_anybody_is_read_with_care(
    sealed: Sweep, change: Callable[[Any], object], problem: str
) -> None:
    altered(sealed.paths.receipt, change)
    code, said = inside("verify", sealed.directory, "--sealed")
    assert (code, problem in " ".join(said.split())) == (4, True), said


def test_a_sweep_without_receipt_or_in_training_is_refused(
    sealed: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sealed.paths.receipt.read_bytes()

    class Training:
        folder = "tasks/0001"

    monkeypatch.setattr(upkeep, "running", lambda _: [Training])
    code, said = inside("seal", sealed.directory)
    assert (code, "is being trained" in said) == (2, True)
    assert sealed.paths.receipt.read_bytes() == before
    sealed.paths.receipt.unlink()
    code, said = inside("verify", sealed.directory, "--sealed")
    assert (code, "manyseed seal" in said) == (2, True)
