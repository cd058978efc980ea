"""Which known names a wrong one is answered with."""

from __future__ import annotations

import pytest

from manyseed.jobs.checks import quoted, same_spelling, shown, similar, spelling
from manyseed.orchestrator.errors import nearest

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


@pytest.mark.parametrize(
    "texts",
    [
        ("caf\u00e9", "cafe\u0301"),
        ("tea", "tea ", " tea", "tea\u00a0", "te\u00ada", "\ufefftea"),
        ("a b", "a\u2009b", "a  b", "a\tb"),
    ],
)
def test_texts_that_are_read_alike_have_one_spelling(texts: tuple[str, ...]) -> None:
    assert len({*map(spelling, texts)}) == 1
    assert same_spelling([*texts, "other"]) == [tuple(sorted(texts))]


def test_other_texts_have_their_own() -> None:
    assert not same_spelling(["Tea", "tea", "te a", "m\u00b2", "m2", "1", "01", "\u00e9", "e"])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("plain", "plain"),
        ("two words", "two words"),
        ("gr\u00f6\u00dfe", "gr\u00f6\u00dfe"),
        (" y", '" y"'),
        ("", '""'),
        ("a\u00a0b", '"a\\u00a0b"'),
        ("gro\u0308\u00dfe", '"gro\\u0308\u00dfe"'),
        ("a\nb", '"a\\u000ab"'),
        ('say "x"', '"say \\"x\\""'),
    ],
)
def test_names_are_shown_so_that_all_of_them_is_seen(name: str, said: str) -> None:
    assert shown(name) == said
    assert shown(name) in (name, quoted(name))


def test_a_name_that_only_looks_like_another_is_told_so() -> None:
    said = nearest("gro\u0308\u00dfe", ["x", "gr\u00f6\u00dfe"])
    assert '"gro\\u0308\u00dfe" only looks like "gr\u00f6\u00dfe".' in said
    assert "only looks" not in nearest("xx", ["x", "y"])
