"""The columns of α̂ in the tables of runs and of repeats."""

from __future__ import annotations

import polars as pl

from manyseed.analysis.metrics.metric import Column, real

RUNS = (
    real(
        "alpha_hat",
        "trimming level",
        "Mean over the resamples of the smallest level at which the run passes the robust "
        "two-sample KS test against its reference.",
        ("n", "mean", "min", "max", "range"),
    ),
    real(
        "alpha_hat_mc_se",
        "trimming level",
        "Monte-Carlo error of alpha_hat: spread over the square root of the resamples. Not "
        "the uncertainty for new test points.",
        (),
    ),
    real("alpha_hat_spread", "trimming level", "Standard deviation over the resamples.", ()),
    real(
        "alpha_hat_low",
        "trimming level",
        "Lower end of a 95 % bootstrap interval over new test points for the level at infinitely "
        "many points; null unless the option alpha_bootstrap is set.",
        (),
    ),
    real("alpha_hat_high", "trimming level", "Upper end of that interval.", ()),
    real(
        "alpha_hat_rejected",
        "share of resamples",
        "Resamples in which the robust test at the level of the option alpha_level rejects.",
        ("mean",),
    ),
    real(
        "alpha_hat_infeasible",
        "share of resamples",
        "Resamples that no trimming makes acceptable; they count as level 1 (.50 in mode paper).",
        ("max",),
    ),
    Column(
        "alpha_hat_suspect",
        pl.Boolean,
        "",
        "Whether the run probably makes resamples of its repeat infeasible: without the suspects "
        "none is. With alpha_reference = others-trimmed the reference leaves them out.",
    ),
    real(
        "alpha_hat_majority",
        "trimming level",
        "Of a run that is not close to its reference: α̂ against the runs that are left if the "
        "fewest, fewer than half, are left out so that all others are close to each other. Null if "
        "no majority is, and with more than 100 runs in the reference.",
        (),
    ),
    Column("alpha_hat_references", pl.UInt32, "runs", "Runs in the reference."),
    real(
        "delta_b",
        "difference of eCDFs",
        "Bound on the distance of the reference's average eCDF from the average distribution "
        "function (with probability 1 - ε).",
        (),
    ),
    real(
        "alpha_hat_bound",
        "difference of distribution functions",
        "Bound on the largest difference between the candidate's distribution function and the "
        "reference's average one: alpha_hat + γ + δ_b + δ_c.",
        (),
    ),
    real(
        "ks_distance",
        "difference of eCDFs",
        "Mean over the resamples of the largest difference between the two eCDFs.",
        ("mean", "max"),
    ),
    real(
        "ks_rejected",
        "share of resamples",
        "Resamples in which the classical two-sample KS test rejects: the distance exceeds δ.",
        ("mean",),
    ),
    Column(
        "below_resolution",
        pl.Boolean,
        "",
        "Whether the classical test accepts in at least half of the resamples: the run's "
        "difference, if any, is too small to be seen at N.",
    ),
    real(
        "wasserstein",
        "unit of the probe",
        "Wasserstein-1 distance of the run's eCDF from its reference's, over all test points: the "
        "area between them. Null where it is infinite.",
        ("mean", "max"),
    ),
)

REPEAT = (
    Column("n_side", pl.UInt32, "test points", "Points on each side of the test (N)."),
    real(
        "delta",
        "difference of eCDFs",
        "Resolution: the two-sample DKW threshold at N. Smaller contamination isn't seen.",
        (),
    ),
    real(
        "delta_c",
        "difference of eCDFs",
        "Bound on the distance of a candidate's eCDF from its distribution function (with "
        "probability 1 - ε).",
        (),
    ),
)
