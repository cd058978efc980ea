"""Answers of models, against loops over single rows and against planted truth."""

import math
import weakref
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from manyseed.analysis.response import gi
from manyseed.jobs import classifiers
from manyseed.jobs.cells import resolve_cell
from manyseed.jobs.datasets import resolve
from manyseed.jobs.images.transforms import transformed
from manyseed.jobs.response import ResponseDesign, measure
from manyseed.jobs.response.measure import (
    RIGHT,
    SHIFTED_RIGHT,
    SHIFTED_TOTAL,
    TOTAL,
    Streams,
    Subject,
    answers,
    batches,
    davies_bouldin,
    pairs,
    sample,
)
from manyseed.jobs.run import Run
from manyseed.jobs.trainer import Trainer
from manyseed.jobs.training.checkpoint import Checkpoint
from manyseed.jobs.training.handling import Alive, Handling
from tests.jobs.training.test_checkpoint import Interrupted, interrupt

STREAMS = Streams(3, "planted", 0)


def subject(X, y, image=None, own=None, n_classes=2, X_test=None, y_test=None):
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.uint16)
    return Subject(
        streams=STREAMS,
        own=np.arange(len(y)) if own is None else own,
        n_part=len(y),
        rows=lambda places: X[places],
        y=y,
        X_test=X[:4] if X_test is None else X_test,
        y_test=y[:4] if y_test is None else y_test,
        n_classes=n_classes,
        image=image,
        largest=1.0,
    )


def model(score):
    """Return a planted model: `score` maps rows to gaps."""
    return Alive(None, lambda rows: np.asarray(score(rows)), encode=lambda raw: raw)


def accuracy(found, response=0, n=None):
    right, total = (found[name][response, 0, :n].astype(float) for name in (RIGHT, TOTAL))
    return right / total


def test_points_on_a_line_cross_the_boundary_where_they_should():
    """Points -1 (class 0) and 1 (class 1), boundary at -.5, itself class 1."""
    y = np.tile([0, 1], 64)
    found = answers(
        ResponseDesign((("inter", 0),), batch=128),
        subject(np.where(y == 0, -1.0, 1.0)[:, None], y),
        model(lambda rows: rows[:, 0] + 0.5),
    )
    curve = accuracy(found)
    grid = ResponseDesign((("inter", 0),)).grid("inter")
    assert len(grid) == len(curve) == 10
    assert grid[-1] < 0.5
    # pairs of either direction are not equally many in one batch: those from class 1 stay right
    y_first = []
    order = STREAMS.order("inter", 0, 128)
    for batch in batches(sample(order, np.arange(128), 23_040), 128):
        first, _ = pairs("inter", y[batch])
        y_first += y[batch][first].tolist()
    from_one = np.mean(y_first)
    assert curve[:5].tolist() == [1] * 5
    np.testing.assert_allclose(curve[5:], from_one)
    half = np.where(np.arange(10) < 5, 1.0, 0.5)
    assert gi(grid, half) == pytest.approx(0.12654, abs=1e-5)


def test_a_linear_classifier_that_is_right_stays_right_between_points_of_a_class():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    weights = rng.normal(size=5)
    y = X @ weights >= 0
    found = answers(
        ResponseDesign((("intra", 0),)), subject(X, y), model(lambda rows: rows @ weights)
    )
    assert accuracy(found).tolist() == [1] * 11
    assert gi(ResponseDesign((("intra", 0),)).grid("intra"), accuracy(found)) == pytest.approx(0)


def test_labels_are_those_of_the_first_point():
    """A model that answers with the second point's class half way there would be right."""
    X = np.array([[0.0], [1.0]] * 50)
    y = X[:, 0] > 0.5
    found = answers(
        ResponseDesign((("inter", 0),), pair_magnitudes=41),
        subject(X, y),
        model(lambda r: r[:, 0] - 0.4),
    )
    grid = ResponseDesign((("inter", 0),), pair_magnitudes=41).grid("inter")
    n = found[TOTAL][0, 0, 0]
    from_zero = n - found[RIGHT][0, 0, -1]
    assert 0 < from_zero < n
    expected = np.where(np.array(grid) < 0.4, n, n - from_zero)
    np.testing.assert_array_equal(found[RIGHT][0, 0], expected)


def disc(n=24, side=10, seed=0):
    """Return images whose content is a dot near the centre, and stays in the frame."""
    rng = np.random.default_rng(seed)
    images = np.zeros((n, side, side, 1))
    # far from the boundary: bilinear rotation keeps sums to a few percent
    images[:, 4:6, 4:6, 0] = rng.choice([0.3, 0.9], (n, 1, 1))
    return images.reshape(n, -1)


@pytest.mark.parametrize("transform", ["rotate:180", "shift-x:0.25", "shift-y:0.25"])
def test_a_model_of_the_pixels_sum_is_not_moved(transform):
    X = disc()
    y = X.sum(axis=1) > 2.4
    assert 0 < y.sum() < len(y)
    asked = ResponseDesign(((transform, 0),), magnitudes=9)
    found = answers(asked, subject(X, y, (10, 10, 1)), model(lambda r: r.sum(axis=1) - 2.4))
    assert accuracy(found).tolist() == [1] * 9
    assert found[SHIFTED_RIGHT].tolist() == found[SHIFTED_TOTAL].tolist()
    assert found[SHIFTED_TOTAL].tolist() == [[24, 24, 4, 4]]


def test_a_constant_model_has_a_constant_curve_as_rows_stay_the_same():
    rng = np.random.default_rng(1)
    X, y = rng.random((200, 16)), rng.integers(0, 2, 200)
    asked = ResponseDesign((("intra", 0), ("inter", 0), ("rotate:90", 0)), rows=64, draws=3)
    found = answers(asked, subject(X, y, (4, 4, 1)), model(lambda rows: np.ones(len(rows))))
    for number in range(3):
        for draw in range(3):
            n = len(asked.grid(asked.responses[number][0]))
            assert len(set(found[RIGHT][number, draw, :n].tolist())) == 1
            assert not found[TOTAL][number, draw, n:].any()
    assert len({*found[RIGHT][2, :, 0].tolist()}) > 1  # other draws, other rows
    assert found[TOTAL][2].tolist() == [[64] * 21] * 3


def test_no_count_depends_on_how_many_rows_are_moved_at_once(monkeypatch):
    rng = np.random.default_rng(4)
    X, y = rng.random((150, 16)), rng.integers(0, 3, 150)
    weights = rng.normal(size=(16, 3))
    asked = ResponseDesign(
        (("intra", 0), ("inter", 0), ("rotate:90", 0), ("colour:0.25", 0)),
        rows=70, batch=30, draws=2, magnitudes=7,
    )  # fmt: skip
    widths = []

    def score(rows):
        widths.append(len(rows))
        return rows @ weights

    of, found = subject(X, y, (4, 4, 1), own=np.arange(0, 150, 2), n_classes=3), []
    for most in (512, 64, 7, 1):
        for name in ("AT_ONCE", "PREDICTED_AT_ONCE"):
            monkeypatch.setattr(measure, name, most)
        widths.clear()
        found.append(answers(asked, of, model(score)))
        assert max(widths) <= most
    for name, values in found[0].items():
        assert values.any()
        for other in found[1:]:
            np.testing.assert_array_equal(other[name], values)


def test_one_batch_is_in_memory_moved_by_one_magnitude_at_a_time(monkeypatch):
    """Rows × magnitudes never are: of what was moved before nothing is left when more is."""
    rng = np.random.default_rng(4)
    X, y = rng.random((700, 16)), rng.integers(0, 2, 700)
    asked = ResponseDesign(
        (("intra", 0), ("inter", 0), ("rotate:90", 0), ("colour:0.25", 0)), draws=2, magnitudes=7
    )
    alive, sizes = [], []

    def watched(make):
        def made(*given):
            assert not [one for one in alive if one() is not None]
            found = make(*given)
            alive.append(weakref.ref(found))
            sizes.append(len(found))
            return found

        return made

    monkeypatch.setattr(measure._Model, "_between", watched(measure._Model._between))
    monkeypatch.setattr(measure, "transformed", watched(measure.transformed))
    of_all = measure.transform_of_all
    monkeypatch.setattr(measure, "transform_of_all", lambda *of: watched(of_all(*of)))
    of = subject(X, y, (4, 4, 1), X_test=X[:300], y_test=y[:300])
    found = answers(asked, of, model(lambda rows: rows.sum(axis=1) - 8))
    assert 64 < max(sizes) <= 128
    n_pairs, n_images = found[TOTAL][:2, :, 1:].sum(), found[TOTAL][2:, :, 1:7].sum()
    assert sum(sizes) == n_pairs + n_images + 2 * (700 + 300)


def test_magnitude_0_is_the_models_accuracy_on_rows_as_they_are():
    rng = np.random.default_rng(5)
    X, y = rng.random((300, 16)), rng.integers(0, 2, 300)
    asked = ResponseDesign(
        (("rotate:90", 0), ("intra", 0), ("inter", 0)), rows=100, batch=20, draws=3
    )
    score = lambda rows: rows[:, 3] - 0.5  # noqa: E731
    of = subject(X, y, (4, 4, 1))
    found, right = answers(asked, of, model(score)), (score(X) >= 0) == y
    for number, (transform, _) in enumerate(asked.responses):
        for draw in range(3):
            rows = sample(STREAMS.order(transform, draw, 300), np.arange(300), 100)
            if transform != "rotate:90":
                first = [batch[pairs(transform, y[batch])[0]] for batch in batches(rows, 20)]
                rows = np.concatenate(first)
            at = asked.grid(transform).index(0)
            assert found[RIGHT][number, draw, at] == right[rows].sum()
    assert found[SHIFTED_RIGHT][0, 0] == right.sum()


def test_gi_of_samples_varies_as_one_over_the_root_of_their_rows():
    rng = np.random.default_rng(6)
    X, y = rng.random((4000, 3)), rng.integers(0, 2, 4000)
    of = subject(X, y)
    grid, spread = ResponseDesign((("intra", 0),)).grid("intra"), []
    for rows in (32, 128):
        asked = ResponseDesign((("intra", 0),), rows=rows, batch=32, draws=200)
        found = answers(asked, of, model(lambda r: r[:, 0] - 0.5))
        spread.append(gi(grid, found[RIGHT][0] / found[TOTAL][0]).std())
    # four times the rows, half the spread; of 200 draws each its own error is a twentieth
    assert spread[0] / spread[1] == pytest.approx(2, rel=0.2)


def test_what_is_no_number_is_never_right():
    y = np.zeros(8, dtype=np.uint16)
    found = answers(
        ResponseDesign((("intra", 0),)),
        subject(np.ones((8, 1)), y),
        model(lambda r: np.full(len(r), np.nan)),
    )
    assert not found[RIGHT].any()


def test_no_pair_of_a_kind_counts_nothing():
    X, y = np.arange(4.0)[:, None], [0, 1, 2, 3]
    found = answers(
        ResponseDesign((("intra", 0),)),
        subject(X, y, n_classes=4),
        model(lambda rows: np.zeros((len(rows), 4))),
    )
    assert not found[TOTAL].any()


def test_grids_are_those_of_the_source():
    asked = ResponseDesign((("rotate:180", 0), ("shift-x:0.5", 0), ("intra", 0), ("inter", 0)))
    rotate, shift, intra, inter = (asked.grid(name) for name, _ in asked.responses)
    assert (rotate[0], rotate[10], rotate[-1], len(rotate)) == (-180, 0, 179, 21)
    assert (shift[0], shift[-1]) == (-0.5, 0.5)
    np.testing.assert_allclose(intra, np.linspace(0, 0.5, 11))
    np.testing.assert_allclose(inter, np.linspace(0, 0.45, 10))
    assert [sum(map(math.isnan, grid)) for grid in asked.grids] == [0, 0, 10, 11]
    assert ResponseDesign.from_attributes(asked.to_attributes()) == asked


# real models, through the trainer

DIGITS = resolve("sklearn:digits", test=0.8)
WINE = resolve("sklearn:wine")
MIXED = resolve("synthetic:gaussian", n_samples=160, n_features=5, n_categorical=2)
CASES = [
    (DIGITS, "convnet", {"epochs": 2, "hparams": {"batch_norm": True, "width": 4}}),
    (DIGITS, "mlp", {"epochs": 2, "hparams": {"width1": 32, "width2": 32}}),
    (MIXED, "mlp", {"epochs": 2, "hparams": {"width1": 32, "width2": 32}}),
    (DIGITS, "lr-sgd", {}),
    (MIXED, "svm-sgd", {}),
    (WINE, "xgb", {}),
]
IDS = [f"{name}-{data.canonical['source']}" for data, name, _ in CASES]


@dataclass
class Asking:
    """A trained run, what it was asked, and the model itself."""

    run: Run
    found: dict
    alive: Alive
    of: Subject
    scores: np.ndarray


def ask(monkeypatch, dataset, name, options, asked, **cell):
    kept = {}
    whole = measure.answers

    def keeping(asked, of, alive):
        kept.update(of=of, alive=alive)
        return whole(asked, of, alive)

    monkeypatch.setattr(measure, "answers", keeping)
    info = classifiers.resolve(name, options, dataset)
    run = Run(resolve_cell(5, dataset, info, **cell).cell, 0, 1)
    prediction = Trainer().train(run, Handling(response=asked))
    plain = Trainer().train(run)
    np.testing.assert_array_equal(prediction.scores, plain.scores)
    return Asking(run, prediction.measured, scores=plain.scores, **kept)


def test_a_linear_model_of_separated_classes_is_never_wrong_between_points_of_a_class(monkeypatch):
    """Between two points that a linear model labels right it does, too: the set is convex."""
    apart = resolve("synthetic:gaussian", n_samples=300, n_features=4, separation=12)
    asked = ResponseDesign((("intra", 0),))
    case = ask(monkeypatch, apart, "lr-sgd", {}, asked)
    right, total = case.found[SHIFTED_RIGHT][0, 0], case.found[SHIFTED_TOTAL][0, 0]
    assert right == total == len(case.of.own)
    assert gi(asked.grid("intra"), accuracy(case.found)) == pytest.approx(0, abs=1e-12)


def test_an_interrupted_training_has_the_curves_that_it_would_have_had(tmp_path, monkeypatch):
    info = classifiers.resolve("convnet", {"epochs": 4, "hparams": {"width": 4}}, DIGITS)
    run = Run(resolve_cell(5, DIGITS, info).cell, 0, 1)
    asked = replace(asked_of(DIGITS, "convnet"), dbi=True)
    whole = Trainer().train(run, Handling(response=asked)).measured
    handling = Handling(response=asked, checkpoint=Checkpoint(tmp_path / "run", "key", every=0))
    with monkeypatch.context() as patch:
        interrupt(patch, 3)
        with pytest.raises(Interrupted):
            Trainer().train(run, handling)
    assert (tmp_path / "run").exists()
    again = Trainer().train(run, handling).measured
    assert again.keys() == whole.keys()
    for name, values in whole.items():
        np.testing.assert_array_equal(again[name], values)


def asked_of(dataset, name):
    responses = [("intra", 0), ("inter", 0)]
    if name in ("mlp", "convnet"):
        responses += [("intra", 1), ("inter", 1)]
    if dataset.image:
        responses += [("rotate:90", 0), ("shift-x:0.25", 0), ("colour:0.25", 0)]
    return ResponseDesign(tuple(responses), rows=24, batch=10, magnitudes=3, pair_magnitudes=3)


def label(scores):
    if scores.ndim == 1:
        return int(scores[0] >= 0)
    return int(scores[0, 1] >= scores[0, 0]) if scores.shape[1] == 2 else int(scores[0].argmax())


@pytest.mark.parametrize(("dataset", "name", "options"), CASES, ids=IDS)
def test_counts_are_those_of_a_loop_over_single_rows(monkeypatch, dataset, name, options):
    asked = asked_of(dataset, name)
    case = ask(monkeypatch, dataset, name, options, asked)
    of, alive = case.of, case.alive
    for number, (transform, layer) in enumerate(asked.responses):
        order = of.streams.order(transform, 0, of.n_part)
        rows = sample(order, of.own, asked.rows)
        for place, a in enumerate(asked.grid(transform)):
            right = total = 0
            for batch in batches(rows, asked.batch):
                if transform in ("intra", "inter"):
                    chosen = zip(*pairs(transform, of.y[batch]), strict=True)
                else:
                    chosen = ((i, None) for i in range(len(batch)))
                for one, other in chosen:
                    y = of.y[batch[one]]
                    right += slow(of, alive, transform, layer, a, batch[one], batch, other) == y
                    total += 1
            assert total == case.found[TOTAL][number, 0, place]
            # a batch's rounding may differ from a single row's
            assert abs(right - int(case.found[RIGHT][number, 0, place])) <= 1, transform


def slow(of, alive, transform, layer, a, row, batch, other):
    x = of.rows(np.array([row]))
    if transform not in ("intra", "inter"):
        images = torch.from_numpy(x).reshape(1, *of.image)
        name, by = transform.partition(":")[0], torch.tensor([a], dtype=torch.float64)
        raw = transformed(name, images, by, of.largest).reshape(1, -1).numpy()
        return label(alive.predict(alive.encode(raw)))
    one, two = alive.encode(x), alive.encode(of.rows(batch[[other]]))
    if layer:
        head, tail = alive.halves()
        with torch.no_grad():
            return label(tail((1 - a) * head(one) + a * head(two)).numpy())
    mixed = (1 - a) * one + a * two
    n = mixed.shape[1] if alive.n_continuous is None else alive.n_continuous
    if mixed.ndim == 2:
        mixed[:, n:] = one[:, n:]
    return label(alive.predict(mixed))


@pytest.mark.parametrize(("dataset", "name", "options"), CASES, ids=IDS)
def test_unmoved_curves_parts_and_predictions_agree(monkeypatch, dataset, name, options):
    """Magnitude 0 is accuracy; part test is the stored prediction's; all rows are counted once."""
    asked = replace(asked_of(dataset, name), rows=23_040)
    case = ask(monkeypatch, dataset, name, options, asked, vary="init+batch+train")
    of, found = case.of, case.found
    assert len(of.own) < of.n_part  # a bootstrap
    labels = case.scores[0] >= 0 if case.scores.ndim == 2 else case.scores[0].argmax(1)
    for number, (transform, _) in enumerate(asked.responses):
        right, total = found[SHIFTED_RIGHT][number], found[SHIFTED_TOTAL][number]
        assert total[0] == len(of.own)
        assert total[2] == len(of.y_test)
        assert abs(int(right[2]) - int((labels == of.y_test).sum())) <= 1
        if transform in ("intra", "inter"):
            assert (total[1], total[3]) == (0, 0)
            continue
        assert (total[1], total[3]) == (len(of.own), len(of.y_test))
        assert found[TOTAL][number, 0, 1] == len(of.own)
        assert found[RIGHT][number, 0, 1] == right[0]


@pytest.mark.parametrize(
    ("name", "hparams"),
    [
        ("mlp", {"dropout": 0.5, "width1": 32, "width2": 32}),
        ("convnet", {"batch_norm": True, "width": 4}),
    ],
)
def test_batch_norm_and_dropout_are_as_in_evaluation(monkeypatch, name, hparams):
    asked = ResponseDesign((("intra", 1), ("intra", 0)), rows=40, batch=6)
    case = ask(monkeypatch, DIGITS, name, {"epochs": 1, "hparams": hparams}, asked)
    before = {k: v.clone() for k, v in case.alive.model.state_dict().items()}
    case.alive.model.train()
    found = answers(asked, case.of, case.alive)
    for array in (RIGHT, TOTAL):
        np.testing.assert_array_equal(found[array], case.found[array])
    for k, v in case.alive.model.state_dict().items():
        assert torch.equal(v, before[k]), k


def test_all_models_of_a_repeat_answer_the_same_questions(monkeypatch):
    asked = ResponseDesign((("intra", 0),), rows=20)
    cases = [
        ask(monkeypatch, DIGITS, name, options, asked)
        for name, options in (("lr-sgd", {}), ("convnet", {"epochs": 1}))
    ]
    orders = [c.of.streams.order("intra", 0, c.of.n_part).tolist() for c in cases]
    assert orders[0] == orders[1]
    assert cases[0].of.own.tolist() == cases[1].of.own.tolist()
    assert cases[0].found[TOTAL].tolist() == cases[1].found[TOTAL].tolist()


def test_rows_are_unperturbed(monkeypatch):
    case = ask(
        monkeypatch,
        DIGITS,
        "lr-sgd",
        {},
        ResponseDesign((("intra", 0),)),
        perturb_continuous="relative:0.9",
    )
    plain = Trainer().training_set(
        replace(case.run, cell=replace(case.run.cell, perturb_continuous="none"))
    )
    np.testing.assert_array_equal(
        case.of.rows(case.of.own), plain.X[np.argsort(plain.in_dataset.train)]
    )


# how far classes are apart behind the first block


def test_the_davies_bouldin_index_is_that_of_its_definition():
    rng = np.random.default_rng(3)
    outputs, classes = rng.normal(size=(40, 6)), rng.integers(0, 3, 40).astype(np.uint16)
    centres = {k: outputs[classes == k].mean(axis=0) for k in range(3)}
    within = {
        k: np.mean([math.dist(row, centres[k]) for row in outputs[classes == k]]) for k in range(3)
    }
    worst = [
        max((within[k] + within[j]) / math.dist(centres[k], centres[j]) for j in range(3) if j != k)
        for k in range(3)
    ]
    assert davies_bouldin(outputs, classes) == pytest.approx(np.mean(worst))
    assert davies_bouldin(np.repeat(np.eye(3), 4, axis=0), np.repeat([0, 1, 2], 4)) == 0
    one_class, all_apart = np.zeros(40, dtype=int), np.arange(40)
    for undefined in (one_class, all_apart):
        assert math.isnan(davies_bouldin(outputs, undefined))
    assert math.isnan(davies_bouldin(np.full((4, 1), np.inf), np.array([0, 0, 1, 1])))


def test_the_index_of_a_network_is_that_of_its_pooled_first_block(monkeypatch):
    """Slow version: batches of 120 rows of the sample's order, rows one by one, pooled by hand."""
    options = {"epochs": 2, "hparams": {"width": 4}}
    asked = ResponseDesign((("intra", 0),), rows=24, dbi=True)
    case = ask(monkeypatch, DIGITS, "convnet", options, asked)
    of, alive = case.of, case.alive
    order = of.streams.order("dbi", 0, of.n_part)[:1200]
    assert 240 <= len(order) < 360
    head = alive.halves()[0]
    found = []
    for batch in (order[:120], order[120:240]):  # what is left is no whole batch
        outputs = []
        for row in batch:
            with torch.no_grad():
                (maps,) = head(alive.encode(of.rows(np.array([row])))).double().numpy()
            size = maps.shape[1] // 4
            outputs.append(
                [
                    channel[4 * i : 4 * i + 4, 4 * j : 4 * j + 4].max()
                    for channel in maps
                    for i in range(size)
                    for j in range(size)
                ]
            )
        assert len(outputs[0]) == 4 * 2 * 2
        found.append(davies_bouldin(np.array(outputs), of.y[batch]))
    assert case.found["dbi"].shape == (1,)
    assert case.found["dbi"][0] == pytest.approx(np.mean(found), rel=1e-4)
    assert case.found["dbi"].dtype == np.float32


def test_a_sample_below_a_batch_is_one():
    of = subject(np.arange(30.0)[:, None], np.arange(30) % 2)
    alive = replace(
        model(lambda rows: rows[:, 0]), halves=lambda: (lambda rows: torch.tensor(rows), None)
    )
    found = answers(ResponseDesign((("intra", 0),), dbi=True), of, alive)["dbi"]
    assert found[0] == pytest.approx(davies_bouldin(of.rows(np.arange(30)), of.y))


def planted_network(n_classes, *, image):
    torch.manual_seed(n_classes)
    head = [torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU()]
    head += [torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(16, n_classes)]
    flat = [torch.nn.Linear(16, 12), torch.nn.Tanh(), torch.nn.Dropout(0.5)]
    flat += [torch.nn.Linear(12, n_classes)]
    network = torch.nn.Sequential(*(head if image else flat))
    for norm in network.modules():
        if isinstance(norm, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(norm.running_mean)
            torch.nn.init.uniform_(norm.running_var, 0.5, 2)
    return network


@pytest.mark.parametrize("n_classes", [2, 3, 30])
@pytest.mark.parametrize("image", [False, True])
def test_spectra_are_those_of_the_jacobian_of_each_point(n_classes, image):
    """Beside torch.func's Jacobian of single points, and differences, in float64."""
    network = planted_network(n_classes, image=image)  # still in training mode
    X = np.random.default_rng(0).normal(size=(150, 16))
    shape = (1, 4, 4) if image else (16,)
    alive = Alive(
        None,
        lambda rows: network(rows).detach().numpy(),
        encode=lambda raw: torch.tensor(raw, dtype=torch.float32).reshape(-1, *shape),
        model=network,
        n_continuous=None if image else 10,
    )
    planted = subject(X, np.zeros(150), X_test=X, y_test=np.zeros(150, np.uint16))
    asked = ResponseDesign((), spectra=140)
    found = answers(asked, planted, alive)
    assert set(found) == {"points", "spectra"}
    places = found["points"].tolist()
    assert len(set(places)) == 140
    assert 0 <= min(places) < max(places) < 150
    exact = planted_network(n_classes, image=image).double().eval()

    def scores(row):
        every = exact(row.reshape(1, *shape))[0]
        return every[1:] - every[:1] if n_classes == 2 else every - every.mean()

    rows = torch.tensor(X[places].astype(np.float32), dtype=torch.float64)
    jacobian = torch.func.vmap(torch.func.jacrev(scores))(rows).detach().numpy()
    step = 1e-6
    for place in (0, 139):
        ahead, behind = (
            np.stack([scores(rows[place] + sign * step * unit).detach().numpy() for unit in eye])
            for eye in [torch.eye(16, dtype=torch.float64)]
            for sign in (1, -1)
        )
        np.testing.assert_allclose(
            jacobian[place], (ahead - behind).T / (2 * step), atol=1e-6, rtol=1e-5
        )
    jacobian = jacobian if image else jacobian[..., :10]
    slow = np.stack([np.linalg.svd(one, compute_uv=False) for one in jacobian])
    n = min(n_classes - 1, jacobian.shape[-1])
    assert found["spectra"].shape == (140, n)
    np.testing.assert_allclose(found["spectra"], slow[:, :n], rtol=2e-4, atol=2e-5)
    assert (np.diff(found["spectra"], axis=1) <= 0).all()


def test_a_network_without_finite_derivatives_has_no_spectrum():
    network = planted_network(3, image=False)
    with torch.no_grad():
        network[0].weight[0, 0] = math.nan
    X = np.ones((6, 16))
    alive = Alive(
        None, lambda rows: rows, encode=lambda raw: torch.tensor(raw).float(), model=network
    )
    planted = subject(X, np.zeros(6), X_test=X, y_test=np.zeros(6, np.uint16))
    found = answers(ResponseDesign((), spectra=100), planted, alive)
    assert found["points"].tolist() == [*range(6)]
    assert np.isnan(found["spectra"]).all()
