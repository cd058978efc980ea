"""Random layouts of predictions with a planted truth: what is imported is right, or refused.

A refusal must propose a command; what that imports must be right, too.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from manyseed import Sweep
from tests.orchestrator.conftest import inside

Runs = dict[tuple[str, str], list[np.ndarray]]
"""Labels of each run, by data set and classifier, in the order of their seeds."""
_WORDS = ["cat", "dog", "emu", "fox", "gnu"]
_MOST_COMMANDS = 4


class Lab:
    """What a lab did: true classes and predictions, and how it writes them."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = np.random.default_rng(seed)
        self.k = int(rng.integers(2, 5))
        self.n = int(rng.integers(40, 90))
        self.models = ["cnn", "vit", "mlp"][: int(rng.integers(1, 4))]
        self.seeds = sorted(rng.choice(60, int(rng.integers(2, 5)), replace=False).tolist())
        if rng.random() < 0.5:
            self.seeds = list(range(len(self.seeds)))
        self.y = rng.permutation(np.arange(self.n) % self.k)
        self.coding = str(rng.choice(["words", "from 0", "from 1"]))
        self.scores: dict[tuple[str, int], np.ndarray] = {}
        for model in self.models:
            hard = rng.normal(size=(self.n, self.k))
            for run in self.seeds:
                own = hard + rng.normal(size=(self.n, self.k)) + 1.7 * np.eye(self.k)[self.y]
                self.scores[model, run] = own.astype(np.float32).round(4)
        self.order = rng.permutation(self.n)

    def sorted(self, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return data sets and classifiers in the order of the models."""
        place = {model: at for at, model in enumerate(self.models)}
        return sorted(
            pairs, key=lambda pair: min((place[m] for m in place if m in pair[1]), default=0)
        )

    def names(self, codes: np.ndarray) -> np.ndarray:
        if self.coding == "words":
            return np.array(_WORDS)[codes]
        return codes + (self.coding == "from 1")

    def label(self, model: str, run: int) -> np.ndarray:
        return np.asarray(self.scores[model, run].argmax(axis=1))

    def p(self, model: str, run: int) -> np.ndarray:
        z = np.exp(self.scores[model, run].astype(float))
        return np.asarray(z / z.sum(axis=1, keepdims=True)).round(6)

    def right(self, models: list[str] | None = None) -> list[list[np.ndarray]]:
        """Whether each run is right in each point, by classifier."""
        return [
            [self.label(model, run) == self.y for run in self.seeds]
            for model in models or self.models
        ]

    def table(self, model: str, run: int, *, scores: str, truth: bool = True) -> pl.DataFrame:
        of_truth = {"y_true": self.names(self.y)} if truth else {}
        own: dict[str, Any] = {"y_pred": self.names(self.label(model, run))}
        classes = self.names(np.arange(self.k))
        if scores == "proba":
            p = self.p(model, run)
            own |= {f"proba_{name}": p[:, at] for at, name in enumerate(classes)}
        elif scores == "logit":
            z = self.scores[model, run].astype(float)
            own |= {f"logit_{name}": z[:, at] for at, name in enumerate(classes)}
        return pl.DataFrame({**of_truth, **own})


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def written(lab: Lab, frame: pl.DataFrame, path: Path, how: str) -> None:
    """Write a table, as programs of many countries do."""
    put(path)
    if how == "parquet":
        frame.write_parquet(path.with_suffix(".parquet"))
    elif how == "semicolon":
        text = frame.write_csv(separator=";", decimal_comma=True)
        path.with_suffix(".csv").write_text(text)
    elif how == "windows":
        path.with_suffix(".csv").write_text(frame.write_csv(line_terminator="\r\n"), newline="")
    elif how == "open":
        path.with_suffix(".csv").write_text(frame.write_csv().rstrip())
    elif how == "jsonl":
        frame.write_ndjson(path.with_suffix(".jsonl"))
    else:
        frame.write_csv(path.with_suffix(".csv"))


def where(lab: Lab) -> Callable[[str, int], Path]:
    """Return how paths name classifiers and seeds."""
    forms = ["{m}/seed_{s}", "{m}_seed{s}", "{m}/run-{s}/preds", "seed{s}/{m}", "{m}/{s}"]
    if len(lab.models) == 1:
        forms = ["seed_{s}", "run{s}", "seed-{s}/preds", "{m}_{s}"]
    form = str(lab.rng.choice(forms))
    return lambda m, s: Path("lab", form.format(m=m, s=s))


def tables(lab: Lab) -> list[list[np.ndarray]]:
    """A table for each run."""
    how = str(lab.rng.choice(["csv", "parquet", "semicolon", "windows", "open", "jsonl"]))
    scores = str(lab.rng.choice(["", "proba", "logit"]))
    ids = str(lab.rng.choice(["", "numbers", "words"]))
    at = where(lab)
    for model in lab.models:
        for run in lab.seeds:
            frame = lab.table(model, run, scores=scores)
            if ids:
                own = np.arange(lab.n) + 100
                named = own if ids == "numbers" else np.array([f"img_{n}.png" for n in own])
                frame = frame.insert_column(0, pl.Series("sample_id", named))
                frame = frame[lab.rng.permutation(lab.n).tolist()]
            written(lab, frame, at(model, run), how)
    return lab.right()


def arrays(lab: Lab) -> list[list[np.ndarray]]:
    """A file of arrays for each run: NPZ or PyTorch."""
    at, kind = where(lab), str(lab.rng.choice(["npz", "pt"]))
    what = str(lab.rng.choice(["labels", "logits", "probs"]))
    apart = lab.rng.random() < 0.3  # true classes
    codes = lab.coding != "words" or kind == "pt"
    name = (lambda c: c + (lab.coding == "from 1")) if codes else lab.names
    for model in lab.models:
        for run in lab.seeds:
            held: dict[str, Any] = {"y_true": name(lab.y)}
            if what == "labels":
                held["y_pred"] = name(lab.label(model, run))
            else:
                own = lab.scores[model, run] if what == "logits" else lab.p(model, run)
                held[what] = own
            if apart:
                del held["y_true"]
            path = put(at(model, run)).with_suffix(f".{kind}")
            if kind == "npz":
                np.savez_compressed(path, **held)
            else:
                torch.save({key: torch.as_tensor(value) for key, value in held.items()}, path)
    if apart:
        np.save("lab/y_test.npy", name(lab.y))
    return lab.right()


def columns_of_seeds(lab: Lab) -> list[list[np.ndarray]]:
    """A table for each classifier, with a column for each seed."""
    how = str(lab.rng.choice(["csv", "parquet", "windows"]))
    for model in lab.models:
        own = {f"seed_{run}": lab.names(lab.label(model, run)) for run in lab.seeds}
        frame = pl.DataFrame({"id": np.arange(lab.n), "label": lab.names(lab.y), **own})
        written(lab, frame, Path("lab", model), how)
    return lab.right()


def one_table(lab: Lab) -> list[list[np.ndarray]]:
    """One table of all runs, in a shuffled order."""
    frames = []
    for model in lab.models:
        for run in lab.seeds:
            own = lab.table(model, run, scores=str(["", "proba"][lab.k % 2]))
            keys = {"model": [model] * lab.n, "seed": [run] * lab.n, "idx": np.arange(lab.n)}
            frames.append(pl.concat([pl.DataFrame(keys), own], how="horizontal"))
    frame = pl.concat(frames)
    how = str(lab.rng.choice(["csv", "parquet", "semicolon"]))
    written(lab, frame[lab.rng.permutation(len(frame)).tolist()], Path("lab", "all"), how)
    return lab.right()


def numbered_scores(lab: Lab) -> list[list[np.ndarray]]:
    """Logits numbered from 0 beside true classes from 1: a table or an array for each run."""
    lab.coding, at = "from 1", where(lab)
    kind = str(lab.rng.choice(["csv", "parquet", "npz"]))
    for model in lab.models:
        for run in lab.seeds:
            z, path = lab.scores[model, run], at(model, run)
            if kind == "npz":
                np.savez(put(path).with_suffix(".npz"), logits=z, y_true=lab.names(lab.y))
                continue
            own = {f"logit_{c}": z[:, c].astype(float) for c in range(lab.k)}
            written(lab, pl.DataFrame({"y_true": lab.names(lab.y), **own}), path, kind)
    return lab.right()


def stacked(lab: Lab) -> list[list[np.ndarray]]:
    """An NPZ for each classifier, with all its runs."""
    is_last = lab.rng.random() < 0.3  # of the axes, that of the runs
    for model in lab.models:
        labels = np.stack([lab.label(model, run) for run in lab.seeds])
        scores = np.stack([lab.scores[model, run] for run in lab.seeds])
        held: dict[str, Any] = {"scores": scores} if lab.n % 2 else {"labels": labels}
        if is_last:
            held = {key: np.moveaxis(value, 0, -1) for key, value in held.items()}
        np.savez(put(Path("lab", f"{model}.npz")), y_true=lab.y, **held)
    return lab.right()


def truth_apart(lab: Lab) -> list[list[np.ndarray]]:
    """Tables of predictions, and one of true classes with ids in another order."""
    has_ids = lab.rng.random() < 0.6
    for model in lab.models:
        for run in lab.seeds:
            frame = lab.table(model, run, scores="", truth=False)
            if has_ids:
                frame = frame.insert_column(0, pl.Series("id", np.arange(lab.n)))
                frame = frame[lab.rng.permutation(lab.n).tolist()]
            written(lab, frame, Path("lab", f"{model}_seed{run}"), "csv")
    true = pl.DataFrame({"label": lab.names(lab.y)})
    if has_ids:
        true = true.insert_column(0, pl.Series("id", np.arange(lab.n)))[lab.order.tolist()]
    name = str(lab.rng.choice(["y_true.csv", "y_test.csv", "labels.csv", "truth.csv"]))
    true.write_csv(put(Path("lab", name)))
    return lab.right()


def one_of_two(lab: Lab) -> list[list[np.ndarray]]:
    """Tables of two classes with the probability of the second alone."""
    lab.y = lab.y % 2
    for own in lab.scores.values():
        own[:, 2:] = -20
    for model in lab.models:
        for run in lab.seeds:
            p = lab.p(model, run)[:, 1]
            assert ((p > 0.5) == (lab.label(model, run) == 1)).all()
            frame = pl.DataFrame({"y_true": lab.names(lab.y), "y_prob": p})
            written(lab, frame, Path("lab", f"{model}_seed{run}"), "csv")
    return lab.right()


def json_lines(lab: Lab) -> list[list[np.ndarray]]:
    """JSON Lines with the probabilities of a point by class, or as a list of logits."""
    lab.coding = "words" if lab.n % 2 else lab.coding  # of which logits.0 are the first
    at = where(lab)
    for model in lab.models:
        for run in lab.seeds:
            rows = []
            for n, own in enumerate(lab.p(model, run).tolist()):
                true = lab.names(lab.y)[n].item()
                if lab.n % 2:
                    probs: Any = dict(zip(_WORDS[: lab.k], own, strict=True))
                    rows.append({"id": n, "label": true, "probs": probs})
                else:
                    given = lab.scores[model, run][n].tolist()
                    rows.append({"idx": n, "label": true, "logits": given})
            text = "\n".join(map(json.dumps, rows))
            put(at(model, run)).with_suffix(".jsonl").write_text(text)
    return lab.right()


KINDS = (
    *(tables, tables, arrays, arrays, columns_of_seeds, one_table, stacked, truth_apart),
    *(one_of_two, json_lines, numbered_scores),
)


ASKED = ("may be meant in two ways", "has its axes in another order")
"""What no command can settle."""


def imported(out: str) -> tuple[str, str]:
    """Import the folder by the commands that are proposed; return outcome and what was said."""
    words, said = ["import", "lab", "--out", out], ""
    for count in range(_MOST_COMMANDS):
        code, now = inside(*words)
        said += f"$ {shlex.join(words)}\n{now}\n"
        if code == 0:
            return ("right" if count == 0 else "proposed"), said
        proposals = re.findall("manyseed (import .*)", now)
        if "save it as (run, sample, class)" in now:
            return ASKED[0], said
        if "save scores.transpose(2, 1, 0)" in now:
            return ASKED[1], said
        if code != 2 or not proposals:
            return "no command", said
        words = shlex.split(proposals[0])
    return "too many commands", said


def check(lab: Lab, expected: list[list[np.ndarray]], out: str, *, whole: bool) -> str:
    """Return what is wrong with an import, "" if nothing is."""
    text = Path(out, "sweep.toml").read_text("utf-8")
    pairs = re.findall(r'dataset    = \["(.*)"\]\nclassifier = \["(.*)"\]', text)
    if len(pairs) != len(expected):
        return f"{pairs}, not {len(expected)} classifiers"
    names = [classifier for _, classifier in pairs]
    if len(names) > 1 and not all(any(m in one for one in names) for m in lab.models):
        return f"classifiers are {names}"
    tables_of = Sweep(out).analyze() if whole else None
    for (dataset, classifier), right in zip(lab.sorted(pairs), expected, strict=True):
        runs = Sweep(out).runs(dataset, classifier)
        label, true = (np.asarray(runs[name]) for name in ("label", "y_true"))
        found = label.reshape(-1, lab.n) == true.reshape(-1, lab.n)
        mine = sorted(one.mean() for one in right)
        if not np.allclose(sorted(found.mean(axis=1)), mine):
            return f"{classifier}: accuracies {found.mean(axis=1)}, not {mine}"
        both = [sorted((a & b).sum() for a, b in combinations(of, 2)) for of in (found, right)]
        if both[0] != both[1]:
            return f"{classifier}: points that two runs get right {both}"
        if tables_of is None:
            continue
        of = (pl.col("classifier") == classifier) & (pl.col("dataset") == dataset)
        kappa = sorted(tables_of["pairs"].filter(of)["ec_local"].to_list())
        own = sorted((~a & ~b).sum() / (~a | ~b).sum() for a, b in combinations(right, 2))
        if not np.allclose(kappa, own):
            return f"{classifier}: error consistency {kappa}, not {own}"
        accuracy = tables_of["runs"].filter(of).sort("run_index")["accuracy"]
        if not np.allclose(accuracy, [one.mean() for one in right]):
            return f"{classifier}: runs are in another order"
    return ""


def outcome(seed: int, *, whole: bool) -> tuple[str, str, str]:
    """Import one random layout; return its kind, the outcome and what was said."""
    lab = Lab(seed)
    kind = KINDS[seed % len(KINDS)]
    expected = kind(lab)
    result, said = imported("s")
    if result in ("right", "proposed") and (wrong := check(lab, expected, "s", whole=whole)):
        return kind.__name__, "wrong", f"{wrong}\n{said}"
    return kind.__name__, result, said


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", range(0, 160, 20))
def test_what_is_imported_is_right_or_refused_with_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    counts, faults = Counter[str](), []
    for seed in range(first, first + 20):
        folder = tmp_path / str(seed)
        folder.mkdir()
        monkeypatch.chdir(folder)
        kind, result, said = outcome(seed, whole=seed % 4 == 0)
        counts[result] += 1
        if result not in ("right", "proposed", *ASKED):
            faults.append(f"{seed} {kind}: {result}\n{said}")
    assert not faults, f"{counts}\n" + "\n".join(faults)
