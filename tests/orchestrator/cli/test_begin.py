"""The first contact: the command alone, and the examples that it writes."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from manyseed import Sweep
from manyseed.orchestrator.cli import guide, search
from manyseed.orchestrator.cli.guide import examples, found
from manyseed.orchestrator.cli.manual import pages, sections, spelt, words
from manyseed.orchestrator.grids.loading import read_sweep_file
from manyseed.slurm.profile import read_profile
from tests.orchestrator.conftest import inside, write

ROOT = Path(__file__).parents[3]


def test_the_command_alone_says_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, text = inside()
    assert code == 0
    assert "manyseed init --example quickstart" in text
    assert "Sweeps here" not in text
    write(tmp_path / "mine.toml", examples()["quickstart"].text)
    write(tmp_path / "other.toml", "[tool]\nx = 1\n")
    (tmp_path / "damaged.toml").write_bytes(b"\xff\xfe[[grid]]")
    (tmp_path / "empty").mkdir()
    assert found(tmp_path) == ([], ["mine.toml"])
    assert "manyseed plan mine.toml --dry-run" in inside()[1]
    assert inside("plan", "mine.toml", "--out", "planned")[0] == 0
    assert found(tmp_path)[0] == ["planned"]
    assert "manyseed status planned" in inside()[1]
    assert found(tmp_path / "nowhere") == ([], [])


def test_pages_are_shown_whole_or_by_section_and_every_link_between_them_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = {file.stem: file.read_text() for file in (ROOT / "docs").glob("*.md")}
    assert pages() == there
    code, text = inside("docs")
    assert code == 0
    assert all(name in text for name in there)
    assert "When something goes wrong" in text
    assert inside("docs", "docs/json.md") == (0, there["json"])
    for name, page in there.items():
        for other, heading in re.findall(r"\]\(([\w-]*)(?:\.md)?#([^)]+)\)", page):
            assert heading in sections(there[other or name]), (name, other, heading)
    code, text = inside("docs", "faq#it-stopped-in-the-middle")
    assert (code, text.count("\n## ")) == (0, 0)
    assert text.startswith("## It stopped in the middle\n")
    assert "manyseed resume DIR        # train exactly what is missing" in text
    for wrong, near in (("strt", "start"), ("faq#it-stoped", "it-stopped-in-the-middle")):
        code, text = inside("docs", wrong)
        assert (code, f'did you mean "{near}"?' in text) == (2, True)
    assert guide.pages_like("faq#it-s") == ["faq#it-stopped-in-the-middle"]
    assert {"start", "store"} <= set(guide.pages_like("st"))
    shown = Console(file=io.StringIO(), width=60, force_terminal=True, no_color=True)
    monkeypatch.setattr(guide, "console", shown)
    assert inside("docs", "json")[0] == 0
    text = re.sub(r"\x1b\[[\d;]*m", "", shown.file.getvalue())
    assert all(cell_len(line) <= 60 for line in text.splitlines())
    assert "Answers for programs" in text
    assert "# Answers" not in text


def test_headings_and_words_are_found_as_printed_or_in_ascii() -> None:
    said = inside("docs", "results#α")
    assert said[0] == 0
    assert said[1].startswith("## α̂\n\nα̂ is the smallest share of a run's test points")
    for same in ("α̂", "alpha", "alpha_hat", "Alpha"):
        assert inside("docs", f"results#{same}") == said
    asking = inside("docs", "results#Asking: `manyseed query`")
    assert (asking[0], asking[1][:11]) == (0, "## Asking: ")
    for word, row in (
        ("delta", "**δ**: the resolution"),
        ("repeat index", "**repeat**: a test set"),
    ):
        code, text = inside("docs", f"glossary#{word}")
        assert (code, text.startswith(row), text.count("\n")) == (0, True, 1)
    for name, page in pages().items():
        for anchor in sections(page) | words(page):
            if not anchor.isascii():
                assert inside("docs", f"{name}#{spelt(anchor)}")[0] == 0


def test_a_word_that_is_no_page_is_looked_for() -> None:
    code, text = inside("docs", "alpha")
    lines = text.splitlines()
    assert code == 0
    assert len(lines) <= 13
    assert [line.split()[0] for line in lines[0:4:3]] == ["glossary#alpha", "results#alpha"]
    assert lines[1].startswith("  **α̂**: how unlike a run is to the others")
    assert lines[-1] == "Read another: manyseed docs 'results#alpha'"
    code, text = inside("docs", "error consistency")
    assert (code, len(text.splitlines()) <= 13) == (0, True)
    code, text = inside("docs", "bold in table")  # a long section, from the paragraph that says it
    lines = text.splitlines()
    assert (code, len(lines) <= 40) == (0, True)
    assert lines[1].startswith("  - **Tables for a paper.**")
    assert lines[-1] == "Read on: manyseed docs 'results#asking-manyseed-query'"
    code, text = inside("docs", "import csv")  # a row, below the head of its table
    assert text.splitlines()[1].startswith("  | what you have | command |")
    assert inside("docs", "qqzz")[0] == inside("docs", "--", "!")[0] == 2
    assert (
        'WORD = "qqzz": no page has this name, and none has this word' in inside("docs", "qqzz")[1]
    )
    for word, first in (
        ("seeds", "faq#seeds"),
        ("metrics", "extending#a-metric"),
        ("add a metric", "results#metrics-of-your-own"),
    ):
        code, text = inside("docs", word)
        assert (code, text.splitlines()[0].startswith(first)) == (0, True), text
    assert inside("docs", "qqzz of yyxx")[0] == 2


@pytest.mark.parametrize(
    ("asked", "page"),
    [
        ("f1", "results#classification-metrics"),
        ("auc", "results#classification-metrics"),
        ("macro f1", "results#classification-metrics"),
        ("gpu", "classifiers#"),
        ("multi-gpu", "classifiers#"),
        ("resume", "faq#it-stopped"),
        ("seeds", "faq#seeds"),
        ("random seed", "faq#seeds"),
        ("kappa", "results#pairs"),
        ("memory", "faq#a-task-is-killed"),
        ("out of memory", "faq#a-task-is-killed"),
        ("class imbalance", "faq#imbalanced"),
        ("early stopping", "faq#early-stopping-and-validation-sets"),
        ("checkpoint", "classifiers#checkpoints"),
        ("slurm partition", "cluster#"),
        ("array limit", "cluster#tasks-and-jobs"),
        ("learning rate", "faq#setting-a-learning-rate"),
        ("batch size", "faq#setting"),
        ("epochs", "faq#setting"),
        ("test set", "datasets#test-sets"),
        ("bootstrap", "results#"),
        ("p-value", "faq#p-values"),
        ("confidence interval", "faq#how-intervals"),
        ("pandas", "python#"),
        ("csv", "import#"),
        ("pytorch", "own#a-pytorch-module"),
        ("scikit-learn", "own#an-estimator"),
        ("noise", "recipes#does-noise"),
        ("walltime", "faq#the-walltime"),
        ("timeout", "own#a-command"),
        ("missing values", "classifiers#"),
        ("nan", "classifiers#"),
        ("fine-tuning", "classifiers#vit-transfer"),
        ("regression", "faq#regression"),
        ("latex", "recipes#i-need-a-table-for-the-paper"),
        ("install", "start#install"),
    ],
)
def test_a_plausible_word_leads_to_a_section_and_says_something_of_it(
    asked: str, page: str
) -> None:
    """Several words need no quotes."""
    code, text = inside("docs", *asked.split())
    assert code == 0, text
    where, *said = text.partition("\n\n")[0].splitlines()
    assert where.startswith(page)
    assert len(" ".join(said).split()) >= 2
    others = text.partition("\n\n")[2].splitlines()[1:-1:2]
    assert [line for line in others if not line.strip("… ")] == []
    assert max(map(len, others), default=0) <= 204  # a sentence; a terminal wraps it


def test_a_word_too_short_to_have_forms_is_looked_for() -> None:
    for word in ("p1", "f1 f2", "a b", "q"):
        code, text = inside("docs", word)
        assert code in (0, 2), text


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        *((word, "faq#imbalanced-classes") for word in ("imbalance", "imbalanced", "class_weight")),
        ("balanced", "faq#imbalanced-classes"),
        ("significance", "results#comparing-cells-classifiers-and-sweeps"),
        ("p-value", "faq#p-values-and-multiple-testing"),
        ("cross-validation", "datasets#a-split-in-the-file"),
        *(
            (words, "faq#early-stopping-and-validation-sets")
            for words in ("early stopping", "early_stopping", "patience")
        ),
        *(
            (words, "faq#results-in-excel-r-matlab-and-other-programs")
            for words in ("R", "read in R", "excel", "open in excel", "matlab")
        ),
        *((words, "faq#versions-and-reporting-a-bug") for words in ("bug", "version", "update")),
        ("timed out", "faq#the-walltime-is-too-short-for-one-fit"),
        ("patient", "faq#rows-that-belong-together-and-other-leakage"),
        ("batchsize", "faq#setting-a-learning-rate"),
        ("how to make figures bigger", "plots#figures-as-files-manyseed-plot"),
        ("reviewer asks for error bars", "faq#how-intervals-are-computed"),
        ("can I trust three seeds", "recipes#how-many-seeds-do-i-need"),
        ("run overnight", "faq#logging-out-while-it-trains"),
        ("my job was killed", "faq#it-stopped-in-the-middle"),
        ("pause training", "faq#it-stopped-in-the-middle"),
        ("store is too big", "scale#what-to-keep"),
        ("keras model", "own#a-training-function"),
        ("table is too wide", "results#asking-manyseed-query"),
        (
            "results differ between machines",
            "faq#two-results-differ-though-the-seed-is-the-same",
        ),
        ("hyperparameter search", "sweep-file#tune"),
        ("interrupt", "faq#it-stopped-in-the-middle"),
        ("parallel", "classifiers#many-seeds-at-once"),
        *((word, "faq#licence-and-how-to-cite") for word in ("license", "licence", "cite")),
        ("delete", "sweep-file#planning-again"),
        ("error bars", "plots#figures-as-files-manyseed-plot"),
        ("intervals", "faq#how-intervals-are-computed"),
        ("not told", "glossary#not-told"),
        ("which image", "faq#which-image-is-row-n"),
        ("group patient leakage", "faq#rows-that-belong-together-and-other-leakage"),
        ("same patient several rows", "faq#rows-that-belong-together-and-other-leakage"),
        ("resume after crash", "faq#it-stopped-in-the-middle"),
        ("test cluster", "cluster#a-cluster-to-try"),
        ("delete runs", "faq#can-runs-be-deleted"),
        ("change number of epochs after training", "sweep-file#planning-again"),
        ("custom metric f1", "results#metrics-of-your-own"),
        (
            "difference between local and global error consistency",
            "results#pairsparquet-one-row-for-each-two-runs-of-a-repeat",
        ),
        ("jupyter", "python#from-python"),
        ("gpu memory", "cluster#what-happens-when"),
        ("logs of a failed run", "faq#n-runs-failed"),
        ("change the number of runs later", "sweep-file#planning-again"),
        *(
            (words, "recipes#how-do-i-use-my-own-data")
            for words in ("own dataset", "numpy arrays", "python arrays", "my own data")
        ),
        *(
            (words, "recipes#how-does-accuracy-grow-with-the-training-set")
            for words in ("learning curve", "learning curve sizes", "train on subset")
        ),
        ("accuracy by training fraction", "recipes#how-does-accuracy-grow-with-the-training-set"),
        *(
            (words, "faq#limits-on-my-own-machine")
            for words in ("laptop", "limit cores", "limit memory")
        ),
        *((words, "faq#which-processes-train") for words in ("pgrep", "process name")),
        ("export csv", "results#asking-manyseed-query"),
        ("how many seeds", "recipes#how-many-seeds-do-i-need"),
        ("error consistency", "glossary#error-consistency"),
        ("error consistency definition", "glossary#error-consistency"),
        ("what is error consistency", "glossary#error-consistency"),
        ("overfit", "results#training-rows-and-test-points"),
        ("t-test", "results#comparing-cells-classifiers-and-sweeps"),
        ("which classifier is better", "recipes#is-a-better-than-b-or-was-it-the-seed"),
        ("compare two models", "recipes#is-a-better-than-b-or-was-it-the-seed"),
        ("hyperparameter tuning", "sweep-file#tune"),
        ("how long will it take", "faq#how-long-it-takes"),
        ("kill a job", "cluster#every-sweep"),
        ("offline", "datasets#fetching"),
        ("wandb", "import#folders-that-name-what-is-in-them-and-maps"),
        ("custom loss", "own#a-pytorch-module"),
        ("import predictions", "import#importing-predictions"),
        ("time limit", "faq#the-walltime-is-too-short-for-one-fit"),
        ("moved", "faq#the-directory-was-moved-or-copied"),
        ("co-author", "recipes#i-want-to-give-the-results-away"),
        ("effect size", "results#comparing-cells-classifiers-and-sweeps"),
        ("supplementary table", "recipes#i-need-a-supplementary-table-of-all-runs"),
        ("caption", "results#asking-manyseed-query"),
        *(
            (words, "claims#how-often-the-sentences-are-wrong")
            for words in ("error rates", "false positive rate of claims", "type I error")
        ),
        ("add a classifier", "extending#a-classifier"),
        *(
            (words, "identity#the-seed-of-a-library")
            for words in ("how is the seed of a run derived", "derive seed")
        ),
        *(
            (words, "recipes#what-varies-between-seeds")
            for words in (
                *("keep test sets fixed", "hold test set fixed", "fixed test set"),
                *("vary only the init", "vary only the initialisation"),
            )
        ),
        *(
            (words, "store#the-predictions-on-disk")
            for words in ("read the store without manyseed", "plain zarr")
        ),
        *(
            (words, "cluster#every-sweep")
            for words in ("resume on another account", "resume under another partition")
        ),
        ("bootstrap", "results#comparing-cells-classifiers-and-sweeps"),
        ("bold", "results#asking-manyseed-query"),
    ],
)
def test_words_of_newcomers_lead_to_their_answers(asked: str, first: str) -> None:
    code, text = inside("docs", asked)
    lines = text.splitlines()
    assert (code, lines[0].split()[0]) == (0, first), text
    assert lines[1].startswith("  ")
    assert len(" ".join(lines[1:3]).split()) >= 2, text
    others = text.partition("\n\n")[2].splitlines()[:-1]
    assert max(map(cell_len, others), default=0) <= 204


QUESTIONS = {
    "how are test sets drawn": "datasets#test-sets",
    "how are my test sets drawn": "datasets#test-sets",
    "test sets drawn": "datasets#test-sets",
    "how is a copy counted": "results#one-convention-wherever-rows-are-put-together",
    "how are copies counted": "results#one-convention-wherever-rows-are-put-together",
    "same result on another machine": "reproducibility#",
    "do I get the same results on another machine": "reproducibility#",
    "cross-validation": "datasets#a-split-in-the-file",
    "what are the folds": "datasets#a-split-in-the-file",
    "official test set": "datasets#",
    "add 10 more runs": "recipes#i-want-more-of-it",
    "how can I add more runs": "recipes#i-want-more-of-it",
    "why pending": "cluster#nothing-starts",
    "why are my jobs pending": "cluster#nothing-starts",
    "what does a receipt hold": "reproducibility#a-receipt",
    "what goes with the paper": "reproducibility#what-goes-with-a-paper",
    "what is not promised": "reproducibility#what-is-not-promised",
    "setting the learning rates": "faq#setting-a-learning-rate",
    "how do I install it": "start#install",
    "how many seeds do I need": "recipes#how-many-seeds-do-i-need",
    "where does the variance come from": "recipes#where-does-the-variance-come-from",
    "which image is row 7": "faq#which-image-is-row-n",
    "what if a task is killed for memory": "faq#a-task-is-killed-for-memory",
    "it stopped in the middle": "faq#it-stopped-in-the-middle",
    "imbalanced classes": "faq#imbalanced-classes",
    "how do I cite this": "faq#licence-and-how-to-cite",
    "how are ensembles trained": "uncertainty#",
    "what is paired": "perturbations#what-is-paired",
    "crossing seeds": "sweep-file#crossed-seeds",
    "a model of my own in pytorch": "own#a-pytorch-module",
    "add a metric": "results#metrics-of-your-own",
    "a methods section": "recipes#i-need-the-methods-section",
    "optimizer": "classifiers#optimizers",
    "early stopping": "faq#early-stopping-and-validation-sets",
    "difference between churn and error consistency": "faq#the-difference-between-churn-and",
}


@pytest.mark.parametrize(("asked", "where"), QUESTIONS.items())
def test_a_question_leads_to_its_section(asked: str, where: str) -> None:
    texts = pages()
    first = search.mentions(search.words_asked(asked, texts)[0], texts)[0]
    assert first.where.startswith(where), first


LOOKED_FOR = """
faq#columns-of-dates-and-times: dates; date column; timestamps
faq#confusion-matrix-and-accuracy-per-class: confusion matrix; accuracy per class
faq#seeds-what-they-are-and-how-they-are-set: seeds; random seed; set the seed; random_state
faq#p-values-and-multiple-testing: p value; p values; multiple testing; Bonferroni
faq#early-stopping-and-validation-sets: early stopping; validation set
faq#licence-and-how-to-cite: cite; how to cite; license
faq#regression: regression; multi-label; object detection; survival analysis; segmentation
faq#one-model-on-several-gpus-and-other-accelerators: DDP; distributed training; MPS; TPU
faq#clouds-and-kubernetes: kubernetes; cloud; AWS; colab
faq#feature-importance-fairness-adversarial-attacks: SHAP; feature importance; fairness; adversarial
faq#how-long-it-takes: how long will it take; runtime; how long
faq#where-everything-is-stored: where are the predictions stored; output files
faq#licence-and-how-to-cite: commercial use
faq#one-model-on-several-gpus-and-other-accelerators: two GPUs; multiple gpus
faq#p-values-and-multiple-testing: Wilcoxon; which test is used
own#a-training-function: tensorflow; my own loss; Hugging Face fine-tuning; focal loss
python#from-python: load predictions in python
recipes#i-want-more-of-it: change the number of test sets
faq#renaming: rename; rename a classifier
faq#setting-a-learning-rate: learning rate; batch size; epochs; weight decay
faq#imbalanced-classes: class weights; imbalance; oversampling; SMOTE
faq#rows-that-belong-together-and-other-leakage: data leakage; group split; leave one group out
faq#a-task-is-killed-for-memory: out of memory; OOM
faq#the-walltime-is-too-short-for-one-fit: walltime
faq#it-stopped-in-the-middle: resume; crash
faq#the-disk-is-full: disk full; no space left
faq#the-trained-models: weights; model weights; where are the weights; save models; save the model
faq#the-trained-models: where is the model saved; get the trained weights
faq#how-intervals-are-computed: how are intervals computed; confidence intervals; t interval
faq#logging-out-while-it-trains: log out; logout; close terminal; background; disconnect
faq#logging-out-while-it-trains: nohup; detach; log out reboot
python#predictions-as-numpy-arrays: predictions of one run numpy; predictions as numpy
own#an-estimator: own scikit-learn pipeline
faq#several-people-one-sweep: share a sweep; two people; collaborate; permissions; umask
faq#predictions-and-probabilities-as-files-or-on-a-hub: HuggingFace export; upload predictions
faq#predictions-and-probabilities-as-files-or-on-a-hub: probabilities to csv
faq#how-many-cores-and-workers: how many cores; how many workers
faq#a-baseline-from-another-paper: baseline from another paper
scale#what-to-keep: how much disk does it take; how much space; disk space
faq#can-runs-be-deleted: delete runs
perturbations#labels-perturb_labels: label noise; noisy labels; perturb_labels
perturbations#training-rows-train_fraction-and-vary: bagging; training size; subsample
perturbations#training-images-augment: augmentation
recipes#which-test-points-does-it-hang-on: hard rows; hard; hard examples; misclassified
recipes#i-want-more-of-it: add seeds; more seeds
recipes#i-want-to-give-the-results-away: share
recipes#i-need-a-table-for-the-paper: latex
recipes#how-many-seeds-do-i-need: how many seeds; power analysis; sample size
own#an-estimator: random forest; random forests; LightGBM; kNN; sklearn
own#a-pytorch-module: pytorch; custom loss
classifiers#what-holds-for-all-of-them: encoding; one-hot; GPU; missing values; cuDNN
classifiers#optimizers: learning rate schedule; Adam
classifiers#products-in-bfloat16: mixed precision; fp16
classifiers#checkpoints: checkpoint; checkpoints
classifiers#vit-transfer: pretrained; fine-tuning
classifiers#vit: transformer
classifiers#classifiers: neural network; logistic regression
cluster#the-profile: partition; account; qos; email
cluster#nothing-starts: pending
cluster#other-schedulers: PBS; SGE
datasets#a-folder-of-images: own images; image folder; own folder
start#images: images
datasets#a-split-in-the-file: cross-validation; k-fold; time series
datasets#test-sets: train test split; stratified
datasets#text: text data
plots#figures-as-files-manyseed-plot: colour; color; font; figure size; plot; svg
python#from-python: pandas; notebook; API
results#asking-manyseed-query: export csv
results#comparing-cells-classifiers-and-sweeps: effect size; t-test
results#metrics-of-your-own: top-5; custom metric
results#the-page: report
results#varianceparquet-where-the-variance-comes-from: ANOVA
reproducibility#a-receipt: git; zenodo
reproducibility#reproducibility: reproducible; non-deterministic
import#folders-that-name-what-is-in-them-and-maps: tensorboard; wandb; mlflow
start#install: docker; singularity; windows; conda
sweep-file#tune: optuna
uncertainty#ensembling-methods: ensembles; deep ensemble
recipes#what-varies-between-seeds: initialization and batch order; init+batch
recipes#what-varies-between-seeds: what does init+batch mean
classifiers#what-holds-for-all-of-them: GPUs; ask for GPUs
faq#setting-a-learning-rate: hyperparameters; one hyperparameter for one classifier
recipes#i-want-to-give-the-results-away: send results; copy to another computer
faq#seeds-what-they-are-and-how-they-are-set: randomness
"""


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        (asked, where)
        for line in LOOKED_FOR.split("\n")
        if line
        for where, all_ in [line.split(": ", 1)]
        for asked in all_.split("; ")
    ],
)
def test_what_people_look_for_is_found_first(asked: str, where: str) -> None:
    texts = pages()
    assert search.mentions(search.words_asked(asked, texts)[0], texts)[0].where == where


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("error consistency", "`ec_local` is undefined, null, where neither run is wrong"),
        (
            "error consistency undefined",
            "`ec_local` is undefined, null, where neither run is wrong",
        ),
        ("predictions of one run numpy", "runs.isel(run=0)"),
        ("own scikit-learn pipeline", 'estimator = "mymodel:build"'),
        ("own scikit-learn pipeline", 'encode    = "raw"'),
        ("log out reboot", "After a reboot, `manyseed resume DIR`"),
        ("cross-validation folds", "`manyseed import preds.csv --out DIR`"),
        ("vary only batch order", 'or ["batch"]'),
    ],
)
def test_what_is_shown_of_a_section_has_the_answer(asked: str, said: str) -> None:
    code, text = inside("docs", *asked.split())
    assert (code, said in text) == (0, True), text


def test_other_words_for_a_section_lead_to_it_and_are_not_shown() -> None:
    texts = {
        "a": "# A\n\n## Wobbling\n\n<!-- also: shaking, to and\nfro -->\n\nIt moves about here.\n",
        "b": "# B\n\nShaking, shaking and shaking.\n",
    }
    for asked in ("shaking", "to and fro", "wobble"):
        found = search.mentions(asked, texts)[0]
        assert (found.where, found.line) == ("a#wobbling", "It moves about here.")
    for asked in ("confusion matrix", "faq", "faq#regression"):
        assert "also:" not in inside("docs", asked)[1]
    for name, text in pages().items():
        assert text.count("<!-- also:") == sum(
            part.startswith("<!-- also:") for part in re.split(r"^#+ .+\n\n", text, flags=re.M)
        ), f"{name}: they stand below the heading"


@pytest.mark.parametrize(
    "forms",
    [
        *("copy copies copied", "run runs running", "plan plans planned planning", "class classes"),
        *("box boxes", "add adds added adding", "count counts counted counting"),
    ],
)
def test_plain_forms_of_a_word_are_one_word(forms: str) -> None:
    assert len({search.stem(word) for word in forms.split()}) == 1


def test_excerpts_are_whole_sentences() -> None:
    """Of prose, else of a row's first cell and its longest; code only where nothing else is."""
    texts = {
        "page": "# Page\n\n## Ways\n\nIn short:\n\n```sh\nmanyseed wobble --now\n```\n\n"
        "It wobbles **once**. A [long](x.md#y) wobble, of `f(x)`,\nends. ![Wobble](w.png)\n\n"
        "| key | meaning |\n|---|---|\n| `gadget` | a wobbly thing to hold |\n\n"
        "## Code\n\n```sh\nmanyseed gizmo DIR\n```\n\n"
        "## Marks\n\nOf *all* `a*b` **and `c_d`**, with ``e`f``, a doodad is one.\n\n"
        "| key | meaning |\n|---|---|\n| `x` | a doohickey of \\|x\\| and `y*z` parts |\n"
    }
    for word, line in (
        ("wobble", "A long wobble, of f(x), ends."),
        ("gadget", "gadget: a wobbly thing to hold"),
        ("gizmo", "manyseed gizmo DIR"),
        ("doodad", "Of all a*b and c_d, with e`f, a doodad is one."),
        ("doohickey", "x: a doohickey of |x| and y*z parts"),
    ):
        assert search.mentions(word, texts)[0].line == line
    every = pages()
    for word in ("accuracy", "runs", "cluster", "seed", "table"):
        for one in search.mentions(word, every):
            assert not one.line.startswith(("…", "|", "!["))
            assert len(one.line) <= 202


@pytest.mark.parametrize(
    ("asked", "where", "told"),
    [
        ("±", "glossary#plus-minus", "standard deviation between the runs"),
        ("what does ± mean", "glossary#plus-minus", "standard deviation between the runs"),
        ("plus minus", "glossary#plus-minus", "standard deviation between the runs"),
        ("± seeds", "glossary#plus-minus", "± seeds: the standard deviation"),
        ("α̂", "glossary#alpha", "how unlike a run is"),
        ("δ", "glossary#delta", "the resolution of"),
        ("†", "glossary#identical", "no source of randomness reaches"),
        ("‡", "glossary#twins", "cells whose runs are the same fits"),
        ("≈", "glossary#approximately", "within 0.005"),
        (">", "glossary#greater", "better than b beyond chance"),
        ("*", "glossary#asterisk", "Holm's correction"),
        ("pending", "cluster#nothing-starts", ""),
        ("why is my job pending", "cluster#nothing-starts", ""),
        ("queue", "cluster#nothing-starts", ""),
        ("job does not start", "cluster#nothing-starts", ""),
        ("delete failed runs", "faq#can-runs-be-deleted", "cannot"),
        ("delete runs", "faq#can-runs-be-deleted", "cannot"),
        ("can I delete runs", "faq#can-runs-be-deleted", "cannot"),
    ],
)
def test_symbols_and_questions_lead_to_their_answer(asked: str, where: str, told: str) -> None:
    code, text = inside("docs", *asked.split())
    first, _, said = text.partition("\n\n")[0].partition("\n")
    is_told = told in said.replace("`", "")
    assert (code, first.startswith(where), is_told) == (0, True, True), text
    if where.startswith("glossary"):
        assert inside("docs", where)[0] == 0


@pytest.mark.parametrize("word", ["é", "é à", "xyzzy", "wallltime", "!"])
def test_a_word_that_is_nowhere_is_said_to_be(word: str) -> None:
    code, text = inside("docs", word)
    assert (code, "no page has this name, and none has this word" in text) == (2, True), text
    assert ('did you mean "walltime"' in text) == (word == "wallltime")
    assert "manyseed docs lists all pages" in text


def test_a_word_of_several_that_is_nowhere_is_named() -> None:
    code, text = inside("docs", "walltime", "flurble")
    lines = text.splitlines()
    assert (code, lines[0]) == (0, 'No page has the word "flurble".')
    assert lines[1].startswith("faq#the-walltime-is-too-short-for-one-fit")
    assert "No page has" not in inside("docs", "p-value")[1]


def test_other_forms_of_a_word_are_found_where_it_is_not_there_itself() -> None:
    assert search.stem("imbalanced") == search.stem("imbalance") == "imbalan"
    assert search.stem("significance") == search.stem("significantly") == "significan"
    assert [search.stem(word) for word in ("run", "seeds", "test")] == ["run", "seed", "test"]
    texts = {"page": "# Page\n\n## Of runs\n\nTwo means differ significantly.\n"}
    (found,) = search.mentions("significance", texts)
    assert (found.where, found.line) == ("page#of-runs", "Two means differ significantly.")


def test_every_block_of_code_is_closed() -> None:
    for name, page in pages().items():
        fences = [line for line in page.splitlines() if line.startswith("```")]
        assert all(fence == "```" for fence in fences[1::2]), name
        assert len(fences) % 2 == 0, name


@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_narrow_terminal_is_kept_to_and_shows_no_colour_that_is_not_wanted(no_color: str) -> None:
    env = {**os.environ, "NO_COLOR": no_color, "COLUMNS": "60", "TERM": "xterm-256color"}
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb", buffering=0) as read:
        command = [sys.executable, "-m", "manyseed", "docs", "glossary"]
        with subprocess.Popen(command, stdout=theirs, env=env) as process:
            os.close(theirs)
            shown = bytearray()
            with suppress(OSError):  # how a terminal that nobody writes to any more ends
                while more := read.read(65536):
                    shown += more
        assert process.returncode == 0
    text = shown.decode()
    coloured = re.search(r"\x1b\[(\d+;)*(3[0-8]|4[0-8]|9[0-7])[;m]", text)
    assert (coloured is None) == bool(no_color)
    lines = re.sub(r"\x1b\[[\d;]*m", "", text).split("\r\n")
    assert "Glossary" in " ".join(lines[:3])
    assert max(map(cell_len, lines)) <= 60


def test_examples_are_those_of_the_repository_and_are_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    there = {file.stem for file in (ROOT / "examples").glob("*.toml")}
    there |= {f"{f.parent.name}/{f.stem}" for f in (ROOT / "examples").glob("*/*.toml")}
    assert set(examples()) == there
    code, text = inside("init")
    assert code == 0
    assert all(name in text for name in there)
    assert examples()["invariance-cifar10"].title.endswith("rotated, shifted or coloured")
    assert not any(one.title.endswith((" on", " In-Domain", ".")) for one in examples().values())
    for name in there:
        file = tmp_path / f"{Path(name).name}.toml"
        assert inside("init", "--example", name)[0] == 0
        if name.startswith("clusters/"):
            assert read_profile(file).path == file
        else:
            assert read_sweep_file(file).grid
    assert (tmp_path / "mymodel.py").exists()
    before = (tmp_path / "quickstart.toml").read_bytes()
    code, text = inside("init", "--example", "quickstart")
    assert (code, "exists already" in text) == (2, True)
    assert (tmp_path / "quickstart.toml").read_bytes() == before
    code, text = inside("init", "--example", "quikstart.toml")
    assert code == 2
    assert 'did you mean "quickstart"?' in text


def test_the_page_of_python_lists_the_methods() -> None:
    shown = inside("docs", "python")[1]
    assert "eval-rst" not in shown
    assert "- `compare`: Compare " in shown
    listed = re.findall(r"^- `(\w+)`: .+\.$", shown, re.MULTILINE)
    assert {*listed} == {name for name in dir(Sweep) if name[0] != "_"}
