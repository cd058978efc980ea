"""Where a fit runs; what needs a GPU is skipped where there is none."""

import numpy as np
import pytest
import torch

from jobs.run import MachineError
from jobs.training import loop
from jobs.training.checkpoint import Checkpoint
from jobs.training.device import faults_of, gpu_model, torch_device
from tests.jobs.classifiers import examples
from tests.jobs.classifiers.conftest import pretrained  # noqa: F401

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here")
NETWORKS = ("mlp", "cnn", "vit", "vit-transfer")


def test_the_cpu_is_always_there():
    assert torch_device("cpu") == torch.device("cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_a_missing_gpu_is_the_machine_s_fault():
    with pytest.raises(MachineError, match="no CUDA device"):
        torch_device("gpu")
    with pytest.raises(MachineError, match="no CUDA device"):
        gpu_model()


def test_a_full_gpu_is_the_machine_s_fault_and_a_full_cpu_the_run_s():
    with pytest.raises(MachineError, match="the GPU failed: 3 GiB"), faults_of("gpu"):
        raise torch.OutOfMemoryError("3 GiB are missing")
    with pytest.raises(ValueError, match="odd"), faults_of("gpu"):
        raise ValueError("odd")
    with pytest.raises(torch.OutOfMemoryError), faults_of("cpu"):
        raise torch.OutOfMemoryError


def test_an_xgboost_without_cuda_is_the_machine_s_fault(monkeypatch):
    xgboost = pytest.importorskip("xgboost")
    monkeypatch.setattr(xgboost, "build_info", lambda: {"USE_CUDA": False})
    with pytest.raises(MachineError, match=r"manyseed\[gpu\]"):
        examples.fit("xgb", examples.mixed()[0], device="gpu")


@needs_gpu
@pytest.mark.parametrize("name", NETWORKS)
def test_a_gpu_gives_equal_bits_again_and_learns_as_the_cpu_does(name):
    data, y_test = (examples.image if name in examples.IMAGES_ONLY else examples.mixed)()
    first, second = (examples.fit(name, data, device="gpu") for _ in range(2))
    np.testing.assert_array_equal(first.scores, second.scores)
    on_cpu = examples.fit(name, data)
    accuracies = [np.mean(each.label[-1] == y_test) for each in (first, on_cpu)]
    assert abs(accuracies[0] - accuracies[1]) < 0.1


@needs_gpu
@pytest.mark.parametrize("name", NETWORKS)
def test_a_gpu_fit_goes_on_from_its_checkpoint(name, tmp_path, monkeypatch):
    data, _ = (examples.image if name in examples.IMAGES_ONLY else examples.mixed)()
    options = {"epochs": 4}
    whole = examples.fit(name, data, options, device="gpu")
    cut, begun = loop.batches, []

    def batches(*arguments):
        begun.append(1)
        if len(begun) == 3:
            raise KeyboardInterrupt
        return cut(*arguments)

    monkeypatch.setattr(loop, "batches", batches)
    checkpoint = Checkpoint(tmp_path / "run", "key", 0.0)
    with pytest.raises(KeyboardInterrupt):
        examples.fit(name, data, options, device="gpu", checkpoint=checkpoint)
    again = examples.fit(name, data, options, device="gpu", checkpoint=checkpoint)
    assert len(begun) == 3 + 2
    np.testing.assert_array_equal(again.scores, whole.scores)


@needs_gpu
def test_the_model_of_the_gpu_names_its_device_class():
    assert gpu_model() == torch.cuda.get_device_name()
