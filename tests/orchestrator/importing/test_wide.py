"""One file with the predictions of several models, or with scores of the second class alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.orchestrator.conftest import inside
from tests.orchestrator.importing.test_models import accuracies, followed

N = 90
ACCURACY = {"rf": 0.9, "xgb-2": 0.7}
NAMES = {2: ["ham", "spam"], 3: ["ant", "bee", "cat"]}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def planted(k: int, run: int = 0) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return true classes (sample,), and probabilities (sample, class) by model."""
    rng = np.random.default_rng(run)
    y = np.arange(N) % k
    p = {}
    for number, (model, share) in enumerate(ACCURACY.items()):
        wrong = (np.arange(N) + 7 * number + 11 * run) % N >= round(share * N)
        best = np.where(wrong, (y + 1) % k, y)
        scores = rng.uniform(0, 1, (N, k))
        scores[np.arange(N), best] += 1.5
        p[model] = scores / scores.sum(axis=1, keepdims=True)
    return y, p


def is_right(sweep: Path, n_runs: int = 1) -> bool:
    found = accuracies(sweep)
    return found.keys() == ACCURACY.keys() and all(
        np.allclose(found[model], [share] * n_runs) for model, share in ACCURACY.items()
    )


@pytest.mark.parametrize("form", ["{}_pred", "pred_{}", "y_pred_{}", "{}", "{}.prediction"])
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("named", [True, False])
def test_columns_of_labels_for_each_model(form: str, k: int, named: bool) -> None:
    y, p = planted(k)
    names = np.array(NAMES[k]) if named else np.arange(k)
    table = {"id": np.arange(N) + 5, "y_true": names[y]}
    table |= {form.format(model): names[each.argmax(axis=1)] for model, each in p.items()}
    pl.DataFrame(table).write_csv("all.csv")
    assert is_right(followed("all.csv"))


@pytest.mark.parametrize("form", ["{}_p_{}", "proba_{}_{}", "{}.{}"])
@pytest.mark.parametrize("kind", ["confidence", "logits"])
@pytest.mark.parametrize("k", [2, 3])
def test_columns_of_scores_for_each_model_and_class(form: str, kind: str, k: int) -> None:
    y, p = planted(k)
    table: dict[str, object] = {"label": np.array(NAMES[k])[y]}
    for model, each in p.items():
        values = each if kind == "confidence" else np.log(each)
        table |= {form.format(model, one): values[:, at] for at, one in enumerate(NAMES[k])}
    pl.DataFrame(table).write_parquet("all.parquet")
    assert is_right(followed("all.parquet"))


@pytest.mark.parametrize("form", ["{}_probs", "scores_{}", "{}"])
@pytest.mark.parametrize("n_runs", [1, 3])
def test_entries_for_each_model(form: str, n_runs: int) -> None:
    y, _ = planted(3)
    runs = [planted(3, run)[1] for run in range(n_runs)]
    held = {form.format(model): np.stack([run[model] for run in runs]) for model in ACCURACY}
    held = {name: each[0] if n_runs == 1 else each for name, each in held.items()}
    np.savez("all.npz", y=y, **held)
    assert is_right(followed("all.npz"), n_runs)


def test_a_file_for_each_seed_with_columns_for_each_model() -> None:
    Path("runs").mkdir()
    for run in range(3):
        y, p = planted(3, run)
        table = {"y": y} | {f"{model}_pred": each.argmax(axis=1) for model, each in p.items()}
        pl.DataFrame(table).write_csv(f"runs/seed{run}.csv")
    assert is_right(followed("runs"), 3)


def test_columns_for_each_model_and_run() -> None:
    y, _ = planted(3)
    table = {"y": y}
    for run in range(3):
        of = planted(3, run)[1]
        table |= {f"{model}_s{run}": each.argmax(axis=1) for model, each in of.items()}
    pl.DataFrame(table).write_csv("all.csv")
    columns = "truth=y,prediction={classifier}_s{run}"
    code, said = inside("import", "all.csv", "--out", "made", "--columns", columns)
    assert (code, "not read" in said) == (0, False), said
    assert is_right(Path("made"), 3)


def test_what_no_form_names_is_told() -> None:
    y, p = planted(3)
    table = {"y": y} | {f"{model}_pred": each.argmax(axis=1) for model, each in p.items()}
    pl.DataFrame({**table, "note": ["x"] * N}).write_csv("all.csv")
    columns = "truth=y,prediction={classifier}_pred"
    code, said = inside("import", "all.csv", "--out", "made", "--columns", columns)
    assert code == 0
    assert "column note was not read" in said
    np.savez("all.npz", y=y, loss=np.ones(3), **{f"{model}_p": each for model, each in p.items()})
    for n, key in enumerate(("scores={classifier}_p,y_true=y", "scores=rf_p,y_true=y")):
        code, said = inside("import", "all.npz", "--out", f"m{n}", "--key", key, "--probabilities")
        assert code == 0, said
        left = "entry loss was" if n == 0 else "entries loss, xgb-2_p were"
        assert f"all.npz: {left} not read" in said


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("all.csv", "--columns", "truth=y,prediction={classifier}_label"), "no such column"),
        (("all.csv", "--columns", "truth=y,prediction={classifier}{classifier}"), "twice"),
        (
            ("all.csv", "--columns", "truth=y,classifier=m,prediction={classifier}_pred"),
            "say it once",
        ),
        (
            ("all.csv", "--classifier", "a", "--columns", "truth=y,prediction={classifier}_pred"),
            "say it once",
        ),
        (("all.npz", "--key", "scores={classifier}_q,y_true=y"), "there is no such entry"),
        (
            (
                "all.csv",
                "--columns",
                "truth=y,prediction={classifier}_pred,confidence={classifier}_{class}",
            ),
            "are of other classifiers: {classifier}_pred of rf, xgb-2",
        ),
    ],
)
def test_forms_that_cannot_be_are_refused(words: tuple[str, ...], problem: str) -> None:
    y, p = planted(2)
    table = {"y": y, "m": ["a"] * N}
    table |= {f"{model}_pred": each.argmax(axis=1) for model, each in p.items()}
    table |= {f"xgb-2_{each}": p["xgb-2"][:, each] for each in (0, 1)}
    pl.DataFrame(table).write_csv("all.csv")
    np.savez("all.npz", y=y, **{f"{model}_p": each for model, each in p.items()})
    code, said = inside("import", *words, "--out", "made")
    assert (code, Path("made").exists()) == (2, False)
    assert problem in " ".join(said.split())


@pytest.mark.parametrize("names", [NAMES[2], ["0", "1"], ["no", "yes"], ["10", "9"]])
def test_probabilities_of_the_second_class_alone(names: list[str]) -> None:
    y, p = planted(2)
    first, second = sorted(names, key=lambda name: float(name) if name.isdecimal() else 0)
    for at, name in enumerate(("right", "turned")):
        values = p["rf"][:, 1 - at]
        pl.DataFrame({"y_true": np.array([first, second])[y], "score": values}).write_csv("one.csv")
        code, said = inside("import", "one.csv", "--out", "no")
        assert (code, f"confidence.{second}=score" in said) == (2, True), said
        words = ("--out", name, "--columns", f"truth=y_true,confidence.{second}=score")
        code, said = inside("import", "one.csv", *words)
        said = " ".join(said.split())
        assert (code, f'is read as the probability of class "{second}"' in said) == (0, True), said
        assert ("would have 0.90 with its classes in the order" in said) == bool(at)
        assert accuracies(Path(name)) == {"imported": [pytest.approx(abs(at - ACCURACY["rf"]))]}


@pytest.mark.parametrize("truth", ["y", "gt", "targets"])
@pytest.mark.parametrize("named", [True, False])
def test_entries_that_are_called_labels_are_predictions_beside_true_classes(
    truth: str, named: bool
) -> None:
    y, _ = planted(3)
    names = np.array(NAMES[3]) if named else np.arange(3)
    runs = np.stack([planted(3, run)[1]["rf"].argmax(axis=1) for run in range(4)])
    np.savez("all.npz", labels=names[runs], **{truth: names[y]})
    assert accuracies(followed("all.npz")) == {"imported": [pytest.approx(0.9)] * 4}


@pytest.mark.parametrize("form", ["{seed}/{model}.npz", "{model}/{seed}.npz"])
def test_folders_that_are_numbers_are_runs_of_the_models_in_them(form: str) -> None:
    for run, seed in enumerate((42, 7, 3)):
        y, p = planted(3, run)
        for model, each in p.items():
            file = Path("lab") / form.format(seed=seed, model=model)
            file.parent.mkdir(parents=True, exist_ok=True)
            np.savez(file, y_true=y, labels=each.argmax(axis=1))
    assert is_right(followed("lab"), 3)
