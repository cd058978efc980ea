"""What is seen of imported runs that can hardly be meant: refused, or told."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from glob import escape
from itertools import combinations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.counts import some
from manyseed.jobs.checks import did_you_mean, quoted
from manyseed.jobs.run import Prediction
from manyseed.orchestrator.calls import warn
from manyseed.orchestrator.errors import Spoilt, shell_word
from manyseed.orchestrator.importing.classes import require_shared
from manyseed.orchestrator.importing.frames import TABLES
from manyseed.orchestrator.importing.orders import (
    FEWEST_KEPT,
    Order,
    apart,
    far_better,
    lone_orders,
    other_order,
)
from manyseed.orchestrator.importing.predictions import DEFAULTS, PredictionFile
from manyseed.orchestrator.importing.rows import excluding

_MOST_LOOKED_AT = 20  # runs
_MOST_PAIRED = 40  # runs
_SHOWN = 10  # classes in a message


@dataclass(slots=True)
class ImportSeen:
    """What is seen of all sources while they are written.

    `floored`: how many predictions of a test point have a probability below `scores.FLOOR`, which
    is raised to it. `told`: what users are warned of. `right`: the accuracies of all runs, by
    dataset and classifier. `elsewhere`: by a digest of predictions, dataset, classifier and cell of
    the first run with them, and its place, without and with its folder; none by which so few points
    are wrong that different runs may agree.
    """

    floored: int = 0
    told: list[str] = field(default_factory=list)
    right: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    elsewhere: dict[bytes, tuple[tuple[str, str, int], tuple[str, str]]] = field(
        default_factory=dict
    )


class Doubts:
    """What is seen of a source's runs while they are written: refused or told at the end.

    `kept`: labels of runs that are there already (run, sample), by the first position of a new run
    of their cell and repeat.
    """

    def __init__(
        self,
        source: PredictionFile,
        seen: ImportSeen,
        kept: Callable[[int], NDArray[np.uint16] | None] | None = None,
    ) -> None:
        self._kept, self._seen = kept, seen
        self._again: list[tuple[tuple[str, str], tuple[str, str], str]] = []
        self._source, self._repeats = source, source.runs["repeat"].to_numpy()
        self._is_copy = source.runs["copy"].to_numpy()
        alike = pl.struct(*DEFAULTS, "repeat").rank("dense")
        self._group = source.runs.select(alike).to_series().to_list()
        self._true = np.unique(source.y_true)
        self._orders: list[tuple[int, float, Order | None]] = []
        self._of_order: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._signs: list[tuple[float, float] | None] = []
        self._predicted = np.zeros(len(source.class_names), dtype=np.int64)
        self._odd: dict[int, list[int]] = {}
        self._digests: dict[tuple[int, bytes], list[int]] = {}
        self._labels: dict[int, dict[int, NDArray[np.uint16]]] = {}
        self._room, self.off = _MOST_LABELS, 0.0

    def add(self, position: int, prediction: Prediction) -> None:
        """Look at a run."""
        label, n_classes = prediction.label[-1], len(self._source.class_names)
        truth = self._source.y_true[self._repeats[position]]
        of = self._source.dataset, self._source.classifier
        self._seen.right.setdefault(of, []).append(float(np.mean(label == truth)))
        recall, order = other_order(truth, label.astype(np.intp), n_classes)
        if order is not None:  # many runs have few orders
            order = replace(order, classes=self._of_order.setdefault(order.classes, order.classes))
        self._orders.append((position, recall, order))
        is_open = len(self._signs) < _MOST_LOOKED_AT and None not in self._signs
        if n_classes > 2 and self._source.keep != "none" and is_open:
            least = prediction.scores[-1].argmin(axis=-1)
            self._signs.append(far_better(truth, label == truth, least == truth))
        if self._source.are_classes_seen:
            counts = np.bincount(label, minlength=n_classes)
            self._predicted += counts
            for odd in np.setdiff1d(np.flatnonzero(counts), self._true).tolist():
                self._odd.setdefault(odd, []).append(position)
        if self._is_copy[position]:
            return
        group, values = self._group[position], (prediction.label, prediction.scores)
        digest = hashlib.blake2b(digest_size=16)
        for array in values if self._source.keep != "none" else values[:1]:
            digest.update(np.ascontiguousarray(array).tobytes())
        self._digests.setdefault((group, digest.digest()), []).append(position)
        if self._source.keep != "none" or np.count_nonzero(label != truth) >= _UNLIKELY:
            mine = self._source.dataset, self._source.classifier, group
            at, file = self._source.places[position], self._source.files[position]
            own = at, at if "/" in at else at.replace(file.name, f"{file.parent.name}/{file.name}")
            whose, place = self._seen.elsewhere.setdefault(digest.digest(), (mine, own))
            if whose != mine:
                self._again.append((own, place, whose[1]))
        if self._room >= (work := label.size * n_classes):
            self._room -= work
            self._labels.setdefault(group, {})[position] = label.astype(np.uint16)

    def tell(self) -> None:
        """Refuse what cannot be meant, and warn of what is hardly meant."""
        names, file = self._source.class_names, self._source.file
        right = self._seen.right.get((self._source.dataset, self._source.classifier), [1.0])
        seen = np.flatnonzero(self._predicted)
        require_shared(seen, self._true, names, file, float(np.mean(right)))
        self._tell_same()
        self._tell_again()
        if self.off:
            warn(
                f"{self._source.file.name}: the probabilities of a test point sum to 1 only within "
                f"{self.off:.2g}, as if rounded; they were divided by their sum."
            )
        self._tell_odd()
        self._tell_apart(self._tell_order_or_sign())

    def _warn(self, what: str) -> None:
        name = self._source.file.name
        is_one = all(re.search(f" (of|in) {re.escape(name)}$", at) for at in self._source.places)
        own = name if is_one or len(self._source.places) == 1 else self._source.classifier
        self._seen.told.append(f"{own}: {what}")
        warn(self._seen.told[-1])

    def _leaving(self, positions: Sequence[int]) -> str:
        """Return the option that leaves runs out, if each is a file, or a table's; else nothing."""
        source, forms = self._source, dict[str, None]()
        if source.origin != source.file.name:  # arrays in memory
            return ""
        for position in positions:
            place = source.places[position]
            if found := re.match("run ([0-9]+) of ", place):
                of = (
                    source.classifier
                    if place.startswith(f"{found[0]}{source.classifier} in ")
                    else None
                )
                forms[excluding(of, found[1])] = None
                if source.file.suffix not in TABLES:
                    return ""
            elif place.startswith(f"{source.classifier} in "):
                return ""
            else:
                forms[place] = None
        if len(forms) > _SHOWN:
            return ""
        # a name may have what a pattern, or a list in an option, reads otherwise
        return f": --exclude {shell_word(','.join(escape(one).replace(',', '?') for one in forms))}"

    def _tell_same(self) -> None:
        """Refuse a run that is given twice, unless runs are numbered or it may be by chance."""
        by_group: dict[int, list[list[int]]] = {}
        for (group, _), positions in self._digests.items():
            by_group.setdefault(group, []).append(positions)
        for group, different in by_group.items():
            same = next((each for each in different if len(each) > 1), None)
            if same is None:
                continue
            places = [self._source.places[position] for position in same]
            what = f"{some(places[1:], _SHOWN)} {'hold' if len(places) > 2 else 'holds'}"
            what += f" the same predictions as {places[0]}"
            if len(different) == 1:
                self._warn(
                    f"all {len(same)} runs predict the same, so that nothing varies between "
                    "seeds, or one was given several times."
                )
                continue
            fewest = _UNLIKELY
            if self._source.keep == "none":
                held = self._labels.get(group, {})
                labels = [held[each[0]] for each in different if each[0] in held]
                pairs = combinations(labels[:_MOST_PAIRED], 2)
                fewest = min((int((a != b).sum()) for a, b in pairs), default=0)
            if fewest < _LIKELY:  # runs that differ do so on hardly a point more
                continue
            if fewest < _UNLIKELY or self._source.numbered:
                self._warn(f"{what}. Is one run there twice? It would count as several seeds.")
                continue
            raise Spoilt(
                what,
                file=self._source.files[same[-1]],
                remedy="leave copies out; if they are different runs that predict the same, number "
                "them with 'run'",
            )

    def _tell_again(self) -> None:
        if not self._again:
            return
        own, others, whose = (dict.fromkeys(each) for each in zip(*self._again, strict=True))
        classifier = self._source.classifier
        is_long = bool({at for at, _ in own} & {at for at, _ in others})
        named = [some([at[is_long] for at in each], 3) for each in (own, others)]
        of = "another cell or test set" if [*whose] == [classifier] else some([*whose], _SHOWN)
        self._warn(
            f"{named[0]} of {classifier} {'holds' if len(own) == 1 else 'hold'} the same "
            f"predictions as {named[1]} of {of}. Was a file given twice, or copied?"
        )

    def _tell_odd(self) -> None:
        if not self._odd:
            return
        names = self._source.class_names
        true = [names[each] for each in self._true]
        (first, positions), more = next(iter(self._odd.items())), len(self._odd) - 1
        times = int(self._predicted[first])
        places = some([*dict.fromkeys(self._source.places[each] for each in positions)], 3)
        near = did_you_mean(names[first], true).removeprefix("; ").capitalize()
        others = f" So {'is' if more == 1 else 'are'} {more} more." if more else ""
        often = "once" if times == 1 else f"{times:,} times"
        self._warn(
            f"class {quoted(names[first])} is predicted {often}, in {places}, and is nobody's true "
            f"class.{others} {near}".rstrip()
        )

    def _tell_order_or_sign(self) -> set[int]:
        """Warn if every run speaks for one other order, or for the opposite sign: the better.

        Or if a few runs do so alone; return their positions.
        """
        signs = [each for each in self._signs if each is not None]
        first = [each for _, _, each in self._orders[:_MOST_LOOKED_AT]]
        found = [each for each in first if each is not None]
        orders = {each.classes for each in found}
        sign = order = (0.0, 0.0)
        if len(signs) == len(self._signs) and signs:
            sign = np.mean(signs, axis=0)
        if len(found) == len(first) and len(orders) == 1:
            order = np.mean([(each.given, each.better) for each in found], axis=0)
        given, better = max(sign, order, key=lambda recalls: recalls[1])
        if not better:
            return self._tell_lone_orders()
        names, has = self._source.class_names, f"{self._source.classifier} has the mean recall"
        if sign[1] > order[1]:
            self._warn(
                f"{has} {given:.2f}, and would have {better:.2f} if the least score named the "
                "class. Are scores of the opposite sign, such as distances or negative "
                "log-likelihoods? Give -scores."
            )
            return set()
        self._warn(
            f"{has} {given:.2f}, and would have {better:.2f} with its {found[0].words(names)}. "
            "Are scores, or indices of labels, in the order of the classes? class_names, or "
            f"--classes, gives it.{self._or_sign}"
        )
        return set()

    @property
    def _or_sign(self) -> str:
        two = len(self._source.class_names) == 2
        return " Or are scores of the opposite sign?" if two else ""

    def _tell_lone_orders(self) -> set[int]:
        alone = [self._orders[at] for at in lone_orders([each[1:] for each in self._orders])]
        told = {position for position, _, _ in alone}
        others = [recall for position, recall, _ in self._orders if position not in told]
        by_order: dict[str, list[tuple[int, Order]]] = {}
        for position, _, order in alone:
            assert order is not None
            what = order.words(self._source.class_names)
            by_order.setdefault(what, []).append((position, order))
        for what, runs in by_order.items():
            places = some([self._source.places[position] for position, _ in runs], _SHOWN)
            positions = [position for position, _ in runs]
            given, better = np.mean([(each.given, each.better) for _, each in runs], axis=0)
            has, its = ("has", "its") if len(runs) == 1 else ("have", "their")
            self._warn(
                f"{places} {has} the mean recall {given:.2f}, where other runs have "
                f"{np.mean(others):.2f}, and would have {better:.2f} with {its} {what}. Are "
                "scores, or rows, in another order than theirs? Put it right, or leave it out"
                f"{self._leaving(positions)}.{self._or_sign}"
            )
        return told

    def _tell_apart(self, told: set[int]) -> None:
        for held in self._labels.values():
            positions = [*held]
            truth, label = self._source.y_true[self._repeats[positions[0]]], [*held.values()]
            kept = None if self._kept is None else self._kept(positions[0])
            n = 0 if kept is None else len(kept)
            every = np.stack([*([] if kept is None else kept), *label])
            found, times = apart(every, truth, n)
            if found and not {positions[at - n] for at in found} <= told:
                places = some([self._source.places[positions[at - n]] for at in found], _SHOWN)
                disagrees, its = ("disagrees", "its") if len(found) == 1 else ("disagree", "their")
                is_table = self._source.file.suffix in TABLES
                ids = "Ids of rows (row_id)" if is_table else "Names of points (test_index)"
                others = "runs that are there" if n >= FEWEST_KEPT else "others"
                leaving = self._leaving([positions[at - n] for at in found])
                left = f", or leave {'it' if len(found) == 1 else 'them'} out{leaving}"
                self._warn(
                    f"{places} {disagrees} with the {others} {times:.1f} times as often as these "
                    f"do among themselves, as if {its} points were in another order. {ids} would "
                    f"put them right{left * bool(leaving)}."
                )
            wrong = (every != truth).sum(axis=1)
            perfect = [positions[at] for at in np.flatnonzero(wrong[n:] == 0)]
            if 0 < len(perfect) < len(wrong) / 2 and wrong[wrong > 0].min() >= _PERFECT:
                same = some([self._source.places[at] for at in perfect], _SHOWN)
                left = (leaving := self._leaving(perfect)) and f" Then leave it out{leaving}."
                self._warn(
                    f"right in every point, as no other run nearly is: {same}. Is it the true "
                    f"classes?{left}"
                )


_PERFECT = 10  # errors of every other run
_MOST_LABELS = 2**27  # points × classes of all runs that are compared
_LIKELY, _UNLIKELY = 3, 20  # points on which the most similar runs differ
