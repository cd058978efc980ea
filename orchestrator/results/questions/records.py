"""The questions that have options: light records, whose answers are in `results.answers`."""

from __future__ import annotations

from manyseed.analysis.questions.question import Question

_ANSWERS = "orchestrator.results.answers"

HOWMANY = Question(
    "howmany",
    "How many seeds are needed, for means and for ensembles?",
    f"{_ANSWERS}.howmany:howmany",
    tables=("runs", "pairs", "repeats", "cells"),
    figures=("ensembles-close", "ensembles-accuracy"),
    tell=f"{_ANSWERS}.howmany:reply",
    examples=(
        "",
        "--accuracy 0.001 --where \"classifier = 'mlp'\"",
        "--by dataset,classifier",
        "--sizes 1,2,3,4,5",
        "--until 0.002 --most 100 --dry-run",
    ),
    flags={"draws": {"min": 2}},
    variants={"until": ("until", "half_width")},
    busy="drawing ensembles",
)

UNTIL = Question(
    "until",
    "How many seeds are needed: trained until each cell's accuracy is known well enough?",
    f"{_ANSWERS}.until:ask_until",
    tables=("runs", "repeats"),
    tell=f"{_ANSWERS}.until:reply",
    examples=("--half-width 0.002 --most 100 --dry-run",),
    flags={"dry_run": {"short": "-n"}},
)

COMPARE = Question(
    "compare",
    "How different are two cells, and how likely is one better than the other?",
    f"{_ANSWERS}.compare:compare_cells",
    tables=("runs", "cells"),
    tell=f"{_ANSWERS}.compare:reply",
    examples=(
        "",
        "xgb mlp",
        "--by train_fraction --where \"classifier = 'mlp'\"",
        "--a \"classifier = 'mlp'\" --b \"classifier = 'xgb'\"",
        "other-sweep --metric ece",
        "xgb mlp --alike",
        "xgb mlp --format latex",
    ),
    flags={
        "metric": {"short": "-m"},
        "by": {"metavar": "COLUMN"},
        "between": {"metavar": "LEVEL,LEVEL"},
    },
    variants={"alike": ("alike", "")},
)

ALIKE = Question(
    "alike",
    "Are one cell's runs like those of another?",
    f"{_ANSWERS}.likeness:alike",
    tables=("runs", "cells"),
    tell=f"{_ANSWERS}.likeness:reply",
    examples=("", "xgb mlp"),
    flags={"by": {"metavar": "COLUMN"}, "between": {"metavar": "LEVEL,LEVEL"}},
)

DEE = Question(
    "dee",
    "What does averaging runs gain, and how many runs is another cell worth?",
    f"{_ANSWERS}.dee:dee",
    tables=("uncertainty", "cells"),
    figures=("deep-equivalent-cll", "deep-likelihood"),
    tell=f"{_ANSWERS}.dee:reply",
    examples=(
        "",
        "--metric error --where \"classifier = 'mlp'\"",
        "--by dataset,classifier --members 1",
    ),
)

VARIANCE = Question(
    "variance",
    "Where does the variance come from?",
    f"{_ANSWERS}.variance:variance",
    tables=("variance", "cells"),
    figures=("sources-accuracy-std",),
    tell=f"{_ANSWERS}.variance:reply",
    examples=("", "--where \"metric = 'accuracy' AND classifier = 'mlp'\""),
)

POINTS = Question(
    "points",
    "Which test points flip between runs, and which does nearly every run get wrong?",
    f"{_ANSWERS}.points:points",
    tables=("points",),
    figures=("points",),
    examples=("", "--limit 30 --where \"classifier = 'mlp'\"", "--verdicts --between xgb,mlp"),
    variants={"verdicts": ("verdicts", "")},
    on_page=True,
)

VERDICTS = Question(
    "verdicts",
    "On which test points does each verdict A > B hang?",
    f"{_ANSWERS}.points:verdicts",
    tables=("runs", "cells"),
    figures=("points",),
    examples=("", "--between xgb,mlp"),
    flags={"by": {"metavar": "COLUMN"}, "between": {"metavar": "LEVEL,LEVEL"}},
)

METHODS = Question(
    "methods",
    "What does a paper say of how these results were made?",
    f"{_ANSWERS}.summary:methods",
    tell=f"{_ANSWERS}.summary:reply",
    examples=("", "--format latex", "--format bibtex --output references.bib"),
    formats=("bibtex",),
)
