"""Memory is bounded by the block, not by the sweep."""

from __future__ import annotations

import subprocess
import sys

import pytest

PEAK = """
import sys
from pathlib import Path
import numpy as np
from manyseed.analysis.graph.chunks import analyze_group, compute, compute_all
from manyseed.analysis.questions import points
from analysis.options import Options
from tests.analysis.samples import Lazy, predictions, regular

def analysed(repeats):
    runs, n_test = regular(1, repeats, 10), 4000
    shape = (10 * repeats, 1, n_test)

    def gap(start, stop):
        values = np.random.default_rng(start).normal(size=(stop - start, *shape[1:]))
        return values.astype(np.float32)

    def label(start, stop):
        return (gap(start, stop) >= 0).astype(np.uint8)

    y_true = np.broadcast_to(np.arange(n_test) % 2, (repeats, n_test)).astype(np.uint8)
    none = np.zeros((1, 1, 1, 2), dtype=np.float32)
    given = predictions(none, y_true, runs, keep="none",
                        test_index=np.broadcast_to(np.arange(n_test), y_true.shape),
                        label=Lazy(label, shape, np.uint8, 100),
                        margin=Lazy(gap, shape, np.float32, 100))
    options = Options(resamples=2, block_bytes=2_000_000)
    compute([analyze_group(given, options)], scheduler="threads", workers=2)
    compute_all(points.build(given, options, {0: 0}), scheduler="threads", workers=2)

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
