import dataclasses

import google_crc32c
import numpy as np
import pytest

from manyseed.orchestrator.store.journal import encode_row
from tests.orchestrator.store.world import prediction, spec, truth


def decode(made, encoded, name):
    data = {"label": encoded.label, "confidence": encoded.confidence}.get(name, encoded.score)
    array = made.array(name)
    return np.frombuffer(data, np.dtype(array.dtype).newbyteorder("<")).reshape(
        made.part_shape(array)
    )


def margins(run, y):
    if run.scores.ndim == 2:
        return run.scores
    true = run.scores[:, np.arange(len(y)), y]
    others = np.where(np.eye(run.scores.shape[2], dtype=bool)[y], -np.inf, run.scores)
    return true - others.max(axis=2)


@pytest.mark.parametrize("scores", ["all", "margin", "none"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_row_holds_what_the_group_keeps(n_classes, dtype, scores):
    made = spec(n_classes, scores=scores, dtype=dtype)
    run, y = prediction(made, 3), truth(made)[1]
    encoded = encode_row(made, run, y)
    assert encoded.sizes == made.part_bytes
    assert encoded.crc == google_crc32c.value(encoded.label + encoded.score + encoded.confidence)
    assert np.array_equal(decode(made, encoded, "label"), run.label)
    tolerance = 0 if dtype == "float32" else 2e-3
    if scores == "margin":
        margin = decode(made, encoded, "margin").astype(np.float64)
        assert np.allclose(margin, margins(run, y), atol=tolerance, rtol=tolerance)
    if scores == "all":
        stored = decode(made, encoded, "score").astype(np.float64)
        if n_classes == 2:
            assert np.allclose(stored[..., 1] - stored[..., 0], run.scores, atol=tolerance)
        elif dtype == "float16":
            assert np.allclose(stored.mean(-1), 0, atol=tolerance)
            centred = run.scores - run.scores.mean(-1, keepdims=True)
            assert np.allclose(stored, centred, atol=tolerance)
        else:
            assert np.array_equal(stored, run.scores)


def test_half_precision_clips_and_counts():
    made = spec(2, dtype="float16")
    run = prediction(made, 0)
    scores = run.scores.copy()
    scores[0, :2] = [1e6, -1e6]
    encoded = encode_row(made, dataclasses.replace(run, scores=scores), truth(made)[0])
    assert encoded.clipped == 2
    assert decode(made, encoded, "margin")[0, :2].tolist() == [65504, -65504]


def test_centring_keeps_the_order_of_classes_under_a_large_offset():
    made = spec(3, dtype="float16", scores="all")
    run = prediction(made, 0)
    moved = dataclasses.replace(run, scores=run.scores + np.float32(1000))
    stored = decode(made, encode_row(made, moved, truth(made)[0]), "score")
    assert np.array_equal(stored.argmax(-1), moved.scores.argmax(-1))


def test_curves_are_kept_where_there_are_any():
    made = spec(3, curves=True)
    run, y = prediction(made, 2), truth(made)[0]
    encoded = encode_row(made, run, y)
    assert encoded.sizes == made.part_bytes
    assert encoded.sizes[-1] == 4 * 5 * 4
    stored = [np.frombuffer(part, "<f4") for part in list(encoded.parts(made).values())[3:]]
    names = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")
    for name, curve in zip(names, stored, strict=True):
        assert np.array_equal(curve, run.curves[name])
    without = encode_row(made, dataclasses.replace(run, curves=None), y)
    assert np.isnan(np.frombuffer(without.optional, "<f4")).all()
    short = {name: curve[:-1] for name, curve in run.curves.items()}
    with pytest.raises(ValueError, match="curves of 5 epochs"):
        encode_row(made, dataclasses.replace(run, curves=short), y)
    assert encode_row(spec(3), run, y).optional == b""


def test_wrong_shapes_and_classes_are_refused():
    made = spec(2)
    run = prediction(made, 0)
    with pytest.raises(ValueError, match="holds labels"):
        encode_row(made, dataclasses.replace(run, label=run.label[:1]), truth(made)[0])
    with pytest.raises(ValueError, match="of 2 classes"):
        encode_row(made, dataclasses.replace(run, label=run.label + 2), truth(made)[0])


def test_scores_that_are_no_softmax_s_are_not_centred():
    """The confidence of one-vs-rest sigmoids depends on the scores' offset."""
    made = dataclasses.replace(spec(3, scores="all", dtype="float16"), probability="ovr")
    run, y = prediction(made, 3), truth(made)[1]
    stored = decode(made, encode_row(made, run, y), "score").astype(np.float64)
    assert np.allclose(stored, run.scores, atol=2e-3, rtol=2e-3)
