"""Hostile bytes: what every verb makes of damaged files, odd texts and wrong conditions."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from manyseed import Sweep
from manyseed.analysis.options import Options
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.grids.loading import parse_sweep_file
from tests.here import call
from tests.orchestrator.conftest import inside
from tests.orchestrator.hostile import (
    PROFILE,
    SWEEP,
    Campaign,
    predicted,
)

SMALL = SWEEP.replace("tune    = { draws = 2 }\n", "").replace(', "tuned"', "")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "h.toml").write_text(SMALL)
    sweep = Sweep.plan(folder / "h.toml", folder / "trained")
    sweep.submit(cluster="local", workers=1)
    sweep.wait()
    sweep.analyze(Options(resamples=10))
    return sweep.directory


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "copy", symlinks=True))


@pytest.fixture
def imported(tmp_path: Path) -> Path:
    return Sweep.from_predictions(
        predicted(), tmp_path / "imported", dataset="d", classifier="c"
    ).directory


def test_a_condition_of_another_type_is_refused_alike_by_reruns_and_queries(copied: Path) -> None:
    for words in (
        ("query", copied, "-t", "runs", "-w"),
        ("rerun", copied, "--save", "m", "--where"),
    ):
        for condition in ("run_index", "classifier > 1"):
            code, said = inside(*words, condition)
            assert (code, "not a condition" in said) == (2, True), said


def test_damage_of_a_table_is_no_fault_of_the_condition(copied: Path) -> None:
    file = copied / "results" / "runs.parquet"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    code, said = inside("query", copied, "-t", "runs", "-w", "run_index = 1")
    assert (code, "runs.parquet" in said, "condition" in said) == (4, True, False), said


def test_an_ensemble_that_cannot_be_drawn_any_more_leaves_no_mark(copied: Path) -> None:
    assert inside("howmany", copied, "--sizes", "1,2", "--draws", 10)[0] == 0
    assert inside("howmany", copied)[0] == 0
    figure = copied.parent / "figure.svg"
    for words, code in (
        *((("report",), 0), (("query",), 0), (("query", "-t", "ensembles"), 2)),
        (("plot", "accuracy", "-o", figure), 0),
    ):
        verb, *more = words
        found, said = inside(verb, copied, *more)
        assert found == code, said


FOREIGN = (".nfs0000227", ".DS_Store", "._zarr.json", "Thumbs.db", "zarr.json~", "desktop.ini")


def test_files_of_other_programs_in_every_folder_do_no_harm(copied: Path, tmp_path: Path) -> None:
    for folder in [copied, *(one for one in copied.rglob("*") if one.is_dir())]:
        for name in FOREIGN:
            (folder / name).write_bytes(b"\0junk")
        (folder / "@eaDir").mkdir()
        (folder / "@eaDir" / "zarr.json@SynoEAStream").write_bytes(b"junk")
    archive, back = tmp_path / "a.zip", tmp_path / "back"
    for words in (
        *(("status", copied), ("query", copied), ("verify", copied), ("compact", copied)),
        *(("analyze", copied, "--resamples", 10), ("resume", copied), ("verify", copied)),
        *(("report", copied), ("seal", copied), ("verify", copied, "--sealed")),
        ("plan", copied / "sweep.toml", "--out", copied),
        *(("export", copied, "--output", archive), ("import", archive, "--out", back)),
        *(("verify", back), ("analyze", back, "--resamples", 10)),
    ):
        code, said = inside(*words)
        names = [one for one in FOREIGN if words[-1] != "--sealed" or not one.endswith("~")]
        wrong = [one for one in ("not recognized", "Warning", *names) if one in said]
        assert (code, wrong) == (0, []), f"{words}: {said}"


def test_a_copy_without_hidden_names_is_whole(copied: Path, tmp_path: Path) -> None:
    """As `cp sweep/* there` makes it, and programs that upload folders."""
    copy = shutil.copytree(copied, tmp_path / "there", ignore=shutil.ignore_patterns(".*"))
    for verb in ("status", "query", "verify", "analyze", "resume"):
        code, said = inside(verb, copy, *(("--resamples", 10) if verb == "analyze" else ()))
        assert code == 0, said


def test_a_lost_search_is_told_by_all_with_the_command_that_repeats_it(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(SWEEP.replace('["default", "tuned"]', '["tuned"]'))
    sweep = Sweep.plan(tmp_path / "t.toml", tmp_path / "t")
    sweep.tune(workers=1)
    sweep.submit(cluster="local", workers=1)
    sweep.wait()
    lost, *_ = sorted(sweep.paths.all_tuned())
    for file in sweep.paths.all_tuned():
        file.unlink()
    respond = ("--transforms", "intra", "--rows", 5, "--workers", 1)
    for verb, *more in (("respond", *respond), ("rerun", "0:0:0", "--check"), ("show", "0:0:0")):
        code, said = inside(verb, sweep.directory, *more)
        assert (code, f"{lost.parent}" in said) == (4, True), said
        assert f"with: manyseed plan {sweep.directory} --tune" in said


@pytest.mark.parametrize("name", ["train", "estimator", "module", "command"])
def test_a_classifier_named_like_a_key_is_unknown(tmp_path: Path, name: str) -> None:
    (tmp_path / "f.toml").write_text(SMALL.replace('"lr-sgd"', f'"{name}"'))
    code, said = inside("plan", tmp_path / "f.toml", "--dry-run")
    assert (code, f'"{name}": unknown classifier' in said) == (2, True), said


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"class_names": np.array(["", "b", "c"])}, 'class_names = ""'),
        ({"test_index": np.zeros(30, int)}, "names the point 0 twice in repeat 0"),
    ],
)
def test_what_the_store_refuses_is_not_imported(
    tmp_path: Path, changed: dict[str, np.ndarray], told: str
) -> None:
    dice = np.random.default_rng(1)
    arrays = {"scores": dice.normal(size=(4, 30, 3)), "y_true": dice.integers(0, 3, 30)}
    np.savez(tmp_path / "a.npz", **{**arrays, **changed})
    code, said = inside("import", tmp_path / "a.npz", "--out", tmp_path / "a")
    assert (code, "a.npz" in said, told in " ".join(said.split())) == (2, True, True), said
    assert not (tmp_path / "a").exists()


def test_a_place_behind_the_end_of_a_file_is_damage_not_a_full_disk(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", scores=np.zeros((4, 30, 3)), y_true=np.zeros(30, int))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[-4] = 0xD1  # of the directory's place
    (tmp_path / "a.npz").write_bytes(content)
    code, said = inside("import", tmp_path / "a.npz", "--out", tmp_path / "a")
    assert (code, "a.npz" in said, "make room" in said) == (2, True, False), said


@pytest.mark.filterwarnings("error")
def test_scores_at_the_limit_of_their_type_are_analysed(tmp_path: Path) -> None:
    scores = np.random.default_rng(1).normal(size=(4, 30, 3)).astype(np.float32)
    scores[1, 2] = (-3e38, 3e38, 0)
    y_true = np.arange(30) % 3
    sweep = Sweep.from_predictions({"scores": scores, "y_true": y_true}, tmp_path / "a")
    sweep.analyze(Options(resamples=10))


def test_nested_settings_are_refused(tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text(SMALL)
    for setting in (
        "runs=" + "[" * 3000,
        "runs=" + "[" * 3000 + "]" * 3000,
        "x" + ".a" * 3000 + "=1",
    ):
        code, said = inside("plan", tmp_path / "f.toml", "-n", "--set", setting)
        assert code == 2, said
    with pytest.raises(UserError, match="nested too deeply"):
        parse_sweep_file("a" + ".a" * 100 + " = 1", Path("f.toml"))


def test_a_lost_group_is_told_by_all_and_trained_again_after_a_repair(copied: Path) -> None:
    shutil.rmtree(copied / "predictions.zarr/g/lr-sgd")
    for words, code in (("status", 3), ("verify", 1), ("analyze", 4)):
        found, said = inside(words, copied)
        assert (found, "g/lr-sgd" in said, "is lost, with all its runs" in said) == (
            *(code, True, True),
        ), said
    code, said = inside("verify", copied, "--repair")
    assert (code, "8 set back to be trained again" in said) == (0, True), said
    assert inside("verify", copied)[0] == 0
    assert Sweep(copied).status()["runs"]["missing"] == 8


def test_a_lost_store_of_one_group_is_known_from_the_submission(copied: Path) -> None:
    shutil.rmtree(copied / "predictions.zarr")
    code, said = inside("verify", copied)
    assert (code, said.count("is lost, with all its runs")) == (1, 2), said


def test_a_planned_group_that_was_never_laid_out_is_not_lost(copied: Path) -> None:
    file = copied / "sweep.toml"
    more = '[dataset.e]\nsource = "synthetic:gaussian"\nn_samples = 80\n'
    file.write_text(file.read_text().replace('["g"]', '["g", "e"]') + more)
    code, said = inside("plan", file, "--out", copied)
    assert code == 0, said
    code, said = inside("verify", copied)
    assert (code, "nothing is wrong" in said) == (0, True), said


def test_a_lost_group_of_an_import_is_told_with_what_brings_it_back(imported: Path) -> None:
    shutil.rmtree(imported / "predictions.zarr/d/c")
    for verb, code in (("status", 3), ("verify", 1), ("analyze", 4), ("verify --repair", 1)):
        words, *more = verb.split()
        found, said = inside(words, imported, *more)
        assert (found, "is lost" in said, "submit" in said) == (code, True, False), said


@pytest.mark.parametrize("shape", ["x", None, [], ["x"], [None], [-1], [True]])
def test_lengths_that_are_no_numbers_are_found_and_repaired(imported: Path, shape: object) -> None:
    file = imported / "predictions.zarr/d/c/repeat_index/zarr.json"
    document = json.loads(file.read_text())
    document["shape"] = shape
    file.write_text(json.dumps(document))
    assert [inside("verify", imported, *more)[0] for more in ([], ["--repair"], [])] == [1, 0, 0]


def test_a_damaged_description_of_a_store_is_told_when_a_plan_has_grown(copied: Path) -> None:
    file = copied / "sweep.toml"
    file.write_text(re.sub(r"repeats( *)= 2", "repeats = 3", file.read_text()))
    assert inside("plan", file, "--out", copied)[0] == 0
    (copied / "predictions.zarr/zarr.json").write_text("[1]")
    submit = ("submit", copied, "--cluster", "local", "--workers", "1")
    code, said = inside(*submit)
    told = "predictions.zarr/zarr.json" in "".join(said.split())
    assert (code, told, "verify --repair" in said) == (4, True, True), said
    assert inside("verify", copied, "--repair")[0] == 0
    assert inside(*submit)[0] == 0
    assert Sweep(copied).status()["runs"]["missing"] == 0


def test_a_profile_that_is_no_text_is_refused_by_name(copied: Path, tmp_path: Path) -> None:
    profile = tmp_path / "p.toml"
    for content, told in (
        (b"# caf\xe9\n" + PROFILE.encode(), "is not UTF-8 text"),
        (b"a" + b".a" * 3000 + b" = 1\n", "is nested too deeply"),
        (b"a = " + b"[" * 3000, "not a TOML file"),
        (PROFILE.encode() + b"slurm-conf = 3\n", "slurm-conf = 3"),
        (PROFILE.replace("4\n", '"\u00b2"\n').encode(), "cpus-per-task"),
        (PROFILE.replace("1:00:00", "9" * 5000).encode(), "cpu.time"),
    ):
        profile.write_bytes(content)
        code, said = inside("submit", copied, "--cluster", profile)
        assert (code, "p.toml" in said, told in said) == (2, True, True), said


def test_words_that_are_no_text_are_refused_before_a_library_meets_them(copied: Path) -> None:
    for verb, *more in (("seal", "--terms"), ("plot",), ("query", "-t"), ("query", "--by")):
        code, said = inside(verb, copied, *more, "x\udcff")
        assert (code, "is not UTF-8 text" in said) == (2, True), said
        assert (more[0] if more else "") in said.replace("--table", "-t")
    assert not (copied / "ro-crate-metadata.json").exists()


def test_the_campaign_knows_what_misbehaves(tmp_path: Path) -> None:
    campaign = object.__new__(Campaign)
    campaign.folder, campaign.found = tmp_path, []
    campaign.tell("nothing", "--version", codes=(0,))
    assert campaign.found == []
    campaign.tell("nothing", "--version", codes=(2,))
    assert [one.code for one in campaign.found] == [0]
    assert call("--version").returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1])
def test_nothing_hostile_ends_in_a_traceback(tmp_path: Path, seed: int) -> None:
    campaign, dice = Campaign(tmp_path), random.Random(seed)
    campaign.fixed(dice)
    for _ in range(150):
        campaign.damage_one(dice)
        campaign.import_one(dice)
    assert not campaign.found, "\n\n".join(map(str, campaign.found))
