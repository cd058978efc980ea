"""The table of effects below the summary of an analysis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from manyseed.orchestrator.cli.output import console, print_table, say, say_next

if TYPE_CHECKING:
    from manyseed.orchestrator.sweep import Sweep

_SHOWN = {"accuracy": "accuracy_mean", "EC": "ec_local_mean", "churn": "churn_mean"}
_MOST_ROWS = 20
_SIGNIFICANT = 0.05


def print_effects(sweep: Sweep) -> None:
    """Print differences by classifier with their intervals, if cells can be compared."""
    from manyseed.analysis.questions.effects import effects
    from manyseed.analysis.questions.intervals import SEEDS
    from manyseed.analysis.report.page import effect_rows, few_test_sets
    from manyseed.orchestrator.asking.effects import compared
    from manyseed.orchestrator.computing.tables import EFFECTS, read_results

    results = read_results(sweep.paths)
    if EFFECTS not in results or results[EFFECTS].is_empty():
        return
    rows = effect_rows(effects(compared(results), by=("classifier",)))
    console.print()
    print_table(
        None,
        ["classifier", "effect of", "test\nsets", *_SHOWN],
        (
            (
                row["classifier"],
                f"{row['axis']} {row['level']}, not {row['reference']}",
                row["n_test_sets"],
                *(_difference(row["of"].get(name)) for name in _SHOWN.values()),
            )
            for row in rows[:_MOST_ROWS]
        ),
        nested=True,
    )
    accuracy = [row["of"][name] for row in rows for name in row["of"] if name == "accuracy_mean"]
    number = max((row["comparisons"] for row in accuracy), default=0)
    over = "seeds, on one test set" if any(r["over"] == SEEDS for r in accuracy) else "test sets"
    say(
        f"Effects: mean difference, all else equal, ± its 95 % interval over {over}. *: p below "
        f"{_SIGNIFICANT:g} when corrected for multiple comparisons ({number:,} of accuracy; Holm)."
    )
    if few := few_test_sets(rows):
        say(few)
    say_next("All effects", "query", sweep.directory, "--table", EFFECTS)


def _difference(row: Mapping[str, Any] | None) -> str:
    if row is None or row["difference"] is None:
        return "–"
    shown = f"{row['difference']:+.4f}"
    if row["low"] is None:
        return shown
    mark = "*" if row["p_holm"] < _SIGNIFICANT else ""
    return f"{shown} ± {(row['high'] - row['low']) / 2:.4f}{mark}"
