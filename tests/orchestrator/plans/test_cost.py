"""What a plan estimates: hours, bytes, files."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from manyseed.jobs import classifiers, datasets
from manyseed.jobs.ensembling.methods import resolve
from manyseed.orchestrator.cli import main
from manyseed.orchestrator.errors import UnavailableError, UserError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans import cost
from manyseed.orchestrator.plans.change import estimate_and_outcome, remarks
from manyseed.orchestrator.plans.cost import GPU_SPEEDUP, OBSERVED, estimate
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.planning import plan_change, plan_sweep
from manyseed.orchestrator.store.arrays import DONE, MISSING
from manyseed.orchestrator.submissions import requirements
from manyseed.orchestrator.submissions.requirements import require_space
from manyseed.orchestrator.survey import survey

TEXT = """
name = "cost"
seed = 1
repeats = 2
runs = 5
[[grid]]
dataset = ["vehicle", "kc1"]
classifier = ["xgb", "mlp"]
train_fraction = [0.5, 1.0]
"""
NOTHING = pl.DataFrame(schema=OBSERVED)


@pytest.fixture
def change(tmp_path):
    (tmp_path / "s.toml").write_text(TEXT)
    return plan_change(tmp_path / "s.toml", tmp_path / "out")


def disk(**figures):
    room_for_all = {"f_bavail": 10**9, "f_frsize": 1000, "f_files": 10**9, "f_favail": 10**9}
    return SimpleNamespace(**room_for_all | figures)


def priced(change, observed=NOTHING):
    return estimate(change.cells, 100, observed)


def info(name, dataset, **options):
    return classifiers.resolve(name, options, dataset)


def whole(dataset, name, **options):
    """Seconds of a fit on the whole training part."""
    return classifiers.core_seconds(dataset, info(name, dataset, **options), dataset.n_train)


@pytest.mark.parametrize("name", ["lr-sgd", "svm-sgd", "xgb", "mlp"])
def test_times_grow_with_rows_and_with_classes(name):
    def shape(rows, **options):
        return datasets.resolve("synthetic:gaussian", n_samples=rows + 200, test=200, **options)

    for times in (
        [whole(shape(rows), name) for rows in (100, 634, 10_000, 190_000, 400_000)],
        [whole(shape(1000, n_classes=n), name) for n in (2, 3, 10)],
    ):
        assert times == sorted(times)
        assert times[0] < times[-1]


@pytest.mark.parametrize(
    ("name", "highest", "slow"),
    [
        ("lr-sgd", 42.3, 2712),
        ("svm-sgd", 25.1, 1920),
        ("xgb", 59.3, None),
        ("mlp", 216, None),
    ],
)
def test_the_model_meets_the_studys_table(name, highest, slow):
    """MV, Runtime considerations: 95th percentile over its sets, and the mean of the slow two.

    Within a factor of 2.2: another machine, another implementation.
    """
    times = {
        dataset: whole(datasets.resolve(dataset), name)
        for dataset in datasets.suite("model-variance-37")
    }
    slowest = [times.pop(dataset) for dataset in ("aloi", "dionis")]
    assert 1 / 2.2 < np.percentile(list(times.values()), 95) / highest < 2.2
    assert slow is None or 1 / 2.2 < np.mean(slowest) / slow < 2.2


@pytest.mark.parametrize(
    ("name", "options"),
    [
        (name, {})
        for name in ("mlp", "cnn", "convnet", "resnet", "preresnet", "vit", "vit-transfer")
    ],
)
def test_epochs_count(name, options, tmp_path, monkeypatch):
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path))
    if name == "vit-transfer":
        (tmp_path / "weights.pth").write_bytes(b"the digest is what a plan needs")
        options = {"weights": str(tmp_path / "weights.pth")}
    source = "torchvision:CIFAR10" if name == "vit-transfer" else "sklearn:digits"
    dataset = datasets.resolve(source)
    few, many = (whole(dataset, name, epochs=n, **options) for n in (2, 20))
    assert many == pytest.approx(10 * few, rel=0.05)


@pytest.mark.parametrize(
    ("widths", "batch", "rows", "measured"),
    [
        ((64, 64), 32, 225, 1.20),
        ((64, 32), 128, 898, 1.56),
        ((64, 64), 256, 898, 2.38),
        ((128, 128), 32, 898, 1.89),
        ((256, 128), 32, 898, 2.82),
        ((512, 256), 64, 427, 7.70),
    ],
)
def test_an_mlp_is_priced_by_steps_and_by_its_widths(widths, batch, rows, measured):
    """Within a fourth of the CPU time of a step of SGD on digits, in milliseconds."""
    digits = datasets.resolve("sklearn:digits")
    hparams = dict(zip(("width1", "width2"), widths, strict=True))
    given = info("mlp", digits, batch_size=batch, epochs=100, hparams=hparams)
    found = classifiers.core_seconds(digits, given, rows) / 100 / (rows / batch)
    assert found * 1e3 == pytest.approx(measured, rel=0.25)


@pytest.mark.parametrize(
    ("method", "options", "measured"),
    [
        (None, {}, 0.2),
        ("snapshot", {"cycle": 10, "lr": 0.1, "batch_size": 32}, 3.7),
        ("csgld", {"cycle": 10, "lr": 0.1, "batch_size": 32}, 1.3),
        ("fge", {"pretrain": 30, "cycle": 2}, 1.0),
        ("swag", {"pretrain": 30, "epochs": 60}, 0.7),
        ("dropout", {}, 0.4),
    ],
)
def test_the_digits_study_is_priced_as_it_was_recorded(method, options, measured):
    """`fit_seconds` that docs/uncertainty.md states, of 50 members each, within a half."""
    digits = datasets.resolve("sklearn:digits", test=0.875)
    hparams = {"lr": 0.05, "weight_decay": 5e-4, "width1": 64, "width2": 64}
    own = {"optimizer": "sgd", "epochs": 30, "batch_size": 32, "hparams": hparams}
    ensembling = None if method is None else resolve(method, {"members": 50, **options})
    model = info("mlp", digits, **own)
    found = classifiers.core_seconds(digits, model, digits.n_train, ensembling=ensembling)
    assert 1 / 1.5 < found / measured < 1.5


@pytest.mark.parametrize(
    ("source", "options", "rows", "measured"),
    [
        ("torchvision:CIFAR10", {"epochs": 3}, 4096, 60 / 12.7),  # benchmarks/README.md
        ("sklearn:digits", {"epochs": 3}, 1348, 0.148),  # the quickest of 20
        ("sklearn:digits", {"epochs": 2}, 719, 0.056),  # of 72
    ],
)
def test_a_cnn_is_priced_as_it_was_recorded(source, options, rows, measured):
    """Within a fourth of the seconds of a fit."""
    images = datasets.resolve(source)
    found = classifiers.core_seconds(images, info("cnn", images, **options), rows)
    assert found == pytest.approx(measured, rel=0.25)


def test_the_study_on_images_is_priced_as_it_was_recorded():
    """2 h 15 min of training in docs/fashion.md, within three tenths."""
    tops = ["T-shirt/top", "Pullover", "Coat", "Shirt"]
    classes = {"tops": tops, "others": ["Dress", "Trouser", "Bag", "Sneaker"]}
    images = datasets.resolve(
        "torchvision:FashionMNIST", classes=classes, positive="tops", test="official"
    )
    fits = {"cnn": 600, "mlp": 60, "vit": 10, "xgb": 10, "lr-sgd": 10}
    options = {"cnn": {"epochs": 2}, "mlp": {"epochs": 2}, "vit": {"epochs": 1}}
    found = sum(
        n * classifiers.core_seconds(images, info(name, images, **options.get(name, {})), 48_000)
        for name, n in fits.items()
    )
    assert found == pytest.approx(135 * 60, rel=0.3)


def test_the_batch_of_a_cnn_is_in_its_price():
    digits = datasets.resolve("sklearn:digits")
    small, large = (whole(digits, "cnn", hparams={"batch": n}) for n in (16, 128))
    assert 3 < small / large < 8


@pytest.mark.parametrize(
    ("hparams", "measured"),
    [
        ({"depth": 1, "width": 8}, 25.1),
        ({"depth": 3, "width": 16, "batch_norm": True}, 67.7),
        ({"depth": 8, "width": 16}, 125.3),
        ({"depth": 2, "width": 16, "batch": 128}, 23.7),
    ],
)
def test_a_convnet_is_priced_by_its_shape(hparams, measured):
    """Within a fourth of the CPU time of a row and epoch of digits, in microseconds."""
    digits = datasets.resolve("sklearn:digits")
    found = whole(digits, "convnet", hparams=hparams, epochs=100) / 100 / digits.n_train
    assert found * 1e6 == pytest.approx(measured, rel=0.25)


@pytest.mark.parametrize(
    ("name", "hparams", "measured"),
    [
        ("vgg", {"batch": 64}, 13.5e-3),
        ("vgg", {"depth": 11, "width": 8}, 0.248e-3),
        ("resnet", {"batch": 32}, 22.5e-3),
        ("resnet", {"depth": 50, "width": 16, "batch": 64}, 6.3e-3),
        ("preresnet", {"batch": 32}, 18.0e-3),
        ("preresnet", {"depth": 20, "bottleneck": False}, 2.02e-3),
        ("wide-resnet", {"batch": 16}, 192e-3),
        ("wide-resnet", {"depth": 16, "width": 4, "batch": 64}, 13.4e-3),
    ],
)
def test_deep_networks_are_priced_by_their_layers(name, hparams, measured):
    """Within a fourth of the CPU time of a row of CIFAR-10 and epoch, in seconds."""
    cifar = datasets.resolve("torchvision:CIFAR10", test="official")
    found = whole(cifar, name, hparams=hparams, epochs=10) / 10 / cifar.n_train
    assert found == pytest.approx(measured, rel=0.25)


def test_every_cell_has_seconds_on_the_device_that_is_asked_for(tmp_path):
    file = tmp_path / "s.toml"
    file.write_text(TEXT)
    on_cpu = plan_sweep(file, tmp_path / "out").after
    file.write_text(TEXT + '[classifier.mlp]\ndevice = "gpu"\n')
    assert plan_sweep(file, tmp_path / "out").is_empty  # it may change
    plan = Plan.read(SweepPaths(tmp_path / "out"))
    for table, factor in ((cost.seconds(on_cpu), 1), (cost.seconds(plan), GPU_SPEEDUP)):
        assert table.columns == ["cell", "seconds", "device"]
        rows = plan.cells.join(table, on="cell", suffix="_asked").iter_rows(named=True)
        for row in rows:
            dataset = datasets.resolve(row["dataset"])
            rows_used = row["train_fraction"] * dataset.n_train
            expected = classifiers.core_seconds(
                dataset, info(row["classifier"], dataset), rows_used
            )
            if row["classifier"] == "mlp":
                expected /= factor
            assert row["seconds"] == pytest.approx(expected)
            assert row["device_asked"] == (
                "gpu" if row["classifier"] == "mlp" and factor > 1 else "cpu"
            )


def test_fits_that_no_job_can_end_are_named_unless_they_save_themselves(tmp_path):
    (tmp_path / "s.toml").write_text(
        'name = "slow"\nseed = 1\n[[grid]]\ndataset = ["dionis", "vehicle"]\n'
        'classifier = ["lr-sgd", "svm-sgd", "mlp"]\ntrain_fraction = [0.25, 1.0]\n'
    )
    plan = plan_change(tmp_path / "s.toml", tmp_path / "out").after
    dionis = datasets.resolve("dionis")
    hours = whole(dionis, "lr-sgd") / 3600
    found = cost.beyond(plan, 0.3)
    assert found.rows() == [
        ("lr-sgd", "dionis", pytest.approx(hours)),
        ("svm-sgd", "dionis", pytest.approx(whole(dionis, "svm-sgd") / 3600)),
    ]
    assert cost.beyond(plan, hours).is_empty()
    epoch = whole(dionis, "mlp") / 20 / 3600
    for walltime, named in ((1.01 * epoch, []), (0.99 * epoch, [pytest.approx(epoch)])):
        found = cost.beyond(plan, walltime)
        assert found.filter(classifier="mlp", dataset="dionis")["hours"].to_list() == named


def test_hours_are_fits_times_seconds_and_identical_runs_are_not_fitted(change):
    table = {(r["dataset"], r["classifier"]): r for r in priced(change).iter_rows(named=True)}

    def fit(classifier, share):
        model = change.expansion.classifiers[classifier, "vehicle"]
        return classifiers.core_seconds(vehicle, model, share * vehicle.n_train) / 3600

    vehicle = change.expansion.datasets["vehicle"]
    mlp = table["vehicle", "mlp"]
    assert mlp["fits"] == 20
    assert mlp["core_hours"] == pytest.approx(10 * fit("mlp", 1) + 10 * fit("mlp", 0.5))
    assert mlp["gpu_hours"] == 0
    assert mlp["longest_seconds"] == pytest.approx(fit("mlp", 1) * 3600)
    xgb = table["vehicle", "xgb"]
    assert xgb["fits"] == 10 + 2  # at 100 % one of each repeat's five
    assert xgb["core_hours"] == pytest.approx(2 * fit("xgb", 1) + 10 * fit("xgb", 0.5))


def test_features_are_priced_once_for_a_dataset_and_for_perturbed_rows(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "data"))
    (tmp_path / "weights.pth").write_bytes(b"the digest is what a plan needs")
    head = 'name = "f"\nseed = 1\nrepeats = 2\nruns = 3\n[[grid]]\ndataset = ["sklearn:digits"]\n'
    tables = "".join(
        f'[classifier.{name}]\nkind = "vit-transfer"\nweights = "{tmp_path}/weights.pth"\n'
        f"epochs = {epochs}\n"
        for name, epochs in (("one", 1), ("two", 2))
    )
    digits, each = datasets.resolve("sklearn:digits"), 0.18 / 3600
    classifier = 'classifier = ["one", "two"]\ntrain_fraction = [0.5]\n'

    def summary(text):
        (tmp_path / "s.toml").write_text(head + text)
        return plan_change(tmp_path / "s.toml", tmp_path / "out").summary()

    shared = summary(classifier + tables)
    assert shared["feature_hours"] == pytest.approx(digits.n_samples * each)
    fits = sum(group["fits"] * group["fit_seconds"] for group in shared["by_group"]) / 3600
    assert shared["core_hours"] == pytest.approx(fits + shared["feature_hours"])
    noisy = summary(classifier + 'perturb_continuous = ["none", "relative:0.1"]\n' + tables)
    rows = 2 * 2 * 3 * digits.n_train / 2  # classifiers, repeats, runs
    assert noisy["feature_hours"] == pytest.approx((digits.n_samples + rows) * each)
    on_gpu = summary(classifier + tables.replace("epochs", 'device = "gpu"\nepochs'))
    assert on_gpu["feature_hours"] == pytest.approx(shared["feature_hours"] / GPU_SPEEDUP)
    assert on_gpu["core_hours"] == 0
    plan_sweep(tmp_path / "s.toml", tmp_path / "out")
    estimated, _ = estimate_and_outcome(SweepPaths(tmp_path / "out"))["hours"]
    assert estimated == pytest.approx(on_gpu["gpu_hours"] - on_gpu["feature_hours"])


def test_what_ran_corrects_its_own_pair_and_the_classifier_elsewhere(change):
    before = priced(change)
    cell = change.cells.filter(
        (pl.col("dataset") == "vehicle")
        & (pl.col("classifier") == "mlp")
        & (pl.col("train_fraction") == 0.5)
    )["cell"][0]
    [expected] = cost.seconds(change.after).filter(cell=cell)["seconds"]
    observed = pl.DataFrame(
        {"cell": [cell], "n": [4], "observed": [4 * 3 * expected], "squares": [0.0]},
        schema=NOTHING.schema,
    )
    ratio = priced(change, observed)["core_hours"] / before["core_hours"]
    by_classifier = dict(zip(before["classifier"], ratio, strict=True))
    assert by_classifier["mlp"] == pytest.approx(3)
    assert by_classifier["xgb"] == pytest.approx(1)


def test_tuned_hparams_add_a_search_for_each_pair(tmp_path):
    (tmp_path / "s.toml").write_text(TEXT + 'hparams = ["default", "tuned"]\n[tune]\ndraws = 100\n')
    change = plan_change(tmp_path / "s.toml", tmp_path / "out")
    assert change.summary()["searches"] == 4
    fits = change.cost["fits"].to_list()
    assert fits == [12 + 20 + 100, 20 + 20 + 100] * 2


@pytest.mark.parametrize(("hours", "fits"), [(1000, 100), (1e-9, 1)])
def test_a_search_is_priced_by_its_draws_or_its_hours(hours, fits, tmp_path):
    further = 'hparams = ["default", "tuned"]\n'
    table = f'[tune]\ndata = "runs"\nhours = {hours}\n'
    (tmp_path / "s.toml").write_text(TEXT + further + table)
    change = plan_change(tmp_path / "s.toml", tmp_path / "out")
    assert change.summary()["searches"] == 8
    assert change.cost["fits"].to_list() == [12 + 20 + 2 * fits, 20 + 20 + 2 * fits] * 2
    assert any(f"100 draws, or {hours:g} hours of fits, each" in one for one in remarks(change))


def test_json_has_the_figures_that_are_documented(change):
    summary = change.summary()
    for key in (
        "runs",
        "cells",
        "shards",
        "core_hours",
        "gpu_hours",
        "store_bytes",
        "store_files",
    ):
        assert summary[key] >= 0
    assert summary["core_hours"] == pytest.approx(sum(g["core_hours"] for g in summary["by_group"]))
    json.dumps(summary)


@pytest.mark.parametrize("free", [10**12, 4 * 10**6, 1000])
def test_a_plan_that_the_disk_cannot_hold_is_refused_with_figures(free, tmp_path, monkeypatch):
    file = tmp_path / "s.toml"
    file.write_text(TEXT + '[keep]\nscores = "all"\n')
    monkeypatch.setattr(cost.os, "statvfs", lambda _: disk(f_bavail=free // 1000))
    if free == 10**12:
        plan_sweep(file, tmp_path / "out")
        return
    with pytest.raises(UserError) as error:
        plan_sweep(file, tmp_path / "out")
    for part in (str(file), "its predictions need", "1.0 kB free" if free == 1000 else "MB free"):
        assert part in str(error.value)
    assert str(error.value).count("--out") == 1
    # what does not fit either is no advice
    for less in ('\n    keep.scores = "margin" needs', "\n    both of them need"):
        assert (less in str(error.value)) == (free > 1000)
    assert [path.name for path in tmp_path.iterdir()] == ["s.toml"]


@pytest.mark.parametrize("planned", [0, 500])
def test_what_is_new_is_told_by_its_parts(planned, tmp_path, monkeypatch):
    """Scores are float32 of each class and test point; labels a few bits of each test point."""
    file = tmp_path / "s.toml"
    for runs in filter(None, (planned, 1000)):
        file.write_text(TEXT.replace("runs = 5", f"runs = {runs}") + '[keep]\nscores = "all"\n')
        if runs == planned:
            plan_sweep(file, tmp_path / "out")
    data = plan_change(file, tmp_path / "out").expansion.datasets.values()
    monkeypatch.setattr(cost.os, "statvfs", lambda _: disk(f_bavail=1))
    with pytest.raises(UserError) as error:
        plan_sweep(file, tmp_path / "out")
    told = re.search(
        r"need ([\d.]+) MB \(scores ([\d.]+) MB, labels, times and test sets ([\d.]+) MB\);",
        str(error.value),
    )
    assert told, error.value
    needed, scores, others = map(float, told.groups())
    assert needed == pytest.approx(scores + others, abs=0.11)
    fits = 2 * 2 * 2 * (1000 - planned)  # classifiers, fractions, repeats
    in_full = fits * sum(4 * one.n_test * len(one.class_names) for one in data) / 1e6
    assert scores == pytest.approx(in_full, rel=0.02)
    labels = fits * sum(one.n_test for one in data) / 1e6
    assert labels / 8 < others < labels / 2


def test_only_what_is_new_needs_room(tmp_path, monkeypatch):
    file = tmp_path / "s.toml"
    file.write_text(TEXT)
    plan_sweep(file, tmp_path / "out")
    monkeypatch.setattr(cost.os, "statvfs", lambda _: disk(f_bavail=0, f_favail=0))
    assert plan_sweep(file, tmp_path / "out").is_empty


GROWN = """
name = "grown"
seed = 1
repeats = 2
runs = 40
[[grid]]
dataset = ["sklearn:digits"]
classifier = ["lr-sgd"]
[keep]
scores = "all"
"""


def test_padding_between_parts_of_a_plan_needs_no_room(tmp_path, monkeypatch, capsys):
    file = tmp_path / "s.toml"
    file.write_text(GROWN)
    plan_sweep(file, tmp_path / "out")
    file.write_text(GROWN.replace("runs = 40", "runs = 41"))
    at_once = plan_change(file, tmp_path / "other").summary()
    grown = plan_change(file, tmp_path / "out")
    chunk = grown.groups.specs[0].chunk_length * 449 * 10 * 4
    assert grown.summary()["shards"] == 2
    more = grown.summary()["store_bytes"] - at_once["store_bytes"]
    assert more == pytest.approx(chunk, rel=0.01)
    monkeypatch.setattr(cost.os, "statvfs", lambda _: disk(f_bavail=chunk * 2 // 1000))
    plan_sweep(file, tmp_path / "out")
    monkeypatch.setattr(cost.os, "statvfs", lambda _: disk(f_bavail=chunk // 2000))
    file.write_text(GROWN.replace("runs = 40", "runs = 42"))
    with pytest.raises(UserError, match="its predictions need"):
        plan_sweep(file, tmp_path / "out")
    monkeypatch.undo()
    shown = " ".join(plan_command(monkeypatch, capsys, file, "--out", tmp_path / "out").out.split())
    assert "files and folders, with those planned before." in shown


def test_runs_in_several_parts_of_a_plan_need_a_chunk_of_each(tmp_path, monkeypatch):
    file = tmp_path / "s.toml"
    for runs in range(1, 9):
        file.write_text(GROWN.replace("runs = 40", f"runs = {runs}"))
        change = plan_sweep(file, tmp_path / "out")
    chunk = change.groups.specs[0].chunk_length * 449 * 10 * 4
    needed = []
    monkeypatch.setattr(
        requirements, "require_room", lambda _, missing, *__: needed.extend(missing)
    )
    paths = SweepPaths(tmp_path / "out")
    state = survey(paths)
    require_space(paths, state, change.groups, state.with_state("missing"))
    assert (all_bytes := sum(group.bytes for group in needed)) > 8 * chunk
    needed.clear()
    state = survey(paths)
    state.states[0][0] = DONE  # the first chunk is there
    require_space(paths, state, change.groups, state.with_state("missing"))
    assert all_bytes - sum(group.bytes for group in needed) == pytest.approx(chunk, rel=0.01)


def test_what_is_on_disk_already_needs_no_room_again(quick, tmp_path, monkeypatch):
    """After a full disk, the rest of the runs go where the first ones are."""
    shutil.copytree(quick.directory, tmp_path / "copy")
    paths = SweepPaths(tmp_path / "copy")
    state, groups = survey(paths), Groups.read(paths)
    for states in state.states.values():
        states[len(states) // 4 :] = MISSING
    monkeypatch.setattr(cost.os, "statvfs", lambda _: disk(f_bavail=0))

    def predictions():
        with pytest.raises(UnavailableError, match="the disk has") as told:
            require_space(paths, state, groups, state.with_state("missing"))
        number, unit = re.search(r"\(predictions (\S+) (kB|MB)", str(told.value)).groups()
        return float(number) * {"kB": 1e3, "MB": 1e6}[unit]

    rest = predictions()
    shutil.rmtree(paths.store)
    assert rest < 0.2 * predictions()


def test_the_largest_file_is_no_larger_than_its_rows(tmp_path, monkeypatch):
    """What a small sweep needs twice while it is written is not a shard full of runs."""
    file, asked = tmp_path / "s.toml", []
    monkeypatch.setattr(requirements, "require_room", lambda _, __, most, ___: asked.append(most))
    for runs in (3, 40):
        file.write_text(GROWN.replace("runs = 40", f"runs = {runs}"))
        change = plan_sweep(file, tmp_path / f"out{runs}")
        paths = SweepPaths(tmp_path / f"out{runs}")
        state = survey(paths)
        require_space(paths, state, change.groups, state.with_state("missing"))
    (spec,) = change.groups.specs
    assert 3 * spec.row_bytes <= asked[0] <= (3 + spec.chunk_length) * spec.row_bytes
    assert asked[0] < asked[1] <= spec.shard_length * spec.row_bytes


def test_a_disk_without_room_for_files_is_told(tmp_path, monkeypatch):
    (tmp_path / "s.toml").write_text(TEXT)
    monkeypatch.setattr(cost.os, "statvfs", lambda _: disk(f_favail=20))
    with pytest.raises(UserError, match="can take 20"):
        plan_sweep(tmp_path / "s.toml", tmp_path / "out")


def test_the_estimate_of_bytes_and_files_is_kept(quick):
    """Within a tenth, on a sweep that was trained to its end."""
    found = estimate_and_outcome(quick.paths)
    assert found["fits"][0] == found["fits"][1] == 58
    for name in ("store_bytes", "store_files"):
        estimated, is_ = found[name]
        assert abs(estimated - is_) <= is_ / 10, name
    assert found["hours"][1] > 0


def test_planning_again_is_corrected_by_what_ran(quick, tmp_path):
    shutil.copytree(quick.directory, tmp_path / "copy")
    change = plan_change(quick.paths.sweep_file, tmp_path / "copy")
    assert len(change.observed) == 8
    total = change.observed["observed"].sum()
    # 58 of 64 runs were fitted; the share that each fraction takes is the model's
    assert change.summary()["core_hours"] * 3600 == pytest.approx(total, rel=0.01)


def plan_command(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["manyseed", "plan", *map(str, arguments)])
    monkeypatch.setenv("COLUMNS", "80")
    with contextlib.suppress(SystemExit):
        main()
    return capsys.readouterr()


def test_a_dry_run_tells_what_would_be_refused_and_what_ends_in_no_job(
    tmp_path, monkeypatch, capsys
):
    file = tmp_path / "s.toml"
    file.write_text(
        'name = "x"\nseed = 1\n[[grid]]\ndataset = ["dionis", "vehicle"]\nclassifier = ["lr-sgd"]\n'
    )
    options = (file, "--out", tmp_path / "out", "--dry-run", "--walltime", "0:20:00")
    monkeypatch.setattr(cost.os, "statvfs", lambda _: disk(f_bavail=1))
    shown = json.loads(plan_command(monkeypatch, capsys, *options, "--json").out)
    assert [(fit["classifier"], fit["dataset"]) for fit in shown["beyond_walltime"]] == [
        ("lr-sgd", "dionis")
    ]
    assert " kB free" in shown["no_room"]
    text = " ".join(plan_command(monkeypatch, capsys, *options).out.split())
    assert "even by continuing: lr-sgd on dionis (" in text
    assert "It could not be planned into" in text
    monkeypatch.undo()
    shown = json.loads(plan_command(monkeypatch, capsys, *options[:-2], "--json").out)
    assert shown["beyond_walltime"] == []
    assert shown["no_room"] is None
    wrong = plan_command(monkeypatch, capsys, *options[:-1], "4h").err
    assert wrong.startswith('error: --walltime = "4h": must be a time')
    assert [path.name for path in tmp_path.iterdir()] == ["s.toml"]


@pytest.mark.usefixtures("without_slurm")
@pytest.mark.parametrize(
    ("dataset", "hparams", "step"),
    [
        ("vehicle", "default", "plan {file} --fetch"),
        ("sklearn:iris", "tuned", "plan {directory} --tune"),
        ("sklearn:iris", "default", "submit {directory}"),
    ],
)
def test_a_plan_tells_what_it_waits_for(dataset, hparams, step, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "data"))
    file, directory = tmp_path / "s.toml", tmp_path / "out"
    file.write_text(
        f'name = "x"\nseed = 1\n[[grid]]\ndataset = ["{dataset}"]\nclassifier = ["lr-sgd"]\n'
        f'hparams = ["{hparams}"]\n'
    )
    told = plan_command(monkeypatch, capsys, file, "--out", directory).out
    command = step.format(file=file, directory=directory)
    assert told.splitlines()[-1] == f"Next: manyseed {command}"


@pytest.mark.usefixtures("without_slurm")
def test_a_planned_file_needs_no_fetching(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "data"))
    table, file, directory = tmp_path / "table.csv", tmp_path / "s.toml", tmp_path / "out"
    table.write_text("x,y\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(20)))
    file.write_text(
        'name = "x"\nseed = 1\n[[grid]]\ndataset = ["d"]\nclassifier = ["lr-sgd"]\n'
        f'[dataset.d]\nsource = "file:{table}"\ntarget = "y"\n'
    )
    plan_command(monkeypatch, capsys, file, "--dry-run")
    assert not (tmp_path / "data").exists()
    told = plan_command(monkeypatch, capsys, file, "--out", directory).out
    assert f"Prepared d in {tmp_path / 'data'}." in " ".join(told.split())
    assert told.splitlines()[-1] == f"Next: manyseed submit {directory}"
    assert "Prepared" not in plan_command(monkeypatch, capsys, file, "--out", directory).out
    planned = plan_change(file, directory).expansion.datasets["d"]
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "other"))
    Sweep.plan(file, tmp_path / "from-python")
    assert datasets.is_fetched(planned.canonical)
