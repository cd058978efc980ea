"""Each kind of sentence has a measured rate of error; here a small form of what docs/claims.md has.

`benchmarks/claims/` holds the kinds, and the planted sweeps.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from scipy import stats

from benchmarks.bench_claims import PAGE, measured
from benchmarks.claims import CLAIMS, PLAIN

ROOT = Path(__file__).parents[3]
SAID_BY = (
    *sorted(ROOT.glob("analysis/questions/*.py")),
    *sorted(ROOT.glob("orchestrator/results/answers/*.py")),
    ROOT / "orchestrator" / "results" / "caveats.py",
)
"""Modules all of whose words are said of results."""
SHOWN = [
    *(file for folder in ("figures", "report") for file in ROOT.glob(f"analysis/{folder}/*.py")),
    *ROOT.glob("analysis/report/*.html"),
]
"""Captions and the page, of which words that judge need a row."""
ALSO = [
    file
    for folder in ("results", "asking", "computing", "cli")
    for file in ROOT.glob(f"orchestrator/{folder}/**/*.py")
]
ALSO += [ROOT / "orchestrator" / "importing" / name for name in ("directory.py", "doubts.py")]
"""Modules of which only words on chance, intervals and what is better need a row."""
CHANCE = re.compile(
    r"by chance|beyond chance|95 %|significan|p below|differ by chance|\bbetter\b|\bunlike\b|"
    r"(told|tells?) .*\bapart\b|cannot be told|(vary|varies) more|worth more|[Mm]atters\b"
)
JUDGING = re.compile(rf"{CHANCE.pattern}|\b(best|enough|most|least|largest|smallest)\b(?!:)")
WORDS = 4  # of a text that is a sentence or a part of one
FEW_WORDS = 2  # of one that judges


@cache
def texts(file: Path) -> Sequence[str]:
    """Return the texts of a module, values as {}, but for docstrings, errors and questions.

    Of a page, what is between its tags.
    """
    found = []
    if file.suffix == ".html":
        page = re.sub(r"(?s)<(script|style)\b.*?</\1>|\{#.*?#\}|\{%.*?%\}", "\n", file.read_text())
        page = re.sub(r"</?(b|i|em|strong|a|code|sub|sup)\b[^>]*>", "", page)
        return re.split(r"<[^>]*>|\n", re.sub(r"\{\{.*?\}\}", "{}", page))
    tree = ast.parse(file.read_text())
    skipped: set[int] = set()
    for node in ast.walk(tree):
        called = isinstance(node, ast.Call) and getattr(node.func, "id", "").endswith(
            ("Error", "Refused", "Option", "Argument", "_option", "require_one_of")
        )
        if isinstance(node, ast.Raise) or called:
            skipped.update(id(one) for one in ast.walk(node))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            for part in node.values:
                skipped.add(id(part))
                if isinstance(part, ast.FormattedValue) and part.format_spec:
                    skipped.update(id(one) for one in ast.walk(part.format_spec))
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        text = ""
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                part.value if isinstance(part, ast.Constant) else "{}" for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        if not re.search(r"\?$|^[\w.]+:\w+$", text):  # a question, or the name of a function
            found.append(text)
    return found


ROWS = [re.compile(pattern) for pattern in (*(claim.wording for claim in CLAIMS), *PLAIN)]


def unlisted(files, only=re.compile("")):
    return [
        f"{file.name}: {text}"
        for file in files
        for text in texts(file)
        if len(re.findall(r"[A-Za-z]{2,}", text)) >= (FEW_WORDS if JUDGING.search(text) else WORDS)
        and " " in text
        and only.search(text)
        and not any(row.search(text) for row in ROWS)
    ]


def test_every_sentence_has_a_row():
    """A new one needs a record in benchmarks/claims/: what it promises, and planted sweeps."""
    assert unlisted(SAID_BY) == []
    assert unlisted(SHOWN, JUDGING) == []
    assert unlisted(ALSO, CHANCE) == []


def test_every_row_is_of_a_sentence():
    said = [text for file in (*SAID_BY, *SHOWN, *ALSO) for text in texts(file)]
    gone = [row.pattern for row in ROWS if not any(row.search(text) for text in said)]
    assert gone == []


@pytest.mark.parametrize(
    "sentence",
    [
        "{name} is certainly the best one of all",
        "{name} is better",
        "{name} varies more than everything",
        "Matters for {name}, most of all",
        "the means may differ in {name}",
        "{name} has runs that are equal to those of all others",
        "{name} needs no more than 3 runs, which are enough",
    ],
)
def test_a_new_sentence_is_found(tmp_path, sentence):
    new = tmp_path / "new.py"
    new.write_text(f'def words(name):\n    return f"{sentence}"\n')
    page = tmp_path / "page.html"
    page.write_text(f"<p>{sentence.replace('{name}', '{{ name }}')}</p>")
    assert len(unlisted([new, page])) == 2


FEW = {200: 4, 1000: 40}
"""Sweeps of each kind, by how many the benchmark plants."""


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.by}: {claim.name}"[:60])
def test_a_sentence_is_rarely_false_and_often_said(claim):
    """On the benchmark's first sweeps. More false ones would come by chance once in 200."""
    false, said = measured(claim, FEW[claim.sweeps])
    most = int(stats.binom.ppf(0.995, false.sweeps, claim.promise))
    assert false.times <= most * max(false.of // max(false.sweeps, 1), 1)
    assert said.times > 0


LEAST_POWER = 10  # % of planted effects


def test_the_page_has_a_row_for_each_that_keeps_its_promise():
    """`python benchmarks/bench_claims.py` writes it; a row above its promise stands in bold."""
    rows = {
        cells[1]: cells
        for line in PAGE.read_text().splitlines()
        if len(cells := line.strip("| ").split(" | ")) == 6
    }
    assert [claim.name for claim in CLAIMS if claim.name not in rows] == []
    weak = [
        name for name, row in rows.items() if "%" in row[4] and float(row[4][:-2]) < LEAST_POWER
    ]
    assert weak == []
