"""The JSON Schema of the sweep file takes every example, and refuses what a plan would refuse."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from manyseed.jobs import classifiers
from manyseed.orchestrator.cli.commands import app
from manyseed.orchestrator.cli.manual import without_also
from manyseed.orchestrator.grids.sweepfile import SweepFile
from tests.orchestrator.grids.test_docs_sweep_file import PAGE
from tests.orchestrator.grids.test_fuzz import WHOLE
from tests.orchestrator.grids.test_sweepfile import GOOD, GRID, HEAD, MISTAKES

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    printed = CliRunner().invoke(app, ["docs", "--schema"])
    assert printed.exit_code == 0, printed.output
    found: dict[str, Any] = json.loads(printed.output)
    Draft202012Validator.check_schema(found)
    assert found["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    return found


def errors(schema: dict[str, Any], text: str) -> list[str]:
    """Return where and why a file does not fit."""
    found = Draft202012Validator(schema).iter_errors(tomllib.loads(text))
    return [f"{error.json_path}: {error.message}" for error in found]


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_example_fits(schema: dict[str, Any], example: Path) -> None:
    assert errors(schema, example.read_text()) == []


OF_GRIDS = without_also(PAGE).split("### Hparam grids\n\n```toml\n")[1].split("```")[0]


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        WHOLE,
        PAGE.split("```toml\n")[1].split("```")[0],
        HEAD + OF_GRIDS.replace('"grid"]', '"grid", "lr=0.001,width1=64"]'),
    ],
)
def test_files_that_can_be_planned_fit(schema: dict[str, Any], text: str) -> None:
    assert errors(schema, text) == []


# of MISTAKES, those that a single value tells
SEEN = {
    "no grid": "$: 'grid' is a required",
    "no name": "$: 'name' is a required",
    "bad name": "$.name: 'a b' does not match",
    "name of another type": "$.name: 3 is not of type 'string'",
    "seed as text": "$.seed: '1' is not of type 'integer'",
    "negative seed": "$.seed: -1 is less than the minimum of 0",
    "truth for a number": "$.runs: True is not of type 'integer'",
    "no repeats": "$.repeats: 0 is less than the minimum of 1",
    "unknown key": "$: Additional properties are not allowed ('repeat' was",
    "unknown key of a grid": "$.grid[0]: Additional properties",
    "unknown key of keep": "$.keep: Additional properties",
    "keep of another value": "$.keep.scores: 'margins' is not one of ['all', 'margin', 'none']",
    "keep that is no table": "$.keep: 3 is not of type 'object'",
    "one bracket": "$.grid: {",
    "no list": "$.grid[0].classifier: 'lr-sgd' is not of type 'array'",
    "empty list": "$.grid[0].classifier: []",
    "number among names": "$.grid[0].classifier[1]: 3 is not valid",
    "unknown hparams": "$.grid[0].hparams[0]: 'defaults' is not valid under any",
    "unknown table of a classifier": "$.classifier.mpl: 'kind' is a required",
    "a classifier of another kind": "$.classifier.xgb.kind: 'xgb' was expected",
    "unknown option of a classifier": "$.classifier.mlp: Additional properties",
    "unknown hparam": "['lr-sgd'].hparams: Additional properties",
    "hparam out of range": "['lr-sgd'].hparams.alpha: 3 is greater than the maximum of 0.1",
    "a rule of an unknown axis": "$.grid[0].exclude[0]: Additional properties",
    "zip without inner list": "$.grid[0].zip[0]: 'dataset' is not of type 'array'",
}


@pytest.mark.parametrize("mistake", SEEN)
def test_a_planted_mistake_is_seen_where_it_stands(schema: dict[str, Any], mistake: str) -> None:
    found = errors(schema, MISTAKES[mistake][0])
    assert any(SEEN[mistake] in error for error in found), found


@pytest.mark.parametrize(
    ("table", "error"),
    [
        ("[analysis]\nresamples = 1\n", "$.analysis.resamples: 1 is less than the minimum of 2"),
        ('[analysis]\nprobe = "gaps"\n', "$.analysis.probe: 'gaps' is not valid under any"),
        ("[analysis]\nepsilon = 1\n", "$.analysis.epsilon: 1 is greater than or equal"),
        ("[analysis]\nepoch = 1\n", "$.analysis: Additional properties"),
        ('[classifier.own]\nkind = "mlp"\nepochs = 0\n', "$.classifier.own.epochs: 0 is less than"),
        ('[classifier.own]\nkind = "xgb"\nepochs = 2\n', "$.classifier.own: Additional properties"),
        ('[classifier.lr-sgd]\ndevice = "gpu"\n', "['lr-sgd'].device: 'gpu' is not one of ['cpu']"),
        ("[classifier.mlp]\ngrid = { lr = [1] }\n", "mlp.grid.lr[0]: 1 is greater than the"),
        (
            "[classifier.mlp]\ngrid = { lr = 0.1 }\n",
            "mlp.grid.lr: 0.1 is not of type 'array', 'object'",
        ),
        ("[classifier.mlp]\ngrid = { lr = { linspace = [1] } }\n", "lr.linspace: [1] is too short"),
        ("[classifier.mlp]\ngrid = { epochs = [1] }\n", "mlp.grid: Additional properties"),
        ('[classifier.mlp]\noptimizer = "SGD"\n', ".mlp.optimizer: 'SGD' is not one of ['adam'"),
        ("[classifier.cnn]\nbatch_size = 8\n", "$.classifier.cnn: Additional properties"),
        ("[classifier.mlp]\nbatch_size = 1\n", ".mlp.batch_size: 1 is less than the minimum of 2"),
        (
            "[ensembling.fge]\ncycle = 0\n",
            "$.ensembling.fge.cycle: 0 is less than the minimum of 1",
        ),
        ("[ensembling.vi]\nlog_sd = 4\n", ".vi.log_sd: 4 is greater than the maximum of 3"),
        ("[ensembling.swag]\nlr = 0\n", ".swag.lr: 0 is less than or equal to the minimum of 0"),
        ("[keep]\ntrain_accuracy = 1\n", "$.keep.train_accuracy: 1 is not of type 'boolean'"),
        ("[tune]\ndraws = 0\n", "$.tune.draws: 0 is less than the minimum of 1"),
    ],
)
def test_ranges_are_those_of_the_registry(schema: dict[str, Any], table: str, error: str) -> None:
    found = errors(schema, HEAD + GRID + table)
    assert any(error in one for one in found), found


def test_every_key_has_a_title_and_a_description(schema: dict[str, Any]) -> None:
    for table in (schema, *schema["$defs"].values()):
        for key, value in table["properties"].items():
            assert {"title", "description"} <= value.keys(), (table["title"], key)
    assert schema["properties"].keys() == SweepFile.model_fields.keys()
    tables = {name.removeprefix("classifier ") for name in schema["$defs"] if " " in name}
    assert tables == {*classifiers.names(), "own"}
