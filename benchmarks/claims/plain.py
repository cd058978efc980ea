"""Words of which no rate is measured."""

from __future__ import annotations

from collections.abc import Mapping

PLAIN: Mapping[str, str] = {
    r"give those of each of A's runs|^A's runs are of|which test sets its runs are of": (
        "Which true classes `alpha_hat` and `error_consistency` need of runs of several test sets."
    ),
    r"One test set allows no|more do, by repeats|too few for useful intervals|"
    r"where test sets are drawn$": (
        "One test set allows no interval; two or three are too few for useful ones."
    ),
    r"A classifier is called better than another": (
        "`methods`: what `A > B` means and how it is tested, which holds whatever the data."
    ),
    r"No run errs on any test point": (
        "Every run of every classifier is right on every test point: a feature may be the class."
    ),
    r"Rows count from 0|Scores tell classes apart all the same|a metric that counts classes alike|"
    r"of shares, where these would pass|or seeds on these where that|"
    r"^Check the labels, and the order": (
        "How rows are counted, what intervals are over, and which metric to ask of classes of "
        "unlike size, with the area under the ROC curve."
    ),
    r"^Accuracy, spread(,| and) points|^(mean accuracies|ranks|the spread between seeds|"
    r"points that flip or are hard)$|^ Mean ranks are over all|^ The spread between seeds is not|"
    r"^ Points are of the cells|of the runs with|runs, \{|"
    r"are enough, what matters, and which|^Of other runs$|^Of the runs with|of others: where": (
        "Which runs headlines are of where a sweep has other runs, too: with noise, fewer rows, or "
        "other sources that vary."
    ),
    r"^With (so few|crossed) runs$|^ \{\}, they are not compared": (
        "That spreads of classifiers with few or crossed runs are told beside each other, without "
        "a test."
    ),
    r"^is the same in all$": "In how many runs the numbers of one cell in two sweeps differ.",
    r"^ Of \{\}, runs with vary": (
        "Which runs points are of, where a classifier has several choices of what varies."
    ),
    r"^Told alone, not among all pairs": (
        "`compare` of some pairs names verdicts that its interval for all pairs does not tell."
    ),
    r"^Unlike the others in accuracy, and|^Left out: |^Counted, though unlike|"
    r"^the others in accuracy; see run$|"
    r"only such runs differ change|; to leave \{\} out|in that repeat is \{\}|"
    r"^Without \{\}|ensembles are drawn of all runs": (
        "`compare` and `howmany` name runs that `answers` tells to be unlike the others, by the "
        "same tests; what a verdict, a number of runs and a standard deviation are without them."
    ),
    r"^Test sets limit this|^Test sets, not seeds, limit|^; \{\} would not tell|"
    r"for all \{\} pairs together, as in answers|"
    r"^about \{\} repeats would|^\{\} would not tell": (
        "`compare` estimates how many repeats would tell a difference that seeds alone tell."
    ),
    r"in a third of the pairs of runs|^ In \{\} of splits no trimming|"
    r"scores are typically \{\} times|"
    r"^on each of \{\} test sets of": (
        "How many points change class often, what α̂ and error consistency between two sides are "
        "over, and how much larger the scores of one are, as counted."
    ),
    r"act together count in several|above 100%: by chance|flips no more alone than|"
    r"above 100% is that of": (
        "Shares of flips overlap. That a share above 100 % is chance is mathematics: a run's flips "
        "with another, at fixed values of some sources, are on average no more than at free ones, "
        "as the sum of squared class shares is convex."
    ),
    r"^A source is told from 0 in \{\} taken alone": (
        "Why no source is told: intervals of one cell exclude 0, those for all cells do not."
    ),
    r"^Most runs (of a cell )?predict|no run of these is named": (
        "Cells most of whose runs predict one class, as counted."
    ),
    r"as other parts are estimated below 0": "Why a share of a variance is above 100 %.",
    r"Results are read without it": "That a sweep lost its file.",
    r"means over unlike cells": "Rows of `query --by` that average over other cells, none bold.",
    r"^Not compared with others, as": (
        "Which classifiers have no cell like those of others, so that no pair with them is judged."
    ),
    r"^compare them, unlike as they are": "The command that compares cells that differ in more.",
    r"^These results allow no answers|^two cells that differ in one|^two classifiers on two data|"
    r"^four runs of each|^cells in which one source|^two runs that share|^response curves of|"
    r"^α̂, or a run whose|^a point that changes class|^An answer holds for all cells together|"
    r"^What changes it is not told": (
        "What a question takes that has no answer, and what the results are."
    ),
    r"^With other hparams": "Accuracies of further hparams, as counted.",
    r"Without an interval, so not judged": "Effects without an interval are named, not judged.",
    r"has no answer in|takes is not told|there is no answer|more than {} runs|no repeat has|"
    r"; runs = 10, say|"
    r"too few runs err|runs of every repeat are identical|was not computed|raise max_pair_runs|"
    r"pairs of the {}|pairs of crossed runs": (
        "Why `howmany` has no answer: too few runs, nothing differs, more than ten million, or "
        "runs that share values."
    ),
    r"between two such|difference of two such|^A - B ±|^A - B: of two|^of cases|"
    r"^difference of \{\} is|± is of one mean": (
        "`howmany --difference`: how many runs of each tell two apart, from the same interval of "
        "the spread as for a mean, by the formula of the t test, which a test simulates."
    ),
    r"a full cross of {} values|takes(\{\})? \{\} (runs, )?crossed|crossed runs accuracy ± \{\}": (
        "`howmany`: how many values of each crossed source it takes, without an interval."
    ),
    r"assumes? (roughly )?normal|normal values, (but these|and may miss)|"
    r"the variance differs between test sets|test sets all runs are equal$|so new ones may take|"
    r"95 % of seeds is for": (
        "Warnings where accuracies are skewed or test sets unequal: how far intervals still hold."
    ),
    r"too few cells to be compared|^over {} runs of each": (
        "How many runs and cells a spread is over, and classifiers that share too few cells."
    ),
    r"compares runs with each other|there is one test set|same on all test sets|single test set|"
    r"has a single run|not all runs of a cross|all runs agree, which|No interval over": (
        "Why `compare` has no interval: one run or test set, or nothing differs."
    ),
    r"how long a fit takes|it is the (resolution|Monte-Carlo error|spread)|it describes a cell": (
        "Why `compare` refuses a column: it says nothing of what runs achieve."
    ),
    r"runs of A with|run by run|Left out: test sets|for this pair alone": (
        "What `compare` compares: runs, shared streams, test sets left out, one pair of several."
    ),
    r"not all ensembles of|points per side are too few|contamination of up to|classical KS test "
    r"accepts|from the sizes drawn|can't be drawn from|ensembles need 4": (
        "Ensembles: which sizes were drawn, that not all pass, or that δ hides what is asked."
    ),
    r"first so far, by mean accuracy|Mean ranks on|^mean rank by accuracy, 1 is": (
        "Mean ranks, wins, and which classifier is first on these datasets so far."
    ),
    r"(is|sd \{\},) below one test point|below one of the points|^\{\} not told$": (
        "That runs differ by less than the test set resolves, so that nothing is told of them."
    ),
    r"The reference is an average of models": "Which reference of α̂ shows the likely cause.",
    r", reversed: |spread over seeds is unknown|and those for {} more|the largest cmi so far is": (
        "Of scores: the sign of the correlation in these models; which has the largest cmi so far, "
        "and how many are near; one seed shows no spread."
    ),
    r"^ Of these \{\}, \{\} \{\} the condition|"
    r"Of the flips seen of|flips of a test point where|hard for all of them|may do with fewer|"
    r"predicted: a tie": (
        "Of points: how much each source flips alone, and what else may look or do the same: "
        "a verdict that is only just told hangs on few points, whichever they are."
    ),
    r"one run {}, all {} averaged|are at a bound|is not comparable between|has deep ensembles with|"
    r"How many independent runs make|one standard deviation better and": (
        "`dee`: means of what was measured, and what ranges are over."
    ),
    r"Whether a point is wrong|error consistency of a pair|dropout with it|none seen, as|"
    r"is unknown\)|No cell has a repeat with|which a few runs may do by chance": (
        "`variance`: names of metrics and sources, and that nothing is seen to differ."
    ),
    r"One model per test set|all runs on a test set are one model|that are more than one model|"
    r"no seed reaches the fit|whatever the seed": (
        "Classifiers that no seed reaches: their copies are counted, not compared."
    ),
    r"are the same model|nothing that varies reaches|more runs: up to|Another question was asked|"
    r"would be added": (
        "`howmany`: that nothing varies, what is trained next, that the question changed."
    ),
    r"95 % quantile of the same|Of so much information by chance|end of the 95 % interval|"
    r"the 95 % interval over|is over seeds on these|Intervals hold for new|"
    r"Whiskers: 95 %|Intervals of means are 95 %": (
        "Columns of tables, and what their intervals are over."
    ),
    r"The import warned|These results are (of|also)|values are missing; leave|"
    r"The others are published by|"
    r"Analysed \{analysed|the most frequent class of each|[;e] most frequent class (\{|has)|"
    r"no finished run that was analysed|their predictions have changed|is not computed for|"
    r"calibration \(cll|scores "
    r"that are not numbers|"
    r"in several ways \(|unlike the others$|runs\? unlike the others|^code of your own|"
    r"runs were made \{|repeats were made|whether these differ cannot|"
    r"of them share|says how a run was made|may also be too few: try epochs": (
        "Notes that count: runs analysed, runs made in several ways, what is not computed and why."
    ),
    r"Do not choose runs by ece|accuracy is optimistic|Runs are ranked by|can't be said whether|a "
    r"class has no test point|the smallest class has": (
        "Notes on reading numbers: rankings, small classes, calibration error, δ above `close`."
    ),
    r"see --limit|are listed; limit|numbered as prepared, not as in|chooses cells that|"
    r"chooses the cells of|or levels: |cells whose runs differ$|is better is not known|"
    r"P\(A higher than B\)|are in no test set|name another|give one level|choose a condition that|"
    r"there is only one|choose another axis|no cell of A|A and B are one cell|cells by number|"
    r"numbers of cells, such as|leaves out all cells|"
    r"is the same in all of its|the analyses of the|"
    r"must be a Sweep|is answered by --alike|name levels: |no two cells differ|"
    r"no run of \{\}, cell|have different data|import (both|the other) with (the same )?--dataset|"
    r"has another \{\} than|must have the test points of|must count classes as y|"
    r"distinct runs of B as|only labels are kept|share no test set|has at least one member": (
        "What a question lacks, and what to ask instead."
    ),
    r"seeds, on these test sets|among its own runs; whether": (
        "`compare`: what its table's columns are over, and what α̂ of each side is not."
    ),
    r"crossed runs share values, so|Published for|about \[|α̂ is not told in|points per side would|"
    r"test sets are too small|would pass\{\} unseen": (
        "`howmany`: in how many cells α̂ is not told, and why; what others published."
    ),
    r"Of probabilities, not all|runs were made in several ways": (
        "That not all can be computed, or that runs were made in several ways."
    ),
    r"α̂ cannot tell ensembles apart|contamination below it isn't seen": (
        "What δ hides, where α̂ is drawn or defined."
    ),
    r"[Ss]mallest to (the )?largest|largest minus|smallest and largest share|smallest pool|"
    r"smallest trimming level|(least|most) churn|largest difference between|At most \{\} of a kind|"
    r"whose α̂ differ most|Those seen to differ most|95 % quantile of|wrong in nearly all|"
    r"least confidence|the most confident|the others rejected|at least some confidence|"
    r"has no larger α̂|share of runs that are wrong": (
        "Captions: what is drawn, and by what it was chosen."
    ),
    r"response curves with equal ends|of another metric of runs|[Ss]ingular values? ?(of|,|$)": (
        "What a kind of figures draws."
    ),
    r"Bold: (the b|only)|P: that the first of|(more|lower) is better": (
        "Which mean is the better one in a table, and which direction is."
    ),
    r"at least one gets wrong( \(local\))?$": "The page's definitions of its columns.",
    r"alpha_hat_infeasible_max|alpha_hat_mc_se|must be from {}|must be margins|must be labels|"
    r"of one run alone|"
    r"must be the true": "Names of columns, and limits of options.",
}
"""Words without a rate, by how they are known in the source: why they promise none."""
