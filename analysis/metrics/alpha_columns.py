"""The columns of α̂ in the tables of runs and of repeats."""

from __future__ import annotations

import polars as pl

from manyseed.analysis.metrics.metric import Column

RUNS = (
    Column(
        "alpha_hat",
        pl.Float64,
        "trimming level",
        "Mean over the resamples of the smallest level at which the run passes the robust "
        "two-sample KS test against its reference.",
        ("n", "mean", "min", "max", "range"),
    ),
    Column(
        "alpha_hat_mc_se",
        pl.Float64,
        "trimming level",
        "Monte-Carlo error of alpha_hat: spread over the square root of the resamples. Not "
        "the uncertainty for new test points.",
    ),
    Column(
        "alpha_hat_spread",
        pl.Float64,
        "trimming level",
        "Standard deviation over the resamples.",
    ),
    Column(
        "alpha_hat_low",
        pl.Float64,
        "trimming level",
        "Lower end of a 95 % interval over new test points for the level at endless points, by a "
        "bootstrap; null unless the option alpha_bootstrap asks for it.",
    ),
    Column("alpha_hat_high", pl.Float64, "trimming level", "Upper end of that interval."),
    Column(
        "alpha_hat_rejected",
        pl.Float64,
        "share of resamples",
        "Resamples in which the robust test at the level of the option alpha_level rejects.",
        ("mean",),
    ),
    Column(
        "alpha_hat_infeasible",
        pl.Float64,
        "share of resamples",
        "Resamples that no trimming makes acceptable; they count as level 1 (.50 in mode paper).",
        ("max",),
    ),
    Column(
        "alpha_hat_suspect",
        pl.Boolean,
        "",
        "Whether the run is likely why resamples of its repeat are infeasible: without the "
        "suspects none is. With alpha_reference = others-trimmed they are left out of it.",
    ),
    Column("alpha_hat_references", pl.UInt32, "runs", "Runs in the reference."),
    Column(
        "delta_b",
        pl.Float64,
        "difference of eCDFs",
        "How far the reference's average eCDF is from the average distribution function, at most "
        "(with probability 1 - ε).",
    ),
    Column(
        "alpha_hat_bound",
        pl.Float64,
        "difference of distribution functions",
        "Bound on the largest difference of the candidate's distribution function and the "
        "reference's average one: alpha_hat + γ + δ_b + δ_c.",
    ),
    Column(
        "ks_distance",
        pl.Float64,
        "difference of eCDFs",
        "Mean over the resamples of the largest difference of the two eCDFs.",
        ("mean", "max"),
    ),
    Column(
        "ks_rejected",
        pl.Float64,
        "share of resamples",
        "Resamples in which the classical two-sample KS test rejects: the distance exceeds δ.",
        ("mean",),
    ),
    Column(
        "below_resolution",
        pl.Boolean,
        "",
        "Whether the classical test accepts in at least half of the resamples: what sets the "
        "run apart, if anything, is too little to be seen at N.",
    ),
    Column(
        "wasserstein",
        pl.Float64,
        "unit of the probe",
        "Wasserstein-1 distance of the run's eCDF from its reference's, over all test points: the "
        "area between them. Null where it is infinite.",
        ("mean", "max"),
    ),
)
"""Of each run."""

REPEAT = (
    Column("n_side", pl.UInt32, "test points", "Points on each side of the test (N)."),
    Column(
        "delta",
        pl.Float64,
        "difference of eCDFs",
        "Resolution: the two-sample DKW threshold at N. Smaller contamination isn't seen.",
    ),
    Column(
        "delta_c",
        pl.Float64,
        "difference of eCDFs",
        "How far a candidate's eCDF is from its distribution function, at most (with probability "
        "1 - ε).",
    ),
)
"""Of each repeat."""
