"""Memory is bounded by the block, not by the sweep."""

from __future__ import annotations

import subprocess
import sys

import pytest

PEAK = """
import sys
from pathlib import Path
import dask.array as da
import numpy as np
from analysis.group import analyze_group, compute
from analysis.options import Options
from tests.analysis.samples import predictions, regular

def analysed(repeats):
    runs, n_test = regular(1, repeats, 10), 4000
    gap = da.random.default_rng(0).normal(size=(10 * repeats, 1, n_test), chunks=(100, 1, -1))
    gap = gap.astype(np.float32)
    y_true = np.broadcast_to(np.arange(n_test) % 2, (repeats, n_test)).astype(np.uint8)
    none = np.zeros((1, 1, 1, 2), dtype=np.float32)
    given = predictions(none, y_true, runs, keep="none", label=(gap >= 0).astype(np.uint8),
                        margin=gap)
    options = Options(resamples=2, block_bytes=2_000_000)
    compute([analyze_group(given, options)], scheduler="threads", workers=2)

analysed(2)  # compilation, libraries
analysed(int(sys.argv[1]))
# not getrusage's: a child begins with what its parent had
(peak,) = (line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
print(peak.split()[1])
"""


@pytest.mark.slow
def test_four_times_the_runs_take_no_more_memory():
    """200 MB of margins and labels, beside 50 MB."""
    peaks = [
        int(
            subprocess.run(
                [sys.executable, "-c", PEAK, str(repeats)],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for repeats in (250, 1000)
    ]
    assert peaks[1] <= 1.2 * peaks[0], peaks
