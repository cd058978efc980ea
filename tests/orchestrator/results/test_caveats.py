"""What a reader must know of the numbers that are shown."""

from __future__ import annotations

import polars as pl

from manyseed.orchestrator.results.caveats import of_columns, small_classes


def repeats(**smallest: list[int | None]) -> pl.DataFrame:
    """Two cells of each dataset on its test sets."""
    rows = [
        (dataset, index, points)
        for dataset, sizes in smallest.items()
        for _ in range(2)
        for index, points in enumerate(sizes)
    ]
    return pl.DataFrame(
        rows,
        schema={"dataset": pl.String, "repeat_index": pl.UInt16, "smallest_class": pl.UInt32},
        orient="row",
    )


def test_small_and_absent_classes_are_said_by_dataset() -> None:
    told = small_classes(repeats(wide=[10, 400], few=[3, 12, 9], none=[0, 40], old=[None]))
    assert [text.partition(":")[0] for text in told] == ["few", "none"]
    assert "has 3 points in a test set (fewer than 10 in 2 of 3 test sets)" in told[0]
    assert "no test point in 1 of 2 test sets" in told[1]
    assert small_classes(pl.DataFrame({"dataset": ["earlier"]})) == []


def test_no_calibration_error_is_shown_without_its_warning() -> None:
    assert of_columns(["accuracy", "piece"]) == []
    for name in ("ece", "ece_mean_sd"):
        assert "Do not choose runs by ece" in of_columns(["accuracy", name])[0]
