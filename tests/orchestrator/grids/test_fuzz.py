"""Sweep files that were changed at random: planned, or refused with one message; never a fault."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import pytest

from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.grids.loading import parse_sweep_file
from tests.orchestrator.conftest import inside

WHOLE = """
name = "whole"
seed = 1
repeats = 2
runs = 3

[keep]
scores = "margin"
dtype = "float16"
curves = true

[tune]
draws = 10

[analysis]
metrics = ["mine:f"]
resamples = 100
epsilon = 0.01
max_references = 100
clip = 15
ece_bins = 15
max_pair_runs = 200

[[grid]]
dataset = ["cancer", "sklearn:digits"]
classifier = ["lr-sgd", "own"]
train_fraction = [0.5, 1.0]
perturb_continuous = ["none", "neighbour:0.5"]
perturb_hparams = ["none", "sig-digit:3"]
vary = ["init+batch", "init"]
exclude = [{ dataset = "cancer", train_fraction = 0.5 }]

[[grid]]
dataset = ["made"]
classifier = ["xgb"]
train_fraction = [100]
zip = []
repeats = 3
runs = 4

[dataset.cancer]
source = "sklearn:breast_cancer"
test = 0.25

[dataset.made]
source = "synthetic:gaussian"
n_samples = 500
n_features = 12
n_informative = 10
n_categorical = 2
n_labels = 4
n_classes = 3
separation = 2.0
weights = [1, 2, 3]
flip = 0.1
seed = 3
test = 100

[classifier.own]
kind = "mlp"
epochs = 2
snapshots = [1, 2]
hparams = { width1 = 64, lr = 1e-3 }
"""

VALUES = (
    *("0", "1", "-1", "2", "255", "256", "65535", "65536", "2147483647", "2147483648"),
    *("4294967296", "9223372036854775807", "9223372036854775808", "-9223372036854775808"),
    *("1" + "0" * 30, "1" * 5000, "0x" + "f" * 40, "0.0", "-0.0", "1e-320", "1e308", "1e999"),
    *("inf", "-inf", "nan", "true", '""', '"x"', '"\\u0000"', '"[/]"', '"é"', '"../x"', "[]"),
    *("[1]", "[[]]", "{}", "{ a = 1 }", "1979-05-27", "07:32:00", '"none"', '"a:b:c"', '"🙂"'),
    '"' + "a" * 3000 + '"',
)

BIG = 10**30


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (("seed = 1\n", f"seed = {BIG}\n"), "seed = "),
        (("repeats = 2", f"repeats = {BIG}"), "repeats = "),
        (("[0.5, 1.0]\nperturb_c", f"[{BIG}]\nperturb_c"), r"grid\[0\]\.train_fraction\[0\]"),
        (("train_fraction = 0.5 }", f"train_fraction = {BIG} }}"), r"exclude\[0\]\.train_fraction"),
        (("n_samples = 500", f"n_samples = {BIG}"), r"dataset\.made\.n_samples"),
        (("n_samples = 500", f"n_samples = {2**62}"), r"dataset\.made\.n_samples"),
        (("n_features = 12", f"n_features = {2**40}"), r"dataset\.made\.n_features"),
        (("weights = [1, 2, 3]", f"weights = [1, 2, {BIG}]"), r"dataset\.made\.weights\[2\]"),
        (("seed = 3", f"seed = {BIG}"), r"dataset\.made\.seed"),
        (("test = 100", f"test = {2**40}"), r"dataset\.made\.test"),
        (("epochs = 2", f"epochs = {2**40}"), r"classifier\.own\.epochs"),
        (("snapshots = [1, 2]", f"snapshots = [{BIG}]"), r"classifier\.own\.snapshots\[0\]"),
        (("width1 = 64", f"width1 = {BIG}"), r"classifier\.own\.hparams\.width1"),
        (("resamples = 100", f"resamples = {2**40}"), r"analysis\.resamples"),
        (("max_references = 100", f"max_references = {2**40}"), r"analysis\.max_references"),
        (("ece_bins = 15", f"ece_bins = {2**40}"), r"analysis\.ece_bins"),
        (("clip = 15", "clip = inf"), r"analysis\.clip = inf: must be a number above 0"),
        (("[dataset.cancer]", '[dataset."a\\u001bb"]'), r'dataset\."a\\u001bb".*control'),
        (("seed = 1\n", "seed = 1" + "0" * 5000 + "\n"), "not valid TOML"),
        (("seed = 1\n", f"seed = 1\nx = {'[' * 5000}{']' * 5000}\n"), "not valid TOML"),
    ],
)
def test_every_number_has_a_bound_that_is_told(
    tmp_path: Path, change: tuple[str, str], key: str
) -> None:
    assert change[0] in WHOLE
    file = tmp_path / "sweep.toml"
    file.write_text(WHOLE.replace(*change, 1))
    code, told = inside("plan", file, "--dry-run", "--out", tmp_path / "sweep")
    assert code == 2, told
    assert re.search(key, told.replace("\n", " ")), told
    assert len(told) < 6000


def test_a_value_is_shown_as_it_is_written_in_a_file() -> None:
    for name in ('a"b', "a\\b", "a\nb", "a\x7fb", "é"):
        error = UserError("is wrong", key="x", value=name)
        parse = f"name = 'x'\nseed = {str(error).split(' = ')[1].split(': is')[0]}\n"
        with pytest.raises(UserError, match=r"seed = .*: must be a whole number"):
            parse_sweep_file(parse, Path("x.toml"))


def mutated(dice: random.Random) -> str:
    """Change values, take lines out, double them, and flip letters."""
    lines = WHOLE.splitlines()
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        at = dice.randrange(len(lines))
        form = dice.randrange(10)
        if form < 6 and "=" in lines[at]:
            key, _, value = lines[at].partition("=")
            values = dice.choice(VALUES)
            if value.strip().startswith("[") and dice.random() < 0.7:
                values = f"[{values}]"
            lines[at] = f"{key}= {values}"
        elif form == 6:
            del lines[at]
        elif form == 7:
            lines.insert(dice.randrange(len(lines)), lines[at])
        elif form == 8:
            lines[at] = lines[at].replace(dice.choice("=[]\"'.:"), dice.choice("=[]\"'.:\x00é"))
        elif lines[at]:
            place = dice.randrange(len(lines[at]))
            letter = chr(ord(lines[at][place]) ^ 1 << dice.randrange(7))
            lines[at] = lines[at][:place] + letter + lines[at][place + 1 :]
    return "\n".join(lines)


def fuzz(folder: Path, seed: int, count: int) -> int:
    """Plan so many files; return how many could be planned."""
    dice, planned, file = random.Random(seed), 0, folder / "sweep.toml"
    for number in range(count):
        file.write_text(mutated(dice))
        began = time.process_time()
        code, told = inside("plan", file, "--dry-run", "--out", folder / "sweep")
        assert code in (0, 2), (number, told)
        assert time.process_time() - began < 20, number
        assert [path.name for path in folder.iterdir()] == ["sweep.toml"]
        planned += code == 0
    return planned


def test_a_changed_file_is_planned_or_refused(tmp_path: Path) -> None:
    assert 2 < fuzz(tmp_path, 0, 25) < 23


@pytest.mark.slow
def test_many_changed_files_are_planned_or_refused(tmp_path: Path) -> None:
    assert fuzz(tmp_path, 1, 250) > 25
