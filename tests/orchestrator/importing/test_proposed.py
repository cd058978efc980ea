"""What a refused import proposes is the command that then works; and whose rows differ is said."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from manyseed.jobs.datasets.columns import is_number, same_numbers
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.importing.filenames import common_name
from tests.orchestrator.conftest import inside
from tests.orchestrator.importing.conftest import runs_of

N, RUNS = 40, 3
CLASSES = np.array(["high", "low", "mid"])
Y = np.arange(N) % 3


def shares(seed: int) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(size=(N, 3)) + 2 * np.eye(3)[Y]
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


def long_table(
    *, ids: str = "row_id", model: str = "model", confidence: bool = True
) -> pl.DataFrame:
    frames = []
    for number, name in enumerate(("cnn", "vit")):
        for seed in range(RUNS):
            p = shares(10 * number + seed)
            frame = {
                model: [name] * N,
                "seed": [seed] * N,
                ids: list(range(N)),
                "y_true": CLASSES[Y],
                "y_pred": CLASSES[p.argmax(axis=1)],
            }
            frame |= {f"p_{one}": p[:, k] for k, one in enumerate(CLASSES)} if confidence else {}
            frames.append(pl.DataFrame(frame))
    return pl.concat(frames)


def written(folder: Path, form: str) -> list[str]:
    """Write predictions as others have them; return the words of the import."""
    seeds = folder / "wines"
    seeds.mkdir()
    for seed in range(RUNS if form != "long" else 0):
        p = shares(seed)
        held = {
            "npz of labels": {"preds": p.argmax(axis=1), "y_true": Y},
            "npz of logits and labels": {"logits": np.log(p), "labels": Y},
            "npz of shares": {"probs": p, "y_test": Y},
            "npz, each named": {"probs": p, "y_test": Y},
            "npy of shares": {"scores": p},
        }.get(form)
        file = seeds / f"seed{seed}"
        if form.startswith("npy"):
            np.save(f"{file}.npy", p)
        elif held is not None:
            np.savez(f"{file}.npz", **held)
        else:
            table = {"sample": range(N), "label": CLASSES[Y], "pred": CLASSES[p.argmax(axis=1)]}
            pl.DataFrame(table).write_csv(f"{file}.csv")
    if form == "long":
        long_table().write_csv(folder / "long.csv")
        return [str(folder / "long.csv")]
    if form == "long, of labels":
        long_table(ids="idx", model="algorithm", confidence=False).write_parquet(
            folder / "l.parquet"
        )
        return [str(folder / "l.parquet")]
    if form.startswith("npy"):
        np.save(folder / "y.npy", Y)
        return [str(seeds), "--truth", str(folder / "y.npy")]
    if form in ("npz, each named", "csv, each named"):
        return sorted(map(str, seeds.iterdir()))
    return [str(seeds)]


@pytest.mark.parametrize(
    ("form", "proposed", "models"),
    [
        ("npz of labels", "--key labels=preds", 1),
        ("npz of logits and labels", "--key y_true=labels", 1),
        ("npz of shares", "--key scores=probs,y_true=y_test --probabilities", 1),
        ("npz, each named", "--key scores=probs,y_true=y_test --probabilities --dataset wines", 1),
        ("npy of shares", "--probabilities", 1),
        ("csv, each named", "--columns truth=label,prediction=pred,row_id=sample", 1),
        (
            "long",
            "--columns truth=y_true,prediction=y_pred,confidence='p_{class}',run=seed,"
            "classifier=model",
            2,
        ),
        (
            "long, of labels",
            "--columns truth=y_true,prediction=y_pred,run=seed,classifier=algorithm,row_id=idx",
            2,
        ),
    ],
)
def test_what_is_proposed_works(form: str, proposed: str, models: int, tmp_path: Path) -> None:
    words = written(tmp_path, form)
    code, said = inside("import", *words, "--out", tmp_path / "made")
    assert (code, (tmp_path / "made").exists()) == (2, False), said
    (found,) = re.findall(r"manyseed (import .*)", said)
    assert found.endswith(f" {proposed}"), said
    typed = [
        str(one)
        for word in shlex.split(found)
        for one in (sorted(Path("/").glob(word[1:])) if "*" in word else [word])
    ]
    code, said = inside(*typed)
    assert code == 0, said
    sweep = Sweep(tmp_path / "made")
    runs = runs_of(sweep)
    if models == 1:
        assert runs["dataset"].unique().to_list() == ["wines"]
        assert "dataset wines, classifier imported" in said
    assert len(runs) == RUNS * models
    direct = [
        (shares(10 * m + s).argmax(axis=1) == Y).mean() for m in range(models) for s in range(RUNS)
    ]
    assert sorted(runs["accuracy"].to_list()) == pytest.approx(sorted(direct))


def test_a_name_of_a_classifier_that_is_given_is_not_proposed_again(tmp_path: Path) -> None:
    frame = long_table().filter(model="cnn").drop("model")
    for name in ("cnn", "vit"):
        (tmp_path / name).mkdir()
        frame.write_csv(tmp_path / name / "t.csv")
    name = ("--name", "{classifier}/t.csv", "--out", tmp_path / "made")
    code, said = inside("import", tmp_path, *name)
    assert (code, "--columns truth=y_true" in said, "classifier=" in said) == (2, True, False), said
    long_table().write_csv(tmp_path / "l.csv")
    with pytest.raises(UserError, match=r"columns=\{'truth': 'y_true'.*'classifier': 'model'"):
        Sweep.import_predictions([tmp_path / "l.csv"], tmp_path / "made")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"y_true": pl.when(pl.col("row_id") == 7).then(pl.lit("mid")).otherwise("y_true")},
            'in 1 of 40 points: the true class is "mid" in row 7, not "low"',
        ),
        ({"row_id": pl.col("row_id") + 1}, "(row_id 0, 40 are in one of them alone)"),
        ({"row_id": 39 - pl.col("row_id")}, "vit has the true classes of cnn, in another order"),
        ({"seed": pl.lit(0)}, "repeat 0, run 0 of vit predicts row 0 more than once"),
    ],
)
def test_models_of_one_table_are_named_where_their_rows_differ(
    change: dict[str, pl.Expr], said: str, tmp_path: Path
) -> None:
    frame, is_vit = long_table(confidence=False), pl.col("model") == "vit"
    for name, value in change.items():
        frame = frame.with_columns(pl.when(is_vit).then(value).otherwise(name).alias(name))
    frame.write_csv(tmp_path / "long.csv")
    columns = {"truth": "y_true", "prediction": "y_pred", "run": "seed", "classifier": "model"}
    with pytest.raises(UserError) as error:
        Sweep.import_predictions([tmp_path / "long.csv"], tmp_path / "made", columns=columns)
    assert said in str(error.value)
    assert str(error.value).count("long.csv") == 1
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("names", "common"),
    [
        (["seed0", "seed1"], "wines"),
        (["seed10", "seed11"], "wines"),
        (["digits-seed1", "digits-seed2"], "digits"),
        (["cifar10_0", "cifar10_1"], "cifar10"),
        (["0-digits", "1-digits"], "digits"),
        (["results1", "results2"], "results"),
        (["rf", "et"], "wines"),
    ],
)
def test_files_are_called_what_their_names_share(names: list[str], common: str) -> None:
    assert common_name([Path("/data/wines") / f"{name}.csv" for name in names]) == common


@pytest.mark.parametrize("label", ["٣", "３", "1٣", "३.५"])
def test_only_ascii_digits_make_a_number(label: str) -> None:
    assert not is_number(label)
    assert is_number(" 3,5 ")
    assert same_numbers([label, "3"]) == []


def test_a_tree_of_folders_is_told_how_to_be_read(tmp_path: Path) -> None:
    for run in range(2):
        for model in ("cnn", "vit"):
            folder = tmp_path / "tree" / model
            folder.mkdir(parents=True, exist_ok=True)
            np.savez(folder / f"seed-{run}.npz", scores=np.log(shares(run))[None], y_true=Y)
    out = ("--out", tmp_path / "made")
    code, said = inside("import", tmp_path / "tree", *out)
    (form,) = re.findall(r"mean: manyseed .* --name '(.*)'", said)
    assert (code, form) == (2, "{classifier}/seed-{run}.npz")
    code, said = inside("import", tmp_path / "tree", *out, "--name", form)
    assert (code, "classifiers cnn, vit" in said) == (0, True), said
