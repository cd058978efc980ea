"""What imports propose and tell of layouts that labs have: what is pasted must import."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from tests.orchestrator.conftest import inside

N, K = 90, 3
RNG = np.random.default_rng(8)
Y = RNG.integers(0, K, N)
WORDS = np.array(["ant", "bee", "cat"])


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def scores(seed: int, hard: float = 1.0) -> np.ndarray:
    base = np.random.default_rng(99).normal(size=(N, K))
    own = np.random.default_rng(seed).normal(size=(N, K)) * 0.4
    return np.asarray(base * hard + own + 1.6 * np.eye(K)[Y])


def folder(path: str) -> Path:
    Path(path).mkdir(parents=True, exist_ok=True)
    return Path(path)


def pasted(*words: str) -> str:
    """Import by the one command that is proposed; return what that says."""
    code, said = inside(*words)
    assert code == 2, said
    (line,) = re.findall("manyseed (import .*)", said)
    code, said = inside(*shlex.split(line))
    assert code == 0, said
    return said


def accuracies(directory: str, dataset: str, classifier: str) -> list[float]:
    runs = Sweep(directory).runs(dataset, classifier)
    label, true = (np.asarray(runs[name]).reshape(-1, N) for name in ("label", "y_true"))
    return sorted((label == true).mean(axis=1).tolist())


@pytest.mark.parametrize("named", ["from 1", "words", "from 1 and predicted"])
def test_columns_from_0_are_scores_of_classes_in_their_order(named: str) -> None:
    names = WORDS if named == "words" else np.arange(1, K + 1)
    for seed in range(3):
        z = scores(seed)
        own = {"label": names[Y], **{f"logit_{at}": z[:, at] for at in range(K)}}
        own |= {"y_pred": names[z.argmax(axis=1)]} if "predicted" in named else {}
        pl.DataFrame(own).write_csv(folder("lab") / f"seed{seed}.csv")
    said = pasted("import", "lab", "--out", "s")
    shown = ", ".join(map(str, names))
    assert f"seed0.csv: logit_0 to logit_2 are scores of {shown}, in this order." in said
    right = sorted(float((scores(seed).argmax(axis=1) == Y).mean()) for seed in range(3))
    assert accuracies("s", "lab", "imported") == pytest.approx(right)
    assert Sweep("s").runs("lab", "imported")["score"] is not None


def test_numbered_columns_that_predictions_contradict_are_not_read_in_that_order() -> None:
    for seed in range(3):
        z = scores(seed)
        own = {"label": Y + 1, **{f"logit_{at}": z[:, (at + 1) % K] for at in range(K)}}
        pl.DataFrame(own | {"y_pred": z.argmax(axis=1) + 1}).write_csv(
            folder("lab") / f"seed{seed}.csv"
        )
    said = pasted("import", "lab", "--out", "s")
    assert "were not read" in said
    assert "in this order" not in said


@pytest.mark.parametrize("form", ["each", "shared truth"])
def test_runs_in_json_come_with_a_command_that_makes_a_table_of_their_points(form: str) -> None:
    truth = np.array(["neg", "pos"])[Y % 2].tolist()
    runs, right = [], {"logreg": [0.0] * 2, "xgb": [0.0] * 2}
    for model in right:
        for seed in range(2):
            rng = np.random.default_rng(seed + len(model))
            p = np.clip((Y % 2) * 0.4 + rng.uniform(0, 0.6, N), 0, 1).round(4)
            label = np.where(p > 0.5, "pos", "neg").tolist()
            right[model][seed] = float(np.mean([a == b for a, b in zip(label, truth, strict=True)]))
            one = {"model": model, "seed": seed, "accuracy": right[model][seed]}
            one |= {"y_true": truth} if form == "each" else {}
            one |= {"y_pred": label, "y_prob": p.tolist(), "loss": [0.5, 0.1]}
            runs.append(one)
    held = {"dataset": "sms", "note": None, "runs": runs}
    held |= {"y_true": truth} if form == "shared truth" else {}
    Path("results.json").write_text(json.dumps(held))
    code, said = inside("import", "results.json", "--out", "s")
    assert code == 2, said
    (line,) = re.findall("python -c (.*)", said)
    subprocess.run([sys.executable, "-c", *shlex.split(line)], check=True, timeout=120)
    code, said = inside("import", "results.parquet", "--out", "s")
    assert "confidence.pos=y_prob" in said
    pasted("import", "results.parquet", "--out", "s")
    for model, of in right.items():
        assert accuracies("s", "sms", model) == pytest.approx(sorted(of))


def test_a_column_that_predictions_do_not_follow_is_no_probability() -> None:
    label = np.where(RNG.random(N) < 0.8, Y % 2, 1 - Y % 2)
    frame = pl.DataFrame({"y_true": Y % 2, "y_pred": label, "dropout": RNG.random(N)})
    frame.write_csv("one.csv")
    code, said = inside("import", "one.csv", "--out", "s")
    assert (code, "prediction=y_pred" in said, "confidence" in said) == (2, True, False), said


def test_files_of_one_name_are_told_by_their_paths() -> None:
    for model in ("cnn", "vit"):
        for seed in range(6):
            z = scores(seed + 10 * len(model) + ord(model[0]))
            z = z[RNG.permutation(N)] if (model, seed) == ("vit", 4) else z
            np.save(folder(f"lab/{model}/seed_{seed}") / "logits.npy", z.astype("float32"))
    np.save("lab/y_true.npy", Y)
    words = ("--name", "{classifier}/seed_{run}/logits.npy", "--truth", "lab/y_true.npy")
    code, said = inside("import", "lab", "--out", "s", *words)
    assert code == 0, said
    assert "vit: vit/seed_4/logits.npy disagrees with the others" in said
    told = "Names of points (test_index) would put them right, or leave it out: --exclude "
    assert f"{told}vit/seed_4/logits.npy." in said
    assert "vit/seed_4/logits.npy disagrees" in Path("s/sweep.toml").read_text()
    Path("lab/cnn/seed_2/logits.npy").write_bytes(b"no array")
    Path("lab/vit/seed_1/logits.npy").write_bytes(b"no array")
    code, said = inside("import", "lab", "--out", "t", *words)
    assert (code, "be read: vit/seed_1/logits.npy" in said) == (2, True), said


def test_files_of_one_import_are_no_several_recipes() -> None:
    for model, hard in (("gbm", 1.0), ("forest", 0.6)):
        for seed in range(2):
            z = scores(seed, hard)
            own = pl.DataFrame({"y_true": WORDS[Y], "y_pred": WORDS[z.argmax(axis=1)]})
            own.write_csv(folder("lab") / f"{model}_seed{seed}.csv")
    pasted("import", "lab", "--out", "s")
    code, said = inside("status", "s")
    assert (code, "recipes" in said) == (0, False), said


def test_runs_that_a_classifier_lacks_are_told() -> None:
    for model, hard, seeds in (("gbm", 1.0, (1, 2, 4)), ("forest", 0.6, (1, 2, 3, 4))):
        for seed in seeds:
            z = scores(seed, hard)
            own = pl.DataFrame({"y_true": WORDS[Y], "y_pred": WORDS[z.argmax(axis=1)]})
            own.write_csv(folder("lab") / f"{model}_seed{seed}.csv")
    said = pasted("import", "lab", "--out", "s")
    assert "gbm lacks run 3, which forest has. Did it fail?" in said
    assert "forest lacks" not in said


@pytest.mark.parametrize("has_failed", [True, False])
def test_jobs_that_have_settings_but_no_predictions_are_told(has_failed: bool) -> None:
    for job in range(4):
        at = folder(f"multirun/2026-01-02/03-04-05/{job}/.hydra")
        (at / "overrides.yaml").write_text(f"- seed={job}\n")
        if job != 2 or not has_failed:
            label = scores(job).argmax(axis=1)
            np.savez(at.parent / "preds.npz", labels=label, y_true=Y)
    said = pasted("import", "multirun", "--out", "s")
    told = "multirun: no predictions beside the settings of 2026-01-02/03-04-05/2. Did it fail?"
    assert (told in said) == has_failed


def test_a_cut_file_of_many_is_left_out_by_its_name_and_true_classes_are_named_at_once() -> None:
    for seed in range(12):
        np.save(folder(f"lab/cnn/seed_{seed}") / "logits.npy", scores(seed).astype("float32"))
    np.save("lab/test_labels.npy", Y)
    cut = Path("lab/cnn/seed_5/logits.npy")
    cut.write_bytes(cut.read_bytes()[:400])
    words = ("import", "lab", "--out", "s", "--name", "seed_{run}/logits.npy")
    code, said = inside(*words)
    assert "copy it again" in said
    assert "--exclude seed_5/logits.npy --truth lab/test_labels.npy" in said
    said = pasted(*words)
    assert "Imported 11 runs" in said
    code, said = inside(*words[:3], "t", *words[4:], "--exclude", "seed_77/*.npy")
    assert (code, "--exclude" in said, "no file matches it" in said) == (2, True, True), said


@pytest.mark.parametrize(
    ("names", "is_asked"),
    [
        (("class", "caption"), True),
        (("label", "label_1"), True),
        (("label", "pred"), False),
        (("gold", "caption"), False),
    ],
)
def test_names_that_fit_both_orders_of_true_and_predicted_classes_are_asked_about(
    names: tuple[str, str], is_asked: bool
) -> None:
    predicted = scores(0).argmax(axis=1)
    pl.DataFrame({names[0]: Y, names[1]: predicted}).write_csv("t.csv")
    said = inside("import", "t.csv", "--out", "s")[1]
    assert f"--columns truth={names[0]},prediction={names[1]}" in said
    swapped = f"or, if {names[1]} holds the true classes: manyseed import t.csv --out s --columns "
    assert (f"{swapped}truth={names[1]},prediction={names[0]}" in said) == is_asked, said


def test_files_of_classifiers_and_those_that_a_map_reads_are_left_out_too() -> None:
    for seed in range(3):
        for name in ("cnn", "vit"):
            label = scores(seed + 10 * (name == "vit")).argmax(axis=1)
            np.savez(folder(f"lab/{name}") / f"seed-{seed}.npz", labels=label, y_true=Y)
    both = ("--classifier", "cnn=lab/cnn", "--classifier", "vit=lab/vit")
    code, said = inside("import", *both, "--out", "both", "--exclude", "vit/seed-1.npz")
    assert (code, "Imported 5 runs" in said) == (0, True), said
    code, said = inside("import", *both, "--out", "c", "--exclude", "vit/*.npz")
    assert (code, "leaves no file of vit" in said, Path("c").exists()) == (2, True, False), said
    Path("m.toml").write_text(
        'name = "{classifier}/seed-{run}.npz"\nexclude = ["cnn/seed-2.npz"]\n'
    )
    code, said = inside("import", "lab", "--out", "d", "--map", "m.toml")
    assert (code, "Imported 5 runs" in said) == (0, True), said
    code, said = inside("import", "lab", "--out", "e", "--map", "m.toml", "--exclude", "seed-0.npz")
    assert (code, "Imported 4 runs" in said) == (0, True), said  # given, it counts more
    for wrong in ("[1]", '"x"'):
        Path("m.toml").write_text(f"exclude = {wrong}\n")
        code, said = inside("import", "lab", "--out", "f", "--map", "m.toml")
        assert (code, "must be a list of texts" in said) == (2, True), said


def long_table(wrong: int = 0, odd: str = "", form: str = "conf {class}") -> None:
    """Write runs of a model with labels and confidences, some labels wrong, one class odd."""
    frames = []
    for seed in range(3):
        p = np.exp(scores(seed))
        p /= p.sum(axis=1, keepdims=True)
        label = WORDS[p.argmax(axis=1)]
        label[:wrong] = np.where(label[:wrong] == "bee", "cat", "bee")
        own = {"rng_seed": seed, "gold": WORDS[Y], "guess": label}
        names = WORDS if form.startswith("conf") else range(K)
        own |= {form.replace("{class}", str(one)): p[:, at] for at, one in enumerate(names)}
        frames.append(pl.DataFrame(own))
    table = pl.concat(frames)
    if odd:
        table = table.with_columns(pl.col("gold").replace("bee", odd))
    table.write_csv("long.csv")


def proposed(*words: str) -> list[str]:
    code, said = inside(*words)
    (line,) = re.findall("manyseed (import .*)", said)
    assert code == 2, said
    return shlex.split(line)


@pytest.mark.parametrize("form", ["conf {class}", "prob_{class}"])
def test_predicted_labels_beside_confidences_are_read_and_must_agree(form: str) -> None:
    long_table(form=form)
    command = proposed("import", "long.csv", "--out", "s")
    assert any("prediction=guess" in word for word in command)
    assert inside(*command)[0] == 0
    long_table(wrong=7, form=form)
    code, said = inside(*command[:-3], "t", *command[-2:])
    assert (code, Path("t").exists()) == (2, False)
    assert re.search(
        r"long.csv: guess: predictions disagree with their confidences in 7 of 90 rows of run 0, "
        r'such as 0: "\w+" has 0\.\d+, "\w+" 0\.\d+',
        " ".join(said.split()),
    )
    assert "leave prediction=guess out" in said
    assert f"leave confidence={shlex.quote(form)} out of --columns" in said


@pytest.mark.parametrize("odd", ["bee ", "Bee"])
def test_a_true_class_that_differs_in_case_or_a_blank_is_no_other_class(odd: str) -> None:
    long_table(odd=odd)
    columns = "truth=gold,prediction=guess,confidence=conf {class},run=rng_seed"
    for renamed in (False, True):
        if renamed:
            pl.read_csv("long.csv").rename({"conf bee": f"conf {odd}"}).write_csv("long.csv")
        code, said = inside("import", "long.csv", "--out", "s", "--columns", columns)
        assert code == 2, said
        assert "one but for spelling: " in said
        assert f'"{odd}"' in said
        assert "rename" not in said


@pytest.mark.parametrize("options", [(), ("--probabilities",)])
@pytest.mark.parametrize("form", ["turned", "turned logits", "turned, of two", "largest alone"])
def test_scores_of_each_class_are_needed_and_their_axis_is_last(
    form: str, options: tuple[str, ...]
) -> None:
    for seed in range(3):
        p = np.exp(scores(seed))
        p /= p.sum(axis=1, keepdims=True)
        two = np.stack([p[:, 0], 1 - p[:, 0]])
        held = {"turned": p.T, "turned logits": np.log(p).T, "turned, of two": two}
        np.save(folder("lab") / f"seed{seed}.npy", held.get(form, p.max(axis=1)))
    np.save("lab/y_true.npy", Y != 0 if "two" in form else Y)
    code, said = inside("import", "lab", "--out", "s", *options)
    said = " ".join(said.split())
    assert code == 2, said
    if form == "largest alone":
        assert (
            "has shape (90,), one number for each point of a run, but there are 3 classes" in said
        )
    else:
        assert "which looks like (class, sample)" in said
        assert "save scores.T" in said


def test_the_proposed_command_says_that_scores_are_probabilities_whatever_else_is_amiss() -> None:
    for seed in range(3):
        p = np.exp(scores(seed))
        p /= p.sum(axis=1, keepdims=True)
        names = np.array(["Auto", "boot", "Car"])
        np.savez(folder("lab") / f"run{seed}.npz", probs=p, truth=names[Y])
    command = proposed("import", "lab", "--out", "s")
    assert command[-1] == "--probabilities"
    code, said = inside(*command, "--classes", "Auto,boot,Car")
    assert code == 0, said


def test_runs_that_a_classifier_lacks_are_repeated_by_answers() -> None:
    for model, hard, seeds in (("gbm", 1.0, (1, 2, 4)), ("forest", 0.6, (1, 2, 3, 4))):
        for seed in seeds:
            own = {"y_true": WORDS[Y], "y_pred": WORDS[scores(seed, hard).argmax(axis=1)]}
            pl.DataFrame(own).write_csv(folder("lab") / f"{model}_seed{seed}.csv")
    pasted("import", "lab", "--out", "s")
    assert "# import warned: gbm lacks run 3, which forest has." in Path("s/sweep.toml").read_text()
    assert inside("analyze", "s")[0] == 0
    assert "gbm lacks run 3, which forest has." in " ".join(inside("answers", "s")[1].split())


def test_runs_that_are_added_are_no_longer_told_to_be_lacking() -> None:
    y = folder("lab") / "y_true.npy"
    np.save(y, Y)
    for model, hard, seeds in (("big", 1.0, (0, 1, 2, 4, 6)), ("base", 0.6, range(8))):
        for seed in seeds:
            np.save(folder(f"lab/{model}") / f"seed_{seed}.npy", scores(seed, hard))
    names = ("--name", "{classifier}/seed_{run}.npy", "--truth", str(y))
    assert inside("import", "lab", "--out", "s", *names)[0] == 0
    told = "# import warned: big lacks runs 3, 5, 7, which base has. Did it fail?\n"
    assert told in Path("s/sweep.toml").read_text()
    for seed in (3, 5, 7):
        np.save(folder("late" if seed < 6 else "last") / f"seed_{seed}.npy", scores(seed))
    added = ("--classifier", "big", "--truth", str(y))
    code, said = inside("import", "s", "late", *added)
    assert (code, "are added as runs 3, 5, as their names say." in said) == (0, True), said
    left = told.replace("runs 3, 5, 7", "run 7")
    assert [left in Path("s/sweep.toml").read_text(), inside("analyze", "s")[0]] == [True, 0]
    assert "big lacks run 7, which base has." in " ".join(inside("answers", "s")[1].split())
    assert inside("import", "s", "last", *added)[0] == 0
    assert "import warned" not in Path("s/sweep.toml").read_text()


@pytest.mark.parametrize("runs", ["run 3,", "runs 3, , 3", "runs , ,"])
def test_what_users_made_of_the_line_on_lacking_runs_keeps_no_file_out(runs: str) -> None:
    """The file that was added was called damaged."""
    y = folder("lab") / "y_true.npy"
    np.save(y, Y)
    for model, seeds in (("big", (0, 1, 2)), ("base", range(4))):
        for seed in seeds:
            np.save(folder(f"lab/{model}") / f"seed_{seed}.npy", scores(seed))
    names = ("--name", "{classifier}/seed_{run}.npy", "--truth", str(y))
    assert inside("import", "lab", "--out", "s", *names)[0] == 0
    file = Path("s/sweep.toml")
    file.write_text(file.read_text().replace("lacks run 3,", f"lacks {runs},"))
    np.save(folder("late") / "seed_3.npy", scores(3))
    code, said = inside("import", "s", "late", "--classifier", "big", "--truth", str(y))
    assert code == 0, said
    assert ("big lacks" in file.read_text()) == ("3" not in runs)


@pytest.mark.parametrize("form", ["files", "table", "one array"])
def test_a_run_in_another_order_is_left_out_by_what_is_told(form: str) -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 4, 600)
    usual = rng.normal(size=(600, 4)) + 1.5 * np.eye(4)[y]
    label = [(usual + 0.4 * rng.normal(size=usual.shape)).argmax(axis=1) for _ in range(5)]
    label[4] = rng.permutation(label[4])
    words = ["import", "lab", "--out", "s"]
    folder("lab")
    if form == "files":
        for run, one in enumerate(label):
            np.savez(f"lab/seed{run}.npz", labels=one, y_true=y)
    elif form == "table":
        each = [{"run": run, "truth": y, "prediction": one} for run, one in enumerate(label)]
        pl.concat(map(pl.DataFrame, each)).write_csv("lab/long.csv")
    else:
        np.savez("lab/all.npz", labels=np.stack(label), y_true=y)
    code, said = inside(*words)
    said = " ".join(said.split())
    assert code == 0, said
    if form == "one array":
        assert "run 4 of all.npz disagrees with the others" in said
        assert "--exclude" not in said
        return
    (left,) = re.findall(r"or leave it out: (--exclude \S+)\.", said)
    assert ("seed0" in said) is False
    code, again = inside(*words[:-1], "t", *left.split())
    assert (code, "disagrees" in again) == (0, False), again


@pytest.mark.parametrize("is_named", [True, False])
def test_true_classes_and_predictions_that_are_exchanged_are_told(is_named: bool) -> None:
    truth, prediction = ("gold", "guess") if is_named else ("prediction", "truth")
    pl.concat(
        pl.DataFrame(
            {
                "row_id": np.arange(N),
                "run": [run] * N,
                truth: WORDS[Y],
                prediction: WORDS[scores(run).argmax(axis=1)],
            }
        )
        for run in range(3)
    ).write_csv("long.csv")
    columns = ("--columns", "truth=guess,prediction=gold,row_id=row_id,run=run") * is_named
    said = " ".join(inside("import", "long.csv", "--out", "s", *columns)[1].split())
    assert f"true classes differ between runs, and predictions ({truth}) do not" in said
    assert ("if truth and prediction are exchanged: " in said, "--exclude" in said) == (True, False)
    pasted("import", "long.csv", "--out", "s", *columns)
    right = sorted((scores(run).argmax(axis=1) == Y).mean() for run in range(3))
    assert accuracies("s", "long", "imported") == pytest.approx(right)


@pytest.mark.parametrize("classes", [(), ("--classes", "ant,bee,cat")])
def test_runs_that_are_added_are_of_the_true_classes_of_the_sweep(classes: tuple[str, ...]) -> None:
    np.save(folder("lab") / "y_true.npy", Y)
    for seed in range(6):
        p = np.exp(scores(seed))
        p /= p.sum(axis=1, keepdims=True)
        np.save(folder("lab" if seed < 3 else "late") / f"seed_{seed}.npy", p)
    words = ("--out", "s", "--dataset", "lab", "--probabilities", *classes)
    code, said = inside("import", "lab", *words)
    assert code == 0, said
    code, said = inside("import", "s", "late", "--probabilities")
    told = " ".join(said.split())
    assert (code, "No file has true classes, so those of s are taken" in told) == (0, True), said
    right = sorted((scores(run).argmax(axis=1) == Y).mean() for run in range(6))
    assert accuracies("s", "lab", "imported") == pytest.approx(right)
    code, said = inside("import", "s", "late", "--probabilities")
    assert (code, "in the sweep already" in said) == (2, True), said
    p = np.exp(scores(8))
    np.save(folder("last") / "seed_8.npy", p / p.sum(axis=1, keepdims=True))
    assert "added as run 6" in pasted("import", "s", "last")
    np.save(folder("short") / "seed_7.npy", np.eye(3)[Y[:-1]])
    code, said = inside("import", "s", "short", "--probabilities")
    assert (code, "y_true is missing" in said) == (2, True), said
