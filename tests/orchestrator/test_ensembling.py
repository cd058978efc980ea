"""Ensembling methods as an axis: planned, trained, stored, measured, compared and told."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import xarray as xr
from scipy.special import expit

from manyseed import Sweep
from manyseed.analysis.axes import AXES
from manyseed.analysis.options import Options
from manyseed.jobs.run import Cell, Run, canonical_json, text_identity
from manyseed.jobs.scales import SCALES, search_id
from manyseed.jobs.trainer import Trainer
from manyseed.jobs.training.handling import Handling
from manyseed.orchestrator.computing.conventions import conventions
from manyseed.orchestrator.errors import DamagedFile, UserError
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import CELLS, Plan
from manyseed.orchestrator.plans.searches import require_searched
from tests.analysis.samples import looks_of
from tests.orchestrator.conftest import command, shared, write

GRID = """
name    = "methods"
seed    = 7
repeats = 2
runs    = 2

[[grid]]
dataset    = ["sklearn:wine"]
classifier = ["net"]
ensembling = ["none", "snapshot", "noisy", "fge", "swag", "vi", "kfac-laplace", "dropout"]

[[grid]]
dataset    = ["cancer"]
classifier = ["net"]
ensembling = ["none", "dropout", "snapshot"]

[dataset.cancer]
source = "sklearn:breast_cancer"
keep   = { members = "all", dtype = "float16" }

[classifier.net]
kind       = "mlp"
optimizer  = "sgd"
epochs     = 2
batch_size = 32
hparams    = { width1 = 32, width2 = 32, lr = 0.05 }

[ensembling.snapshot]
members = 4
cycle   = 2

[ensembling.noisy]
kind         = "csgld"
members      = 3
cycle        = 3
noise_epochs = 2
saves        = 2

[ensembling.fge]
members  = 3
pretrain = 2
cycle    = 2

[ensembling.swag]
members  = 3
pretrain = 2
epochs   = 4
rank     = 2

[ensembling.vi]
members = 3
epochs  = 2

[ensembling.kfac-laplace]
members = 3
scale   = 0.5

[ensembling.dropout]
members = 6
"""

OPTIONS = Options(calibration=True, deep_draws=3, resamples=4)
COUNTS = {"snapshot": 4, "noisy": 3, "fge": 3, "swag": 3, "vi": 3, "kfac-laplace": 3, "dropout": 6}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return shared(tmp_path_factory, "methods", GRID, lambda made: made.analyze(OPTIONS))


def planned(folder: Path, text: str) -> Sweep:
    folder.mkdir(exist_ok=True)
    return Sweep.plan(write(folder / "sweep.toml", text), folder / "sweep")


def test_cells_are_described_and_grouped_as_the_pages_say(sweep: Sweep) -> None:
    plan, groups = Plan.read(sweep.paths), Groups.read(sweep.paths)
    assert plan.cells.height == 11
    for row in plan.cells.iter_rows(named=True):
        description = json.loads(row["canonical"])
        assert text_identity(canonical_json(description)) == row["cell_id"]
        assert Cell.from_canonical(description).id == row["cell_id"]
        path = row["path"].split("/")[1]
        if row["ensembling"] == "none":
            assert "ensembling" not in description
            assert (path, groups.specs[row["group"]].classifier) == ("net", "net")
        else:
            assert description["ensembling"]["members"] == COUNTS[row["ensembling"]]
            assert path == f"net~{row['ensembling']}"
    spec = {one.path: one for one in groups.specs}
    assert spec["sklearn%3Awine/net"].to_attributes()["layout"] == 1
    assert spec["sklearn%3Awine/net~noisy"].epochs == (5,)  # two members of the first cycle, one
    assert spec["sklearn%3Awine/net~noisy"].measures == ("size_score",)
    assert spec["cancer/net~dropout"].measures == ("member_margin",)
    assert spec["cancer/net~dropout"].optional[0].dtype == "float16"


def test_single_models_are_planned_as_without_the_axis(tmp_path: Path) -> None:
    text = GRID.replace(', "snapshot", "noisy", "fge", "swag", "vi", "kfac-laplace", "dropout"', "")
    text = text.replace(', "dropout", "snapshot"', "").partition("[ensembling")[0]
    plain = planned(tmp_path / "a", text.replace('ensembling = ["none"]', ""))
    named = planned(tmp_path / "b", text.replace('["none"]', '["single", "deep"]'))
    one, other = (Plan.read(each.paths).cells for each in (plain, named))
    assert one.equals(other)
    assert one["ensembling"].to_list() == ["none", "none"]


def test_what_is_stored_is_what_a_run_yields(sweep: Sweep) -> None:
    plan, trainer = Plan.read(sweep.paths), Trainer()
    for row in plan.cells.filter(ensembling="noisy").iter_rows(named=True):
        run = Run(plan.cell(row["cell"]), 1, 1)
        again = trainer.train(run, Handling(measures=("size_score",)))
        held = xr.open_zarr(sweep.paths.store, group=row["path"], consolidated=False)
        at = int(np.flatnonzero((held["repeat_index"] == 1) & (held["run_index"] == 1))[0])
        np.testing.assert_array_equal(held["size_score"][at], again.measured["size_score"])
        np.testing.assert_array_equal(held["score"][at], again.scores)
        assert held["ensemble_size"].values.tolist() == [1, 2, 3]
    held = xr.open_zarr(sweep.paths.store, group="cancer/net~snapshot", consolidated=False)
    assert held["member_epoch"].values.tolist() == [2, 4, 6, 8]
    p = expit(held["member_margin"].values.astype(np.float64)).mean(axis=1)
    done = held["status"].values == 1
    margin = held["margin"].values[done, 0].astype(np.float64)
    np.testing.assert_allclose(expit(margin), p[done], atol=2e-3)  # float16
    assert sweep.verify()["runs_wrong"] == 0
    assert sweep.rerun(f"{plan.cells.filter(ensembling='fge')['cell'][0]}:0:1")["equal"]
    one = sweep.runs("cancer", "net~dropout")
    assert one.sizes["member"] == 6


def test_members_are_measured_by_size_and_compared(sweep: Sweep) -> None:
    table = sweep.results["uncertainty"]
    methods = table.filter(pl.col("ensembling") != "none")
    assert methods["run_index"].is_not_null().all()
    assert methods["draw"].null_count() == methods["pool"].null_count() == methods.height
    deep = table.filter(ensembling="none")
    assert deep["run_index"].is_null().all()
    sizes = {
        name: own["members"].unique().sort().to_list()
        for (name,), own in methods.partition_by("ensembling", as_dict=True).items()
    }
    assert sizes == {
        "snapshot": [1, 2, 3, 4],
        "noisy": [1, 2, 3],
        "fge": [1, 2, 3],
        "swag": [1, 2, 3],
        "vi": [1, 2, 3],
        "kfac-laplace": [1, 2, 3],
        "dropout": [1, 2, 3, 5, 6],
    }
    # the whole ensemble is the run's prediction
    key = ["cell", "repeat_index", "run_index"]
    whole = methods.filter(pl.col("members") == pl.col("members").max().over("cell"))
    both = whole.join(sweep.results["runs"], on=key, suffix="_run")
    assert both.height == whole.height == (7 + 2) * 4
    for name, near in (("cll", 1e-3), ("log_likelihood", 2e-3), ("error", 1e-12)):
        np.testing.assert_allclose(both[name], both[f"{name}_run"], atol=near)
    errors = sweep.results["tace"].filter(pl.col("members") > 1, threshold=1e-3, bins=15)
    of_runs = whole.group_by("cell", "repeat_index").agg(pl.col("c_tace").mean())
    near = errors.join(of_runs, on=["cell", "repeat_index"], suffix="_runs")
    assert near.height == of_runs.height
    np.testing.assert_allclose(near["c_tace"], near["c_tace_runs"], atol=2e-3)
    dee = sweep.results["dee"]
    assert dee["axis"].unique().to_list() == ["ensembling"]
    assert dee["deep_value"].unique().to_list() == ["none"]
    assert set(dee["ensembling"].unique()) == {*COUNTS}
    assert (dee["n_runs"] == 2).all()
    own = dee.filter(metric="cll").join(
        methods.group_by("cell", "repeat_index", "members").agg(mean=pl.col("cll").mean()),
        on=["cell", "repeat_index", "members"],
    )
    np.testing.assert_allclose(own["value"], own["mean"])
    assert own.height == dee.height / 4


def test_a_sweep_with_methods_is_calibrated_unless_its_file_says_no(
    sweep: Sweep, tmp_path: Path
) -> None:
    assert conventions(sweep.paths).calibration
    text = GRID.replace("[[grid]]", "[analysis]\ncalibration = false\n\n[[grid]]", 1)
    assert not conventions(planned(tmp_path / "no", text).paths).calibration
    plain = GRID.replace(
        ', "snapshot", "noisy", "fge", "swag", "vi", "kfac-laplace", "dropout"', ""
    )
    plain = plain.replace(', "dropout", "snapshot"', "")
    assert not conventions(planned(tmp_path / "none", plain).paths).calibration


def test_the_answers_are_told(sweep: Sweep) -> None:
    said = command("dee", sweep.directory).stdout
    assert "4 members are" in " ".join(said.split())
    assert "independent runs with ensembling = none" in " ".join(said.split())
    shown = json.loads(command("show", sweep.directory, "1:0:0", "--json").stdout)
    assert shown["ensembling"] == "snapshot"
    assert shown["description"]["ensembling"]["cycle"] == 2
    asked = command("query", sweep.directory, "--by", "ensembling", "--format", "csv").stdout
    assert {line.split(",")[0] for line in asked.splitlines()[1:]} == {"none", *COUNTS}


def test_the_report_draws_them(sweep: Sweep) -> None:
    page = sweep.report().read_text()
    assert "members averaged" in page or "runs averaged" in page


def test_the_plan_prices_each_method(tmp_path: Path) -> None:
    found = json.loads(
        command("plan", write(tmp_path / "methods.toml", GRID), "--dry-run", "--json").stdout
    )
    rows = {(row["dataset"], row["classifier"]): row for row in found["by_group"]}
    own = {name: row for (dataset, name), row in rows.items() if dataset == "sklearn:wine"}
    assert set(own) == {"net", *(f"net~{name}" for name in COUNTS)}
    assert own["net~snapshot"]["fit_seconds"] > own["net"]["fit_seconds"]
    assert own["net~fge"]["runs"] == 4
    assert found["runs"] == 11 * 4


SEARCHED = """
name = "searched"
seed = 3
repeats = 1
runs = 2
tune = { draws = 2 }

[[grid]]
dataset    = ["sklearn:wine"]
classifier = ["net"]
hparams    = ["default", "tuned"]
ensembling = ["none", "kfac-laplace"]

[classifier.net]
kind       = "mlp"
optimizer  = "sgd"
epochs     = 2
batch_size = 32
hparams    = { width1 = 32, width2 = 32, dropout = 0.1 }

[ensembling.kfac-laplace]
members = 3
"""


@pytest.mark.slow
def test_a_scale_is_searched_for_before_its_cells_are_trained(tmp_path: Path) -> None:
    sweep = planned(tmp_path, SEARCHED)
    cells = Plan.read(sweep.paths).cells
    assert cells.height == 4
    own = cells.filter(ensembling="kfac-laplace")
    said = command("plan", tmp_path / "sweep.toml", "--out", sweep.directory, "--json").stdout
    fits = {row["classifier"]: row["fits"] for row in json.loads(said)["by_group"]}
    assert fits["net~kfac-laplace"] == 4 + 2 + 2 * 5  # two searches for scales, one for hparams
    with pytest.raises(UserError, match="hparams are still"):
        sweep.submit(workers=1)
    default = own.filter(hparams="default")
    with pytest.raises(UserError, match="the scale of kfac-laplace is still to be") as found:
        require_searched(sweep.paths, default)
    assert f"run manyseed plan {sweep.directory} --tune, or set scale" in str(found.value)
    assert "ensembling.kfac-laplace.scale" in str(found.value)
    require_searched(sweep.paths, cells.filter(ensembling="none", hparams="default"))
    address = f"{default['cell'][0]}:0:1"
    assert sweep.show(address)["fitted_with"] is None

    result = command("tune", sweep.directory, "--workers", 1, "--json")
    told = json.loads(result.stdout)
    assert len(told["searches"]) == 1
    assert [each["networks"] for each in told["scales"]] == [5, 5]
    files = sorted((sweep.paths.plan / "tuned").glob("*.scale.json"))
    kept = [json.loads(file.read_text()) for file in files]
    assert {one["scale"] for one in kept} <= {*SCALES}
    for one in kept:
        means = np.mean([trial["log_likelihoods"] for trial in one["trials"]], axis=0)
        assert one["scale"] == SCALES[int(means.argmax())]
        assert one["log_likelihood"] == pytest.approx(means.max())
    assert "Nothing to search" in command("tune", sweep.directory, "--workers", 1).stdout

    sweep.submit(workers=1)
    sweep.wait()
    sweep.compact()
    for number, canonical in own.select("cell", "canonical").iter_rows():
        search = search_id(Cell.from_text(canonical))
        (scale,) = (
            one["scale"] for one, file in zip(kept, files, strict=True) if search in file.name
        )
        shown = sweep.show(f"{number}:0:1")
        assert shown["fitted_with"]["ensembling.scale"] == scale
        assert shown["stored"]["recipe"]["tuned"]["ensembling.scale"] == scale
        assert sweep.rerun(f"{number}:0:1")["equal"]
    files[0].write_bytes(files[1].read_bytes())
    with pytest.raises(DamagedFile, match=r"scale\.json: belongs to another search"):
        [sweep.show(f"{number}:0:1") for number in own["cell"]]
    files[0].unlink()
    with pytest.raises(DamagedFile, match=r"scale\.json: is not there, though the run was trained"):
        [sweep.show(f"{number}:0:1") for number in own["cell"]]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"kfac-laplace", "dropout"]', '"kfac-laplace", "swagg"]', "unknown ensembling method"),
        ("cycle   = 2", "cycles   = 2", "unknown key"),
        ("rank     = 2", "rank     = 3", "2 are left"),
        (
            'ensembling = ["none", "dropout", "snapshot"]',
            'ensembling = ["none", "dropout", "snapshot"]\nvary = ["init", "train"]',
            "the deep ensemble",
        ),
        ("cycle    = 2", "cycle    = 3", "an even number"),
        ("noise_epochs = 2", "noise_epochs = 1", "a cycle has 1"),
        ("members = 6", "members = 1", "from 2"),
        ('optimizer  = "sgd"', 'optimizer  = "adam"', 'add to [classifier.net]: optimizer = "sgd"'),
        ("epochs     = 2", "epochs     = 2\nsnapshots = [1]", "keep.members"),
        ("epochs     = 2", 'epochs     = 2\nschedule = "plateau"', "remove schedule from"),
        (
            "lr = 0.05 }",
            "lr = 0.05, dropout = 0 }",
            "add to [classifier.net]: hparams = { dropout = 0.1 }",
        ),
        ('kind       = "mlp"', 'kind       = "xgb"', "unknown"),
        ('"snapshot", "noisy"', '"snapshot", "net2", "noisy"', "unknown ensembling method"),
        ('kind         = "csgld"', 'kind         = "fgee"', 'did you mean "fge"'),
        (
            "[ensembling.snapshot]",
            "[ensembling.dropout2]\nkind='dropout'\nmembers=6\n\n[ensembling.snapshot]",
            "is the same as",
        ),
        (
            "[ensembling.snapshot]\n",
            '[ensembling.snapshot]\nkind = "fge"\n',
            "cannot have another kind",
        ),
        ('dtype = "float16" }', "dtype = 3 }", "keep.dtype"),
    ],
)
def test_what_cannot_be_is_refused(old: str, new: str, said: str, tmp_path: Path) -> None:
    assert old in GRID
    with pytest.raises(UserError) as found:
        planned(tmp_path, GRID.replace(old, new))
    assert said in str(found.value)
    assert "sweep.toml" in str(found.value)
    assert not (tmp_path / "sweep").exists()


def test_a_name_with_a_tilde_is_refused(tmp_path: Path) -> None:
    text = GRID.replace("[classifier.net]", '[classifier."a~b"]').replace('["net"]', '["a~b"]')
    with pytest.raises(UserError, match="cannot contain ~"):
        planned(tmp_path, text)


def test_classifiers_without_epochs_are_told_what_theirs_are(tmp_path: Path) -> None:
    text = GRID.replace('classifier = ["net"]', 'classifier = ["net", "xgb"]')
    with pytest.raises(UserError, match="xgb has no epochs") as found:
        planned(tmp_path, text)
    assert 'exclude = [{ classifier = "xgb", ensembling = "snapshot" }]' in str(found.value)


def test_all_members_of_a_large_test_set_are_refused(tmp_path: Path) -> None:
    text = GRID.replace("members = 6", "members = 5000").replace("float16", "float32")
    text = text.replace(
        'source = "sklearn:breast_cancer"',
        'source = "synthetic:gaussian"\nn_samples = 60000\ntest = 50000',
    )
    with pytest.raises(UserError, match="the maximum is 256 MB") as found:
        planned(tmp_path, text)
    assert "keep.members" in str(found.value)


def test_a_plan_of_an_earlier_version_has_single_models(sweep: Sweep, tmp_path: Path) -> None:
    old = planned(
        tmp_path,
        GRID.split("[[grid]]")[0]
        + """
[[grid]]
dataset    = ["sklearn:wine"]
classifier = ["lr-sgd"]
""",
    )
    assert "ensembling" not in pl.read_parquet(old.paths.cells).columns  # as it was before
    plan = Plan.read(old.paths)
    assert plan.cells.columns == list(CELLS)
    assert plan.cells["ensembling"].to_list() == ["none"]
    assert AXES[-3:] == ("ensembling", "test_augment", "perturb_labels")


def test_a_plan_says_what_noise_on_hparams_does_not_move(tmp_path: Path) -> None:
    text = GRID.replace(
        'ensembling = ["none", "dropout", "snapshot"]',
        'ensembling = ["none", "dropout", "snapshot"]\nperturb_hparams = ["none", "relative:0.1"]',
    )
    file = write(tmp_path / "methods.toml", text)
    notes = json.loads(command("plan", file, "--dry-run", "--json").stdout)["notes"]
    own = [note for note in notes if "has its own" in note]
    assert own == ["perturb_hparams cannot move lr of net under snapshot, which has its own"]


def test_no_two_methods_share_colour_and_marker(sweep: Sweep) -> None:
    kinds = [name for name, of in sweep.plot.kinds.select("kind", "of").iter_rows() if of == "page"]
    told = 0
    for kind in kinds:
        with suppress(UserError):
            for plot in sweep.plot.all(kind):
                looks = looks_of(plot)
                assert len(looks) == len(set(looks)), kind
                told = max(told, len(looks))
    assert told >= 8
