"""Other classifiers beside imported ones: as the page on imports says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.orchestrator.conftest import inside, train

PAGE = Path(__file__).parents[3] / "docs" / "import.md"
N_TRAIN, N_TEST = 200, 100


@pytest.mark.parametrize("start", [N_TRAIN, 0])
def test_what_the_page_trains_is_compared_with_what_was_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int
) -> None:
    """On the same test set where rows have the numbers that the page says."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, N_TRAIN + N_TEST)
    features = {f"x{i}": rng.normal(size=y.size) + y for i in range(3)}
    table = pl.DataFrame({**features, "diagnosis": np.array(["ill", "well"])[y]})
    table[:N_TRAIN].write_csv("train.csv")
    table[N_TRAIN:].write_csv("test.csv")
    labels = np.where(rng.random((4, N_TEST)) < 0.8, y[N_TRAIN:], 1 - y[N_TRAIN:])
    names = {"class_names": np.array(["ill", "well"]), "y_true": y[N_TRAIN:]}
    np.savez("p.npz", labels=labels, test_index=np.arange(start, start + N_TEST), **names)
    code, said = inside("import", "p.npz", "--out", "imported", "--dataset", "clinic")
    assert code == 0, said
    (page, heading) = re.findall(r"manyseed docs (\w+)#([\w-]+)", said)[0]
    code, shown = inside("docs", f"{page}#{heading}")
    assert (code, "test_file" in shown) == (0, True), shown
    (text,) = re.findall(r"## Other classifiers\n.*?```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    Path("others.toml").write_text(text.replace("runs    = 10", "runs    = 3"))
    train(Path("others.toml"), Path("others")).analyze(progress=False)
    assert inside("analyze", "imported")[0] == 0
    code, said = inside("compare", "imported", "others")
    assert (code, "Paired on 1 test set" in said) == (0, start == N_TRAIN), said
    assert ("the test sets differ" in said) == (start == 0)
