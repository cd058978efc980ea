"""Key columns of the result tables; imports nothing that computes."""

from __future__ import annotations

import polars as pl

EPOCH = {"epoch": pl.UInt32}
"""The column that names a row's snapshot, and its type."""

REPEAT = ("cell", "repeat_index")
RUN = (*REPEAT, "run_index")
PAIR = (*REPEAT, "run_i", "run_j")
REPEAT_KEY = ("cell", "epoch", "repeat_index")
RUN_KEY = (*REPEAT_KEY, "run_index")
PAIR_KEY = (*REPEAT_KEY, "run_i", "run_j")
CELL_KEY = ("cell", "epoch")
IS_METHOD = pl.col("run_index").is_not_null()
"""Whether a row of the table uncertainty averages the members of one run: no deep ensemble."""
ORDER = {"runs": RUN_KEY, "pairs": PAIR_KEY, "repeats": REPEAT_KEY}
"""The columns that each table is sorted by."""
