"""The sweeps of a storm: sweep files, and the users' own code that they name.

Response curves are measured on single networks, so no file has both curves and ensembling methods.
"""

from __future__ import annotations

MODULES = {
    "stormy.py": '''
import numpy as np
from pathlib import Path
from sklearn.base import BaseEstimator

import weather


class Nearest(BaseEstimator):
    """The nearest mean of a class, of rows that are drawn with replacement."""

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, X, y):
        rng = np.random.default_rng(self.random_state)
        rows = np.concatenate([rng.permutation(len(y))[: len(y) // 2], weather.first(y)])
        self.classes_ = np.unique(y)
        self.means = np.stack([X[rows][y[rows] == c].mean(axis=0) for c in self.classes_])
        return self

    def decision_function(self, X):
        values = -((X[:, None] - self.means) ** 2).sum(axis=2)
        return values if len(self.classes_) > 2 else values[:, 1] - values[:, 0]


class Fragile(Nearest):
    """Raises where the seed says so."""

    def fit(self, X, y):
        if self.random_state is not None and self.random_state % 4 == 0 and len(y) > 64:
            raise ValueError("lightning")
        return super().fit(X, y)


def fit(X, y, X_test, n_classes, hparams, init, batch, checkpoint):
    """Train one hidden layer, and save all that goes on, every few epochs."""
    n, hidden, saved = X.shape[1], hparams["hidden"], Path(checkpoint or ".") / "state.npz"
    W = init.normal(size=(n, hidden)) / np.sqrt(n)
    V = init.normal(size=(hidden, n_classes)) / np.sqrt(hidden)
    begin = 0
    if checkpoint is not None and saved.exists():
        with np.load(saved, allow_pickle=True) as state:
            W, V, begin = state["W"], state["V"], int(state["epoch"])
            batch.bit_generator.state = state["batch"].item()
    wanted = np.eye(n_classes)[y]
    for epoch in range(begin, hparams["epochs"]):
        if checkpoint is not None and epoch % 10 == 0:
            part = saved.with_name("part.npz")
            np.savez(part, W=W, V=V, epoch=epoch, batch=np.array(batch.bit_generator.state))
            part.replace(saved)
        for rows in np.array_split(batch.permutation(len(y)), max(1, len(y) // 16)):
            H = np.tanh(X[rows] @ W)
            logits = H @ V
            shares = np.exp(logits - logits.max(axis=1, keepdims=True))
            error = (shares / shares.sum(axis=1, keepdims=True) - wanted[rows]) / len(rows)
            back = (error @ V.T) * (1 - H**2)
            V -= hparams["lr"] * H.T @ error
            W -= hparams["lr"] * X[rows].T @ back
    logits = np.tanh(X_test @ W) @ V
    return logits if n_classes > 2 else logits[:, 1] - logits[:, 0]
''',
    "weather.py": '''
import numpy as np


def first(y):
    """Return the first row of each class."""
    return np.unique(y, return_index=True)[1]
''',
}
"""Files next to the sweep file."""

_METHODS = """
name    = "storm"
seed    = 17
repeats = 2
runs    = {runs}

[keep]
scores         = "margin"
train_accuracy = true

[analysis]
deep_draws = 2
deep_runs  = 6

[[grid]]                          # a few tenths of a second a fit
dataset            = ["points"]
classifier         = ["xgb", "lr-sgd", "nearest"]
train_fraction     = [0.5, 1.0]
perturb_continuous = ["relative:0.1"]

[[grid]]
dataset    = ["digits"]
classifier = ["mlp"]
vary       = ["init", "init+batch"]

[[grid]]                          # about a second, with checkpoints in mid-cycle
dataset    = ["images"]
classifier = ["convnet"]
ensembling = ["none", "csgld"]
augment    = ["rotate:30"]

[[grid]]                          # about a second, saved by itself
dataset    = ["unasked"]
classifier = ["function"]

[[grid]]                          # identical: one fit, the others are its copies
dataset    = ["cancer"]
classifier = ["xgb"]

[[grid]]                          # three points are of one class: these fits raise
dataset        = ["rare"]
classifier     = ["lr-sgd"]
train_fraction = [3, 1.0]

[dataset.points]
source     = "synthetic:gaussian"
n_samples  = 4000
n_features = 30
test       = 1000

[dataset.digits]
source = "sklearn:digits"

[dataset.images]                  # deep ensembles need scores of all classes
source = "sklearn:digits"
keep   = {{ scores = "all" }}

[dataset.unasked]                 # a training function hands over no model
source    = "synthetic:gaussian"
n_samples = 3000
test      = 500
keep      = {{ train_accuracy = false }}

[dataset.cancer]
source = "sklearn:breast_cancer"

[dataset.rare]
source    = "synthetic:gaussian"
n_samples = 400
weights   = [0.97, 0.03]

[classifier.mlp]
epochs    = 4
snapshots = [2, 4]

[classifier.convnet]
optimizer  = "sgd"
epochs     = 3
hparams    = {{ depth = 1, width = 4, lr = 0.05 }}

[ensembling.csgld]
members      = 12
cycle        = 6
noise_epochs = 2
saves        = 2
lr           = 0.05

[classifier.nearest]
estimator = "stormy:Nearest"

[classifier.function]
train  = "stormy:fit"
params = {{ hidden = 16, epochs = 240, lr = 0.02 }}
encode = "dense"
"""

_CURVES = """
name    = "storm"
seed    = 17
repeats = 2
runs    = {runs}

[keep]
train_accuracy = true

[response]
transforms      = ["intra", "rotate:90"]
rows            = 100
magnitudes      = 5
pair_magnitudes = 4

[[grid]]
dataset            = ["digits"]
classifier         = ["lr-sgd", "nearest", "fragile"]
train_fraction     = [0.25, 1.0]
perturb_continuous = ["relative:0.1"]

[[grid]]
dataset    = ["digits"]
classifier = ["mlp"]
vary       = ["init", "init+batch"]

[[grid]]
dataset    = ["digits"]
classifier = ["convnet"]
augment    = ["none", "rotate:30"]

[[grid]]                          # identical: one fit, the others are its copies
dataset    = ["digits"]
classifier = ["bayes"]

[dataset.digits]
source = "sklearn:digits"

[classifier.mlp]
epochs    = 4
snapshots = [2, 4]

[classifier.convnet]
epochs  = 6
hparams = {{ depth = 1, width = 4 }}

[classifier.nearest]
estimator = "stormy:Nearest"

[classifier.fragile]
estimator = "stormy:Fragile"
version   = 2

[classifier.bayes]
estimator = "sklearn.naive_bayes:GaussianNB"
seeds     = {{}}
"""

SWEEPS = {"curves": _CURVES, "methods": _METHODS}

QUICK = """
name    = "storm"
seed    = 17
repeats = 2
runs    = {runs}

[[grid]]
dataset            = ["points"]
classifier         = ["xgb", "lr-sgd", "nearest"]
perturb_continuous = ["relative:0.1"]

[[grid]]
dataset    = ["cancer"]
classifier = ["xgb"]

[dataset.points]
source     = "synthetic:gaussian"
n_samples  = 3000
n_features = 20
test       = 500

[dataset.cancer]
source = "sklearn:breast_cancer"

[classifier.nearest]
estimator = "stormy:Nearest"
"""
