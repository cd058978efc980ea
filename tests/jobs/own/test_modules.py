"""Where users' code lies: whether a module is a library, or files that are copied."""

from __future__ import annotations

import importlib
import importlib.metadata
from pathlib import Path

import pytest

from manyseed.jobs.checks import Refused
from manyseed.jobs.own import copies

RECORD = "shelved_boosting/__init__.py,,\nshelved_boosting/core.py,,\n"
METADATA = "Metadata-Version: 2.1\nName: shelved-boosting\nVersion: 1.4\n"


@pytest.mark.parametrize("is_listed", [True, False])
def test_what_pip_put_elsewhere_on_the_path_is_a_library(
    is_listed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by ``pip install --target``; of an editable install the files are not listed."""
    for name in ("__init__.py", "core.py"):
        file = tmp_path / "shelf" / "shelved_boosting" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("class Booster: ...\n")
    about = tmp_path / "shelf" / "shelved_boosting-1.4.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(METADATA)
    (about / "top_level.txt").write_text("shelved_boosting\n")
    (about / "RECORD").write_text(RECORD if is_listed else "elsewhere.pth,,\n")
    monkeypatch.syspath_prepend(str(tmp_path / "shelf"))
    importlib.invalidate_caches()
    found = copies.find_modules("estimator", ["shelved_boosting:Booster"], [tmp_path])
    if is_listed:
        assert (found.root, found.digest) == (None, "shelved-boosting 1.4")
        assert not found.files
    else:
        assert found.root == tmp_path / "shelf"
        assert {*found.files} == {"shelved_boosting/__init__.py", "shelved_boosting/core.py"}


@pytest.mark.parametrize("module", ["own", "models.own"])
def test_a_file_in_place_of_a_module_is_refused_with_its_name(module: str, tmp_path: Path) -> None:
    file = tmp_path / f"{module.replace('.', '/')}.py"
    file.parent.mkdir(exist_ok=True)
    (file.parent / "__init__.py").write_text("")
    file.write_text("def build(): ...\n")
    with pytest.raises(Refused, match=rf'names a module, not a file: "{module}:build"'):
        copies.find_modules("module", [f"{module}.py:build"], [tmp_path])
    with pytest.raises(Refused, match="there is no"):
        copies.find_modules("module", [f"{module}.other:build"], [tmp_path])


def test_a_module_is_found_in_the_distributions_that_python_names() -> None:
    every = importlib.metadata.packages_distributions()
    assert {"sklearn", "numpy", "polars"} <= every.keys()
    for top, names in every.items():
        if top.isidentifier():
            assert copies.distributions(top) == sorted({*names}), top


def test_a_module_in_a_plain_folder_is_found_with_what_it_imports(tmp_path: Path) -> None:
    for name, text in (
        ("plain_models/net.py", "import plain_models.parts, plain_helper, plain_other"),
        ("plain_models/parts.py", ""),
        ("plain_helper.py", ""),
        ("plain_other/it.py", ""),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = copies.find_modules("module", ["plain_models.net:build"], [tmp_path])
    assert found.root == tmp_path.resolve()
    assert {*found.files} == {"plain_models/net.py", "plain_models/parts.py", "plain_helper.py"}
    with pytest.raises(Refused, match="there is no module plain_models"):
        copies.find_modules("module", ["plain_models.absent:build"], [tmp_path])
