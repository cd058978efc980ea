"""Rows as a data frame whose columns have the names that the table gives: ``encode = "frame"``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.own.calling import OwnError, encoder
from manyseed.jobs.run import TrainingSet


def framed(how: str, data: TrainingSet) -> Callable[[NDArray[Any]], Any]:
    """Return a function from encoded rows to what users' code is given.

    With ``frame`` that is a pandas frame: numbers as float64, labels as text, as pandas reads them
    from a file; NaN where missing. Otherwise it is the rows themselves.
    """
    if how != "frame":
        return lambda rows: rows
    import pandas as pd  # type: ignore[import-untyped]

    if len(data.features) != data.X.shape[1]:
        raise OwnError(
            "the names of columns are not beside the prepared copy of the data; plan the sweep "
            "again where its file is"
        )
    of_codes = [np.array([*each.labels, np.nan], dtype=object) for each in data.features]

    def frame(rows: NDArray[Any]) -> Any:
        columns: dict[str, Any] = {}
        for number, feature in enumerate(data.features):
            values = rows[:, number]
            if data.cardinality[number]:
                codes = np.where(np.isnan(values), len(feature.labels), values).astype(np.int64)
                columns[feature.name] = of_codes[number][codes].tolist()
            else:
                columns[feature.name] = values
        return pd.DataFrame(columns)

    return frame


def encoded(how: str, data: TrainingSet) -> tuple[Any, Any]:
    """Return training and test rows in the form that the table's ``encode`` asks for."""
    encode, given = encoder(how, data), framed(how, data)
    return given(encode(data.X)), given(encode(data.X_test))
