"""Training in bfloat16: asked for in the sweep file, part of the recipe, refused where it lacks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from manyseed import Sweep
from manyseed.orchestrator import provenance
from manyseed.orchestrator.errors import UnavailableError, UserError
from manyseed.orchestrator.plans.change import remarks
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.planning import plan_change
from manyseed.orchestrator.provenance import Recipe, read_recipes
from manyseed.orchestrator.submissions import requirements
from tests.orchestrator.conftest import shared, stored, train, write

TEXT = """
name    = "precise"
seed    = 5
repeats = 1
runs    = 4

[[grid]]
dataset    = ["points"]
classifier = ["mlp"]

[dataset.points]
source    = "synthetic:gaussian"
n_samples = 80

[classifier.mlp]
epochs    = 2
hparams   = {{ width1 = 32, width2 = 32 }}
precision = "{precision}"
{more}
"""


def text(precision: str = "bf16", more: str = "") -> str:
    return TEXT.format(precision=precision, more=more)


def give(patch: pytest.MonkeyPatch, *, bf16: bool) -> None:
    """Give this machine a processor with bfloat16 or without, the same one otherwise."""
    fields, flags = provenance._processor()
    others = [flag for flag in flags if flag not in provenance._BF16_SETS]
    found = fields, [*others, *(["avx512_bf16"] if bf16 else [])]
    patch.setattr(provenance, "_processor", lambda: found)


@pytest.fixture(autouse=True)
def processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor has it, unless a test takes it away."""
    give(monkeypatch, bf16=True)


@pytest.fixture
def trained(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return shared(tmp_path_factory, "precise", text())


def test_the_recipe_has_the_precision_and_gives_the_same_again(trained: Sweep) -> None:
    [recipe] = read_recipes(trained.paths.recipes).values()
    assert (recipe.form, recipe.precision) == ("sequential", "bf16")
    again = trained.rerun("0:0:3")
    assert again["same_recipe"]
    assert again["equal"]


def test_the_option_changes_no_identity_and_scores_a_little(trained: Sweep, tmp_path: Path) -> None:
    plain = train(write(tmp_path / "plain.toml", text("float32")), tmp_path / "plain")
    ids = [Plan.read(sweep.paths).cells["cell_id"].to_list() for sweep in (trained, plain)]
    assert ids[0] == ids[1]
    [recipe] = read_recipes(plain.paths.recipes).values()
    assert recipe.precision == "float32"
    [ours], [theirs] = (stored(sweep).values() for sweep in (trained, plain))
    assert (ours["margin"] != theirs["margin"]).any()
    np.testing.assert_allclose(ours["margin"], theirs["margin"], rtol=0, atol=0.05)


def test_a_stack_in_bfloat16_is_one_recipe(tmp_path: Path) -> None:
    sweep = train(write(tmp_path / "both.toml", text(more="stack = 2")), tmp_path / "both")
    [recipe] = read_recipes(sweep.paths.recipes).values()
    assert (recipe.form, recipe.members, recipe.precision) == ("stacked", 2, "bf16")
    assert sweep.rerun("0:0:1")["equal"]


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_processor_without_it_is_refused_and_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, bf16=False)
    sweep = Sweep.plan(write(tmp_path / "none.toml", text()), tmp_path / "none")
    before = files(sweep.directory)
    with pytest.raises(UserError, match="lacks instructions for bfloat16") as refused:
        sweep.submit(workers=1)
    assert refused.value.exit_code == 2
    assert refused.value.facts["key"] == "classifier.mlp.precision"
    assert refused.value.facts["value"] == "bf16"
    assert files(sweep.directory) == before


def test_a_node_without_it_trains_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "has_bf16", lambda: True)
    give(monkeypatch, bf16=False)
    sweep = Sweep.plan(write(tmp_path / "node.toml", text()), tmp_path / "node")
    sweep.submit(workers=1)
    sweep.wait()
    assert sweep.status()["runs"]["missing"] == 4
    assert read_recipes(sweep.paths.recipes) == {}
    assert "lacks instructions for bfloat16" in str(sweep.status())


def test_a_run_is_not_trained_again_without_it(
    trained: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, bf16=False)
    with pytest.raises(UnavailableError, match="lacks instructions for bfloat16"):
        trained.rerun("0:0:0")


def test_another_precision_is_another_recipe(tmp_path: Path) -> None:
    file = write(tmp_path / "changed.toml", text())
    sweep = Sweep.plan(file, tmp_path / "changed")
    sweep.submit(workers=1, limit=1)
    sweep.wait()
    Sweep.plan(write(file, text("float32")), tmp_path / "changed")
    with pytest.raises(UserError, match="in bf16, the others would be in float32") as refused:
        sweep.submit(workers=1)
    assert 'write precision = "bf16"' in str(refused.value)
    sweep.submit(workers=1, other_recipe=True)
    sweep.wait()
    assert sweep.status()["runs"]["missing"] == 0
    recipes = read_recipes(sweep.paths.recipes).values()
    assert {recipe.precision for recipe in recipes} == {"bf16", "float32"}


def test_a_classifier_that_is_no_network_is_recorded_as_it_is(tmp_path: Path) -> None:
    """Its table may get the option after it was planned, which a later plan refuses."""
    plain = text().partition("[classifier.")[0].replace("mlp", "svm-sgd")
    file = write(tmp_path / "svm.toml", plain)
    sweep = Sweep.plan(file, tmp_path / "svm")
    with sweep.paths.sweep_file.open("a") as more:
        more.write('\n[classifier.svm-sgd]\nprecision = "bf16"\n')
    sweep.submit(workers=1)
    sweep.wait()
    [recipe] = read_recipes(sweep.paths.recipes).values()
    assert recipe.precision == "float32"


def test_the_plan_says_so_and_what_is_lacking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(precision: str, more: str = "") -> str:
        file = write(tmp_path / "told.toml", text(precision, more))
        lines = remarks(plan_change(file, tmp_path / "none"))
        return " ".join(line for line in lines if "bfloat16" in line)

    assert told("float32") == ""
    assert told("bf16") == "mlp: trained with matrix products in bfloat16."
    give(monkeypatch, bf16=False)
    assert "bfloat16; this processor lacks instructions" in told("bf16")
    assert told("bf16", 'device = "gpu"') == "mlp: trained with matrix products in bfloat16."


def test_what_trained_is_said_with_its_precision() -> None:
    made = Recipe(device="cpu", device_class="EPYC avx512f", precision="bf16")
    assert made.where == "cpu (EPYC avx512f, products in bfloat16)"
    assert Recipe(device="cpu", device_class="EPYC avx512f").where == "cpu (EPYC avx512f)"


@pytest.mark.parametrize("precision", ["half", "float64", "bfloat16"])
def test_another_word_is_refused(tmp_path: Path, precision: str) -> None:
    with pytest.raises(UserError, match=r"classifier\.mlp\.precision") as refused:
        Sweep.plan(write(tmp_path / "wrong.toml", text(precision)), tmp_path / "wrong")
    assert "float32" in str(refused.value)
    assert "bf16" in str(refused.value)
