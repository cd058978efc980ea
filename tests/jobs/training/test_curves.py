from __future__ import annotations

import numpy as np
import torch
from scipy.special import log_softmax

from manyseed.jobs.training.loop import Measured, predicted, record


def rows(n, k, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, k, generator=generator)
    return logits, torch.randint(k, (n,), generator=generator)


def cross_entropy(logits, y):
    return -log_softmax(logits.double().numpy(), axis=1)[np.arange(len(y)), y].mean()


def test_an_epoch_counts_every_row_once_whatever_the_batches():
    logits, y = rows(23, 4, 1)
    measured = Measured(torch.device("cpu"))
    for part in (slice(0, 10), slice(10, 20), slice(20, 23)):
        loss = torch.nn.functional.cross_entropy(logits[part], y[part])
        measured.add(loss, logits[part], y[part])
    loss, accuracy = measured.means()
    np.testing.assert_allclose(loss, cross_entropy(logits, y), rtol=1e-6)
    assert accuracy == (logits.argmax(1) == y).sum().item() / 23


def test_epochs_are_appended():
    curves = {}
    for seed in (1, 2):
        logits, y = rows(30, 3, seed)
        measured = Measured(torch.device("cpu"))
        measured.add(torch.tensor(0.5), logits, logits.argmax(1))
        record(curves, measured, logits, y)
    assert curves["train_loss"] == [0.5, 0.5]
    assert curves["train_accuracy"] == [1.0, 1.0]
    np.testing.assert_allclose(curves["test_loss"][1], cross_entropy(logits, y), rtol=1e-6)
    assert curves["test_accuracy"][1] == np.mean(logits.argmax(1).numpy() == y.numpy())


def test_of_two_classes_a_tie_is_the_positive_one():
    logits = torch.tensor([[1.0, 1.0], [2.0, 1.0], [1.0, 2.0]])
    assert predicted(logits).tolist() == [1, 0, 1]
    assert predicted(torch.tensor([[1.0, 1.0, 0.0]])).tolist() == [0]
