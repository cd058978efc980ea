"""Which known names a wrong one is answered with."""

from __future__ import annotations

import pytest

from manyseed.jobs.similar import similar

CLASSIFIERS = "lr-sgd svm-sgd xgb mlp cnn convnet vgg resnet preresnet wide-resnet vit vit-transfer"
ENTRIES = "scores labels y_true test_index class_names train_fraction hparams vary repeat run"
METRICS = "cll log_likelihood tace accuracy balanced_accuracy alpha_hat brier aurc ece"
COLUMNS = "cell cell_id dataset classifier train_fraction coverage accuracy_mean accuracy_std"


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("acc", METRICS, ["accuracy"]),  # before tace, which is as near in letters
        ("acc", COLUMNS, ["accuracy_mean", "accuracy_std"]),
        ("alpha-hat", METRICS, ["alpha_hat"]),
        ("LR-SGD", CLASSIFIERS, ["lr-sgd"]),
        ("lr_sgd", CLASSIFIERS, ["lr-sgd"]),
        ("lr-sdg", CLASSIFIERS, ["lr-sgd"]),
        ("lr-sgt", CLASSIFIERS, ["lr-sgd"]),
        ("vi", CLASSIFIERS, ["vit", "vit-transfer"]),
        ("mpl", CLASSIFIERS, ["mlp"]),
        ("restnet", CLASSIFIERS, ["resnet"]),
        ("transfer", CLASSIFIERS, ["vit-transfer"]),
        ("randomforest", CLASSIFIERS, []),
        ("Images", "columns images tables", ["images"]),
        ("seeds", ENTRIES, []),
        ("Scores", ENTRIES, ["scores"]),
        ("y", ENTRIES, ["y_true"]),
        ("t", ENTRIES, []),
        ("fraction", ENTRIES, ["train_fraction"]),
        ("y_tru", ENTRIES, ["y_true"]),
        ("clf", COLUMNS, []),
        ("nothere", COLUMNS, []),
        ("nmae", "name seed runs", ["name"]),
        ("clasifier", COLUMNS, ["classifier"]),
        ("filter", "table others sql where columns cluster", []),
        ("n_estimator", "n_estimators max_depth", ["n_estimators"]),
        ("xgboost", CLASSIFIERS, ["xgb"]),
        ("it-stoped", "it-stopped-in-the-middle images", ["it-stopped-in-the-middle"]),
        ("seperate", "separate desperate", ["separate"]),
        ("bat", "bats cats", ["bats"]),
        ("", "a b", []),
        ("a", "", []),
    ],
)
def test_suggestions(name: str, known: str, expected: list[str]) -> None:
    assert similar(name, known.split()) == expected
