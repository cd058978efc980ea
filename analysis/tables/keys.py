"""What rows of the result tables are known by; imports nothing that computes."""

from __future__ import annotations

import polars as pl

EPOCH = {"epoch": pl.UInt32}
"""The column that says which snapshot a row rests on, and its type."""

REPEAT = ("cell", "repeat_index")
RUN = (*REPEAT, "run_index")
PAIR = (*REPEAT, "run_i", "run_j")
REPEAT_KEY = ("cell", "epoch", "repeat_index")
RUN_KEY = (*REPEAT_KEY, "run_index")
PAIR_KEY = (*REPEAT_KEY, "run_i", "run_j")
CELL_KEY = ("cell", "epoch")
IS_METHOD = pl.col("run_index").is_not_null()
"""Of the table uncertainty: whether a row is of the members of one run, and no deep ensemble."""
ORDER = {"runs": RUN_KEY, "pairs": PAIR_KEY, "repeats": REPEAT_KEY}
"""What the rows of each table are sorted by."""
