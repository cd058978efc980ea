"""Where a fit runs; what needs a GPU is skipped where there is none."""

import numpy as np
import pytest
import torch

from manyseed.jobs import classifiers
from manyseed.jobs.run import MachineError
from manyseed.jobs.training import loop
from manyseed.jobs.training.checkpoint import Checkpoint
from manyseed.jobs.training.handling import Handling, faults_of, gpu_model, torch_device
from tests.jobs.classifiers import examples
from tests.jobs.classifiers.conftest import pretrained  # noqa: F401

NO_GPU = not torch.cuda.is_available()
NETWORKS = examples.NETWORKS


def test_the_cpu_is_always_there():
    assert torch_device("cpu") == torch.device("cpu")


@pytest.mark.skipif(not NO_GPU, reason="has a GPU")
def test_a_missing_gpu_is_the_machine_s_fault():
    with pytest.raises(MachineError, match="no CUDA device"):
        torch_device("gpu")
    with pytest.raises(MachineError, match="no CUDA device"):
        gpu_model()


def test_a_full_gpu_and_full_memory_are_the_machine_s_fault():
    with pytest.raises(MachineError, match="the GPU failed: 3 GiB"), faults_of("gpu"):
        raise torch.OutOfMemoryError("3 GiB are missing")
    with pytest.raises(ValueError, match="odd"), faults_of("gpu"):
        raise ValueError("odd")
    with pytest.raises(MachineError, match="memory is full: 3 GiB"), faults_of("cpu"):
        raise torch.OutOfMemoryError("3 GiB are missing")


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate "
            "memory: you tried to allocate 40000000000000 bytes. Error code 12"
        ),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        ValueError("std::bad_alloc"),
        RuntimeError("Cannot allocate memory"),
    ],
)
def test_what_libraries_say_of_full_memory_is_the_machine_s_fault(error, device):
    with pytest.raises(MachineError), faults_of(device):
        raise error


def test_torch_says_of_full_memory_what_is_known_here():
    with pytest.raises(MachineError, match="memory is full"), faults_of("cpu"):
        torch.empty(2**50, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("error", "of_machine"),
    [
        (RuntimeError("CUDA error: an illegal memory access was encountered"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), True),
        (ValueError("Check failed: out of memory: cudaErrorMemoryAllocation"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (FloatingPointError("the training diverged"), False),
    ],
)
def test_what_libraries_say_of_a_broken_gpu_is_the_machine_s_fault(error, of_machine):
    with pytest.raises(MachineError if of_machine else type(error)), faults_of("gpu"):
        raise error


def test_a_gpu_computes_in_full_precision_and_in_a_fixed_order(monkeypatch):
    backends = torch.backends
    before = backends.cudnn.deterministic, backends.cudnn.allow_tf32
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    try:
        assert torch_device("gpu").type == "cuda"
        assert backends.cudnn.deterministic
        assert not backends.cudnn.allow_tf32
        assert not backends.cuda.matmul.allow_tf32
        assert backends.cuda.flash_sdp_enabled()  # of half precision; attention on a CPU uses it
        assert not backends.cuda.mem_efficient_sdp_enabled()
        assert backends.cuda.math_sdp_enabled()
    finally:
        backends.cudnn.deterministic, backends.cudnn.allow_tf32 = before
        backends.cuda.enable_mem_efficient_sdp(True)


def test_an_xgboost_without_cuda_is_the_machine_s_fault(monkeypatch):
    xgboost = pytest.importorskip("xgboost")
    monkeypatch.setattr(xgboost, "build_info", lambda: {"USE_CUDA": False})
    with pytest.raises(MachineError, match="pip uninstall xgboost-cpu, then pip install xgboost"):
        examples.fit("xgb", examples.mixed()[0], device="gpu")


@pytest.mark.skipif(not NO_GPU, reason="has a GPU")
def test_xgboost_does_not_go_on_on_a_cpu(monkeypatch):
    xgboost = pytest.importorskip("xgboost")
    monkeypatch.setattr(xgboost, "build_info", lambda: {"USE_CUDA": True})
    with pytest.raises(MachineError, match="no CUDA device"):
        examples.fit("xgb", examples.mixed()[0], device="gpu")


@pytest.mark.gpu
@pytest.mark.skipif(NO_GPU, reason="torch finds no GPU here")
@pytest.mark.parametrize("name", NETWORKS)
def test_a_gpu_gives_equal_bits_again_and_learns_as_the_cpu_does(name):
    data, y_test = examples.of(name)()
    first, second = (examples.fit(name, data, device="gpu") for _ in range(2))
    np.testing.assert_array_equal(first.scores, second.scores)
    on_cpu = examples.fit(name, data)
    accuracies = [np.mean(each.label[-1] == y_test) for each in (first, on_cpu)]
    # three standard errors of a difference: rounding is enough to lead a deep network elsewhere
    assert abs(accuracies[0] - accuracies[1]) < 3 * np.sqrt(0.5 / len(y_test))


ON_GPU = [pytest.mark.gpu, pytest.mark.skipif(NO_GPU, reason="torch finds no GPU here")]


@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=ON_GPU)])
@pytest.mark.parametrize("name", ["mlp", "cnn", "convnet", "vit"])
def test_a_stack_gives_equal_bits_again_and_learns_as_runs_alone_do(name, device):
    data, y_test = examples.of(name)()
    info = classifiers.resolve(name, examples.LEARNING[name], examples.info(data))
    handling = Handling(info.snapshots, device)

    def stack():
        fits = [(info.hparams, data, examples.generators(run, run, run)) for run in range(3)]
        return classifiers.fit_stack(info.canonical, fits, [handling] * 3)

    for run, (first, second) in enumerate(zip(stack(), stack(), strict=True)):
        np.testing.assert_array_equal(first.scores, second.scores)
        streams = dict.fromkeys(("init", "batch", "dropout"), run)
        alone = examples.fit(name, data, examples.LEARNING[name], device=device, **streams)
        accuracies = [np.mean(each.label[-1] == y_test) for each in (first, alone)]
        assert abs(accuracies[0] - accuracies[1]) < 3 * np.sqrt(0.5 / len(y_test))
        assert min(accuracies) > 0.7


@pytest.mark.gpu
@pytest.mark.skipif(NO_GPU, reason="torch finds no GPU here")
@pytest.mark.parametrize("name", NETWORKS)
def test_a_gpu_fit_goes_on_from_its_checkpoint(name, tmp_path, monkeypatch):
    data, _ = examples.of(name)()
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


@pytest.mark.gpu
@pytest.mark.skipif(NO_GPU, reason="torch finds no GPU here")
def test_the_model_of_the_gpu_names_its_device_class():
    assert gpu_model() == torch.cuda.get_device_name()
