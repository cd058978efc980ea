"""Training functions: what they are given, what they return, and what goes wrong in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manyseed.jobs import classifiers
from manyseed.jobs.own import probe, record, table, training
from manyseed.jobs.own.calling import OwnError, asked, load
from manyseed.jobs.own.findings import Findings, ProbeRequest
from manyseed.jobs.run import Prediction
from manyseed.jobs.training.checkpoint import Checkpoint
from manyseed.jobs.training.handling import Handling
from tests.jobs.classifiers.examples import binary, multiclass
from tests.jobs.own.test_estimator import generators

HERE = "tests.jobs.own.test_training"
given: dict[str, Any] = {}


def everything(
    X: Any,
    y: Any,
    X_test: Any,
    n_classes: Any,
    cardinality: Any,
    image: Any,
    hparams: Any,
    init: Any,
    batch: Any,
    dropout: Any,
    device: Any,
    checkpoint: Any,
    mine: int = 3,
) -> Any:
    given.update(locals())
    return init.normal(size=(len(X_test), n_classes))


def of_two(X_test: Any, hparams: Any) -> Any:
    return np.linspace(0.1, 0.9, len(X_test)) + hparams.get("more", 0.0)


def by_class(X_test: Any, batch: Any) -> Any:
    return batch.dirichlet([1, 1, 1, 1], size=len(X_test))


def long(X_test: Any, init: Any, checkpoint: Path) -> Any:
    """Train ten rounds; stop in the sixth of the first attempt."""
    state = checkpoint / "state.npy"
    total = np.load(state) if state.exists() else np.zeros((len(X_test), 4))
    done = int(total[0, 0])
    for number in range(done, 10):
        if number == 5 and not done:
            raise InterruptedError("pulled the plug")
        total = total + 1
        np.save(state, total)
    return total + init.normal(size=total.shape)


def wrong(X: Any, nonsense: Any) -> None: ...


def only_by_place(X: Any, /) -> None: ...


def settings(name: str, scores: str = "logits", **changes: Any) -> dict[str, Any]:
    own = table.read({"train": f"{HERE}:{name}", "scores": scores})
    streams = tuple(training.draws_from(asked(globals()[name], training.OFFERED)))
    return {**record.description(own, Findings(streams=streams)), **changes}


def fit(canonical: dict[str, Any], data: Any, run: int = 0, **options: Any) -> Prediction:
    handling = Handling(**{k: v for k, v in options.items() if k == "checkpoint"})
    hparams = {k: v for k, v in options.items() if k != "checkpoint"}
    return classifiers.fit(canonical, hparams, data, generators(run), handling)


def test_a_function_is_given_what_it_names() -> None:
    data, _ = multiclass()
    found = fit(settings("everything", params={"sizes": [3, 4]}), data, 2, lr=0.1)
    assert given["hparams"] == {"sizes": [3, 4], "lr": 0.1}
    assert (given["n_classes"], given["image"], given["device"]) == (4, None, "cpu")
    assert (given["checkpoint"], given["mine"]) == (None, 3)
    np.testing.assert_array_equal(given["X"], data.X)
    np.testing.assert_array_equal(given["y"], data.y)
    expected = generators(2).init.normal(size=(len(data.X_test), 4))
    np.testing.assert_allclose(found.scores[0], expected, rtol=1e-6)


def test_its_streams_are_those_that_it_names() -> None:
    canonical = settings("everything")
    assert canonical["streams"] == ["batch", "init"]
    assert classifiers.consumes(canonical, None) == {"init", "batch"}
    assert classifiers.consumes(settings("by_class", "probabilities"), None) == {"batch"}
    assert classifiers.consumes(settings("of_two"), None) == frozenset()
    assert "seeds" not in canonical


def test_probabilities_of_two_classes_and_of_more() -> None:
    data, _ = binary()
    p = np.linspace(0.1, 0.9, len(data.X_test))
    found = fit(settings("of_two", "probabilities"), data)
    np.testing.assert_allclose(found.scores[0], np.log(p / (1 - p)), rtol=1e-5)
    np.testing.assert_array_equal(found.label[0], p > 0.5)
    many, _ = multiclass()
    found = fit(settings("by_class", "probabilities"), many)
    expected = generators().batch.dirichlet([1, 1, 1, 1], size=len(many.X_test))
    np.testing.assert_allclose(np.exp(found.scores[0]), expected, rtol=1e-5)
    found = fit(settings("of_two", "decisions"), data, more=-0.5)
    np.testing.assert_allclose(found.scores[0], p - 0.5, rtol=1e-5)
    assert np.isnan(found.confidence).all()


def misspelt(X: Any, y: Any, hparam: Any) -> Any: ...


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("wrong", "it asks for nonsense; there are X, y"),
        ("misspelt", r"^it asks for hparam; did you mean hparams\?$"),
        ("only_by_place", "by its name"),
    ],
)
def test_a_signature_that_cannot_be_met_is_named(name: str, said: str) -> None:
    with pytest.raises(OwnError, match=said):
        asked(globals()[name], training.OFFERED)


def test_another_shape_fails_the_run() -> None:
    data, _ = multiclass()
    with pytest.raises(OwnError, match=r"returned shape \(60,\); \(60, 4\) is needed"):
        fit(settings("of_two"), data)


def test_an_interrupted_run_goes_on_from_its_own_folder_alone(tmp_path: Path) -> None:
    data, _ = multiclass()
    canonical = settings("long")
    own, other = (Checkpoint(tmp_path / "0-1", key) for key in ("mine", "another recipe"))
    with pytest.raises(OwnError, match="pulled the plug"):
        fit(canonical, data, checkpoint=own)
    found = fit(canonical, data, checkpoint=own)
    expected = 10 + generators().init.normal(size=(len(data.X_test), 4))
    np.testing.assert_allclose(found.scores[0], expected, rtol=1e-6)
    # what another recipe left is not gone on from
    with pytest.raises(OwnError, match="pulled the plug"):
        fit(canonical, data, checkpoint=other)
    other.remove()
    assert not (tmp_path / "0-1").exists()


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            "sklearn.ensemble:RandomForestClasifier",
            r"^sklearn.ensemble has no RandomForestClasifier; did you mean RandomForestClassif",
        ),
        ("json:JSONDecoder.deocde", r"^json has no JSONDecoder.deocde; did you mean decode\?$"),
        ("json:Nothing", "^json has no Nothing$"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(entry: str, said: str) -> None:
    with pytest.raises(ImportError, match=said):
        load(entry)


clock = [0.0, 0.0]  # the time, and the part of a fit's that does not grow with its rows


def timed(X: Any, X_test: Any, batch: Any) -> Any:
    """Take 0.1 s for 64 rows, and what does not grow with them."""
    clock[0] += clock[1] + 0.1 * len(X) / 64
    return batch.normal(size=(len(X_test), 3))


@pytest.mark.parametrize(
    ("fixed", "at_300"), [(1.4, 1.4 + 0.1 * 300 / 64), (0.05, 0.15 * 300 / 64)]
)
def test_what_does_not_grow_with_the_rows_is_not_scaled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fixed: float, at_300: float
) -> None:
    """A fit that takes 1.5 s for 64 rows is measured again with more; a short one is not."""
    clock[1] = fixed
    monkeypatch.setattr(probe, "perf_counter", lambda: clock[0])
    own = {"train": f"{HERE}:timed"}
    request = ProbeRequest(own, {}, False, False, 4, 0, ["a", "b", "c"], None, [], [])
    findings = probe._probed(table.read(own), request, tmp_path)
    assert findings.seconds == pytest.approx(fixed + 0.1)
    data: Any = None
    assert record._seconds(findings)(data, data, 300) == pytest.approx(at_300)
