"""The version of the code that computes the numbers."""

from __future__ import annotations

import hashlib
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import polars as pl

from manyseed.analysis.options import Options

PACKAGES = ("numba", "numpy", "scipy")
WORDING = ("*.py", "questions/*.py", "tables/*.py")
SHOWN = ("figures", "report")  # show numbers, compute none


def code_version(options: Options) -> str:
    """Return a digest of the code behind the metrics and the probe of an analysis.

    It covers this package's modules and records of tables (except figures and report), the modules
    that define users' own metrics, and the versions of the packages that compute.
    """
    from manyseed.analysis.metrics.registry import asked

    asked(options)  # imports users' modules
    here = Path(__file__).parent
    every = (*here.rglob("*.py"), *here.rglob("*.toml"))
    files = sorted(f for f in every if f.relative_to(here).parts[0] not in SHOWN)
    names = (*options.metrics, options.probe or "")
    for name in sorted({function.partition(":")[0] for function in names if ":" in function}):
        source = sys.modules[name].__file__
        files += [Path(source)] if source else []
    digest = hashlib.sha256(repr([version(name) for name in PACKAGES]).encode())
    for file in files:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:32]


def wording_version() -> str:
    """Return a digest of the code that makes sentences from the result tables."""
    here = Path(__file__).parent
    files = sorted(file for part in WORDING for file in here.glob(part))
    digest = hashlib.sha256(repr([np.__version__, pl.__version__]).encode())
    for file in files:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:32]
