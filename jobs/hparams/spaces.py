"""The hparam space of every classifier.

Ranges and defaults of the tabular study (MV); those of the image classifiers are a choice, since
their sources give none. The order of a space is frozen: perturbation draws in it. New hparams go to
the end.
"""

from __future__ import annotations

from collections.abc import Mapping

from jobs.checks import unknown
from jobs.hparams.kinds import Categorical, Continuous, Hparam, Ordinal, Value, When

_SGD: tuple[Hparam, ...] = (
    Continuous(
        "alpha", 1e-7, 1e-1, 1e-4, log=True, when=When("penalty", ("l1", "l2", "elasticnet"))
    ),
    Continuous("l1_ratio", 0.0, 1.0, 0.15, when=When("penalty", ("elasticnet",))),
    Continuous("eta0", 1e-6, 1.0, 1e-3, log=True),
    Categorical("penalty", ("l1", "l2", "elasticnet", "none"), "l2"),
    Categorical("average", (False, True), False),
)

_IMAGES: tuple[Hparam, ...] = (
    Continuous("lr", 1e-5, 0.1, 1e-3, log=True),
    Continuous("weight_decay", 1e-8, 0.1, 1e-8, log=True),
    Ordinal("batch", (16, 32, 64, 128), 32),
)

SPACES: Mapping[str, tuple[Hparam, ...]] = {
    "lr-sgd": _SGD,
    "svm-sgd": (*_SGD, Categorical("loss", ("hinge", "modified_huber"), "hinge")),
    "xgb": (
        Continuous("eta", 1e-3, 1.0, 0.3, log=True),
        Continuous("lambda", 1e-10, 1.0, 1.0, log=True),
        Continuous("alpha", 1e-10, 1.0, 1e-10, log=True),
        Continuous("gamma", 0.1, 1.0, 0.1, log=True),
        Continuous("colsample_bylevel", 0.1, 1.0, 1.0),
        Continuous("colsample_bynode", 0.1, 1.0, 1.0),
        Continuous("colsample_bytree", 0.1, 1.0, 1.0),
        Ordinal("max_depth", range(1, 21), 6),
        Ordinal("max_delta_step", range(11), 0),
        Continuous("min_child_weight", 0.1, 20.0, 1.0, log=True),
        Continuous("subsample", 0.01, 1.0, 1.0),
    ),
    "mlp": (
        Continuous("lr", 1e-5, 0.5, 3e-4, log=True),
        Continuous("weight_decay", 1e-8, 0.5, 1e-4, log=True),
        Continuous("dropout", 0.0, 0.8, 0.1),
        Ordinal("width1", range(32, 1025), 512),
        # 256 is the width the study's networks had; its table names 512, which never reached them.
        Ordinal("width2", range(32, 1025), 256),
    ),
    "cnn": _IMAGES,
    "vit": (*_IMAGES, Continuous("dropout", 0.0, 0.5, 0.0)),
    "vit-transfer": _IMAGES,
}


LIBRARY: Mapping[str, Mapping[str, Value]] = {
    "lr-sgd": {},
    "svm-sgd": {},
    "xgb": {"alpha": 0.0, "gamma": 0.0},
}
"""Where the defaults of scikit-learn and XGBoost differ from the study's: outside of its ranges."""


def anchors(
    classifier: str, overrides: Mapping[str, object] | None = None, *, library: bool = False
) -> dict[str, Value]:
    """Return the defaults of a classifier's hparams with the user's values in their place.

    The anchors are what a run without hparam perturbation uses and what every perturbation is
    centred on; with `library` they are the library's own, which nothing can be centred on.

    Raises
    ------
    ValueError
        For an unknown hparam, a value of the wrong type or one outside its range.
    """
    space = {hparam.name: hparam for hparam in SPACES[classifier]}
    values: dict[str, Value] = {name: hparam.default for name, hparam in space.items()}
    if library:
        values |= LIBRARY[classifier]
    for name, value in (overrides or {}).items():
        if name not in space:
            raise unknown(f"hparam of {classifier}", name, space)
        values[name] = space[name].check(value)
    return values
