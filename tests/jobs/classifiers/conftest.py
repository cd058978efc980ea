from __future__ import annotations

import pytest

from manyseed.jobs.classifiers import features
from tests.jobs.classifiers.backbone import tiny, write_weights


@pytest.fixture(scope="session", autouse=True)
def pretrained(tmp_path_factory):
    """Give this folder's tests a tiny backbone, with weights where torch hub would keep them."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_HOME", str(home / "torch"))
        patch.setenv("MANYSEED_DATA", str(home / "data"))
        patch.setitem(features.BACKBONES, "swin_t", tiny)
        write_weights(home / "torch" / "hub" / "checkpoints" / "swin_t-704ceda3.pth")
        yield
    features._model.cache_clear()
    features._digest_of.cache_clear()
