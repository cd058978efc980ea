import pytest

from manyseed.jobs import classifiers
from manyseed.jobs.cells import consumed, resolve_cell
from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets import resolve

CONTINUOUS = resolve("sklearn:breast_cancer")  # 427 training points
CATEGORICAL = resolve("synthetic:gaussian", n_features=4, n_categorical=4)
MIXED = resolve("synthetic:gaussian", n_features=4, n_categorical=2)


def cell(dataset=CONTINUOUS, classifier="xgb", hparams=None, **values):
    options = {} if hparams is None else {"hparams": hparams}
    return resolve_cell(7, dataset, classifiers.resolve(classifier, options, dataset), **values)


def test_defaults_are_written_into_the_cell():
    resolved = cell().cell
    assert resolved.canonical() == {
        "v": 1,
        "seed": 7,
        "dataset": dict(CONTINUOUS.canonical),
        "classifier": dict(classifiers.resolve("xgb", {}, CONTINUOUS).canonical),
        "hparams": dict(classifiers.resolve("xgb", {}, CONTINUOUS).hparams),
        "perturb_continuous": "none",
        "perturb_categorical": "none",
        "perturb_hparams": "none",
        "train_fraction": 1.0,
        "vary": ["batch", "init"],
    }


@pytest.mark.parametrize(
    ("dataset", "values", "idle"),
    [
        (CONTINUOUS, {"perturb_categorical": "label:0.1"}, "perturb_categorical"),
        (CATEGORICAL, {"perturb_continuous": "relative:0.1"}, "perturb_continuous"),
    ],
)
def test_a_scheme_without_anything_to_act_on_is_the_cell_without_it(dataset, values, idle):
    resolved = cell(dataset, **values)
    assert resolved.idle == (idle,)
    assert resolved.cell.id == cell(dataset).cell.id


def test_schemes_that_act_are_kept_in_their_normal_form():
    values = {"perturb_continuous": "relative:.10", "perturb_categorical": "label:.1"}
    resolved = cell(MIXED, perturb_hparams="relative:.10", **values)
    assert resolved.idle == ()
    assert resolved.cell.perturb_continuous == "relative:0.1"
    assert resolved.cell.perturb_categorical == "label:0.1"
    assert resolved.cell.perturb_hparams == "relative:0.1"
    written = cell(MIXED, perturb_categorical="value:.1").cell  # its name in sweep files
    assert written.id == cell(MIXED, perturb_categorical="label:0.1").cell.id
    assert cell(MIXED, perturb_labels="flip:.1").cell.perturb_labels == "flip:0.1"
    assert cell(MIXED, perturb_labels="none").cell == cell(MIXED).cell


def test_hparams_that_a_scheme_cannot_move_are_named():
    assert "lambda" in cell(perturb_hparams="relative:0.1").unmoved  # 10^0, and 0 ± 10 % is 0
    assert cell().unmoved == ()


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, 1.0), (1.0, 1.0), (427, 1.0), (0.5, 0.5), (2, 2), (426, 426)],
)
def test_train_fraction_is_a_share_or_a_number_of_points(value, expected):
    fraction = cell(train_fraction=value).cell.train_fraction
    assert fraction == expected
    assert type(fraction) is type(expected)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0, "= 0: .*from 2 to 427"),
        (428, "= 428: .*from 2 to 427"),
        (0.0, "= 0.0: .*above 0 and at most 1"),
        (1.5, "= 1.5: .*at most 1"),
        (0.001, "is 0 of 427 training points"),
        (True, "= True: must be"),
        ("half", "= 'half': must be"),
    ],
)
def test_train_fractions_out_of_range_are_refused(value, message):
    with pytest.raises(ValueError, match=message):
        cell(train_fraction=value)


@pytest.mark.parametrize("text", ["init+batch+train", "train+batch+init", "batch+train+init"])
def test_vary_is_a_set(text):
    assert cell(vary=text).cell.vary == ("batch", "init", "train")


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ("all", "'all': unknown source of randomness; there are init, batch, train"),
        ("int", "'int': .*there are init"),
        ("init+init", "twice"),
    ],
)
def test_unknown_sources_of_randomness_are_refused(vary, message):
    with pytest.raises(ValueError, match=message):
        cell(vary=vary)


@pytest.mark.parametrize("seed", [-1, 1.0, True])
def test_the_seed_is_a_whole_number(seed):
    with pytest.raises(ValueError, match=r"seed = .*: must be a whole number"):
        resolve_cell(seed, CONTINUOUS, classifiers.resolve("xgb", {}, CONTINUOUS))


@pytest.mark.parametrize(
    ("classifier", "values", "identical"),
    [
        ("xgb", {}, True),
        ("xgb", {"perturb_categorical": "label:0.1"}, True),  # nothing to act on
        ("xgb", {"hparams": {"subsample": 0.5}}, False),
        ("xgb", {"hparams": {"subsample": 0.5}, "vary": "init"}, True),  # it draws from batch only
        ("xgb", {"train_fraction": 0.5}, False),
        ("xgb", {"train_fraction": 1}, True),
        ("xgb", {"vary": "init+train"}, False),
        ("xgb", {"perturb_continuous": "relative:0.1"}, False),
        ("xgb", {"perturb_hparams": "relative:0.1"}, False),
        ("lr-sgd", {}, False),
        ("lr-sgd", {"vary": "init"}, True),
        ("mlp", {"vary": "init"}, False),
    ],
)
def test_cells_whose_runs_are_all_the_same_are_known(classifier, values, identical):
    assert cell(classifier=classifier, **values).identical is identical


def test_library_defaults_are_not_perturbed():
    info = classifiers.resolve("xgb", {"defaults": "library"}, CONTINUOUS)
    assert resolve_cell(7, CONTINUOUS, info).cell.hparams["gamma"] == 0.0
    with pytest.raises(ValueError, match=r"relative:0\.1': .*xgb lie outside of the ranges"):
        resolve_cell(7, CONTINUOUS, info, perturb_hparams="relative:.10")


@pytest.mark.parametrize(
    ("classifier", "values", "sources"),
    [
        ("lr-sgd", {}, ("batch",)),
        ("svm-sgd", {"vary": "init"}, ()),
        ("lr-sgd", {"vary": "init+batch+train"}, ("batch", "train")),
        ("mlp", {}, ("batch", "init")),
        ("mlp", {"hparams": {"dropout": 0.0}}, ("batch", "init")),  # the order of batches is left
        ("xgb", {}, ()),
        ("xgb", {"vary": "init+train"}, ("train",)),
        ("xgb", {"hparams": {"colsample_bytree": 0.5}}, ("batch",)),
        ("xgb", {"perturb_continuous": "relative:0.1"}, ()),
        ("xgb", {"perturb_hparams": "relative:0.1"}, ("batch",)),
    ],
)
def test_of_the_sources_that_vary_some_are_drawn_from(classifier, values, sources):
    assert consumed(cell(classifier=classifier, **values).cell) == sources


def test_a_share_that_comes_to_all_points_sets_no_runs_apart():
    assert cell(classifier="xgb", train_fraction=0.9999).identical
    assert cell(classifier="xgb", train_fraction=0.9999).cell.train_fraction == 0.9999
    assert not cell(classifier="xgb", train_fraction=0.99).identical


DIGITS = resolve("sklearn:digits")


def test_augmentation_is_kept_in_its_normal_form():
    resolved = cell(DIGITS, "convnet", augment="rotate:45.0")
    assert resolved.cell.augment == "rotate:45"
    assert resolved.cell.id != cell(DIGITS, "convnet").cell.id
    assert cell(DIGITS, "convnet", augment="none").cell.id == cell(DIGITS, "convnet").cell.id
    tested = cell(DIGITS, "convnet", test_augment="shift-x:.10").cell
    assert tested.test_augment == "shift-x:0.1"
    assert tested.id not in {cell(DIGITS, "convnet").cell.id, resolved.cell.id}


@pytest.mark.parametrize(
    ("dataset", "classifier", "scheme", "message"),
    [
        (CONTINUOUS, "mlp", "crop-flip:4", "crop-flip needs images, and the dataset has none"),
        (DIGITS, "xgb", "rotate:45", "xgb sees each training row once: mlp and cnn"),
        (DIGITS, "lr-sgd", "rotate:45", "lr-sgd sees each training row once"),
        (DIGITS, "mlp", "rotate:360", "180"),
    ],
)
def test_what_cannot_be_augmented_is_refused(dataset, classifier, scheme, message):
    with pytest.raises(Refused, match=message) as refused:
        cell(dataset, classifier, augment=scheme)
    assert refused.value.option == "augment"
    if "training row" in message:
        message = f"{classifier} predicts the test set as it is: mlp and cnn"
    with pytest.raises(Refused, match=message) as refused:
        cell(dataset, classifier, test_augment=scheme)
    assert refused.value.option == "test_augment"
