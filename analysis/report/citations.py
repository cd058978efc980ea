"""Whose quantities the page shows: the studies that define them, named as they name themselves."""

from __future__ import annotations

from manyseed.analysis.options import Options
from manyseed.analysis.tables.schema import Tables

ROBUST = (
    "S. Banerjee, T. Marrinan, R. Cannon, T. Chiang and A. D. Sarwate: Measuring training "
    "variability from stochastic optimization using robust nonparametric testing, 2025 (α̂, δ)."
)
LEAVE_ONE_OUT = (
    "S. Banerjee, R. Cannon, T. Marrinan, T. Chiang and A. D. Sarwate: Robust nonparametric "
    "hypothesis testing to understand variability in training neural networks, 2024 (α̂ against "
    "the ensemble of the other runs)."
)
PITFALLS = (
    "Pitfalls of in-domain uncertainty estimation and ensembling in deep learning, 2020 "
    "(calibrated log-likelihood, deep ensemble equivalent)."
)


def citations(tables: Tables, options: Options, *, uncertainty: bool) -> list[str]:
    """Return what to cite for what the tables hold.

    Parameters
    ----------
    tables : Tables
    options : Options
        As they were computed with.
    uncertainty : bool
        Whether there are deep ensembles.
    """
    levels = not tables.runs["alpha_hat"].is_null().all()
    loo = levels and options.alpha_reference == "loo_ensemble"
    named = ((levels, ROBUST), (loo, LEAVE_ONE_OUT), (uncertainty, PITFALLS))
    return [citation for wanted, citation in named if wanted]
