"""The studies that define the quantities of the page, for citation."""

from __future__ import annotations

from manyseed.analysis.options import Options
from manyseed.analysis.tables.rows import Tables

ROBUST = (
    "S. Banerjee, T. Marrinan, R. Cannon, T. Chiang and A. D. Sarwate: Measuring training "
    "variability from stochastic optimization using robust nonparametric testing, 2025, "
    "doi:10.48550/arXiv.2406.08307 (α̂, δ)."
)
LEAVE_ONE_OUT = (
    "S. Banerjee, R. Cannon, T. Marrinan, T. Chiang and A. D. Sarwate: Robust nonparametric "
    "hypothesis testing to understand variability in training neural networks, 2024, "
    "doi:10.48550/arXiv.2310.00541 (α̂ against the ensemble of the other runs)."
)
PITFALLS = (
    "A. Ashukha, A. Lyzhov, D. Molchanov and D. Vetrov: Pitfalls of in-domain uncertainty "
    "estimation and ensembling in deep learning, 2020, doi:10.48550/arXiv.2002.06470 "
    "(calibrated log-likelihood, deep ensemble equivalent)."
)
RESPONSES = (
    "Y. Schiff, B. Quanz, P. Das and P.-Y. Chen: Predicting deep neural network generalization "
    "with perturbation response curves, 2021, doi:10.48550/arXiv.2106.04765 (scores of response "
    "curves)."
)


def citations(tables: Tables, options: Options, *, uncertainty: bool, responses: bool) -> list[str]:
    """Return the studies to cite for the quantities in the tables.

    Parameters
    ----------
    tables : Tables
    options : Options
        Those that the tables were computed with.
    uncertainty : bool
        Whether there are deep ensembles.
    responses : bool
        Whether there are response curves.
    """
    levels = not tables.runs["alpha_hat"].is_null().all()
    loo = levels and options.alpha_reference == "loo_ensemble"
    named = (
        (levels, ROBUST),
        (loo, LEAVE_ONE_OUT),
        (uncertainty, PITFALLS),
        (responses, RESPONSES),
    )
    return [citation for wanted, citation in named if wanted]
