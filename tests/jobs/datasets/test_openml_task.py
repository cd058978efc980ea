"""Tasks and suites of OpenML, from a server on this machine that answers as its API documents."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets import fetch, load, openml, resolve, suite
from manyseed.jobs.datasets.catalogue import OpenMLEntry
from manyseed.jobs.datasets.split import split
from manyseed.jobs.run import MachineError
from tests.jobs.datasets.files import openml_cache

N = 25
DATA = OpenMLEntry("made", 1, 61, N, 2, 0, ("no", "yes"), (15, 10), 15, 10, labelled=True)
FEATURES = {"a": [float(i) for i in range(N)], "b": [i * i for i in range(N)]}
TARGET = ["yes" if i % 5 < 2 else "no" for i in range(N)]
FOLD = [i // 5 % 3 for i in range(N)]  # 10, 10 and 5 rows


@pytest.fixture
def answers() -> dict[str, bytes]:
    """Return what the server has, by path."""
    return {}


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def server(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answers: dict[str, bytes],
    asked: list[str],
) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            content = answers.get(self.path)
            self.send_response(412 if content is None else 200)
            self.end_headers()
            unknown = {"error": {"code": "151", "message": "Unknown task"}}
            self.wfile.write(json.dumps(unknown).encode() if content is None else content)

        def log_message(self, *_: Any) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    address = f"http://127.0.0.1:{running.server_address[1]}"
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path))
    monkeypatch.setattr(openml, "API", f"{address}/json")
    openml_cache(tmp_path, DATA, FEATURES, TARGET)
    yield address
    running.shutdown()
    thread.join()
    running.server_close()


def task(
    address: str,
    number: int = 31,
    kind: str = "1",
    target: str = "class",
    rows: list[tuple[str, int, int, int]] | None = None,
) -> dict[str, bytes]:
    """Return the server's answers about a task of three folds."""
    procedure = {
        "id": "1",
        "type": "crossvalidation",
        "data_splits_url": f"{address}/splits/{number}.arff",
        "parameter": [{"name": "number_repeats", "value": "1"}],
    }
    about = {
        "task_id": str(number),
        "task_type_id": kind,
        "task_type": "Supervised Classification" if kind == "1" else "Clustering",
        "input": [
            {"name": "source_data", "data_set": {"data_set_id": "61", "target_feature": target}},
            {"name": "estimation_procedure", "estimation_procedure": procedure},
        ],
    }
    if rows is None:
        rows = [
            ("TEST" if FOLD[i] == fold else "TRAIN", i, 0, fold)
            for fold in range(3)
            for i in reversed(range(N))
        ]
    table = (
        "@RELATION openml_task_31_splits\n\n@ATTRIBUTE type {TRAIN,TEST}\n"
        "@ATTRIBUTE rowid INTEGER\n@ATTRIBUTE repeat INTEGER\n@ATTRIBUTE fold INTEGER\n\n@DATA\n"
        + "".join(f"{','.join(map(str, row))}\n" for row in rows)
    )
    return {
        f"/json/task/{number}": json.dumps({"task": about}).encode(),
        f"/splits/{number}.arff": table.encode(),
    }


def test_the_folds_of_a_task_are_the_repeats(server: str, answers: dict[str, bytes]) -> None:
    answers |= task(server)
    info = resolve("openml-task:31")
    assert (info.n_test_sets, info.n_test, info.largest_test, info.n_train) == (3, 5, 10, 15)
    assert (info.class_names, info.class_counts) == (("no", "yes"), (15, 10))
    assert info.canonical["source"] == "openml-task:31"
    assert (info.canonical["id"], info.canonical["target"]) == (61, "class")
    assert info.canonical["test"] == "official"
    fetch(info)
    data = load(info.canonical)
    np.testing.assert_array_equal(data.X[:, 0], range(N))
    for repeat in range(3):
        part = split(1, info.id, repeat, data.y, "official", roles=data.roles)
        assert {FOLD[i] for i in part.test} == {repeat}
        assert repeat not in {FOLD[i] for i in part.train}
        assert (part.test.size, part.train.size) == (5, 15)


@pytest.mark.parametrize(
    "changes",
    [
        {"@DATA": "@Data"},
        {"@DATA\n": "@data\r\n  % a comment\r\n\r\n"},
        {"@RELATION": "% this table has no @data yet\n@relation"},
        {"@ATTRIBUTE type": "@Attribute\t'type'", "@ATTRIBUTE rowid": '  @attribute "rowid" '},
        {"TEST,": " 'test' , ", "TRAIN,": "'TRAIN',\t"},
        {",0,": ",0.0,", ",1\n": ",1.0\n"},
        {"\n": "\r\n"},
    ],
)
def test_a_table_of_folds_is_read_as_arff_has_it(
    server: str, answers: dict[str, bytes], changes: dict[str, str]
) -> None:
    answers |= task(server) | (other := task(server, 32))
    head, _, body = other["/splits/32.arff"].decode().partition("{TRAIN,TEST}")
    for old, new in changes.items():
        assert old in head + body
        head, body = head.replace(old, new), body.replace(old, new)
    answers["/splits/32.arff"] = f"{head}{{TRAIN,TEST}}{body}".encode()
    one, other_info = resolve("openml-task:31"), resolve("openml-task:32")
    assert other_info.canonical["folds"] == one.canonical["folds"]


def test_rows_of_folds_may_have_any_order(server: str, answers: dict[str, bytes]) -> None:
    answers |= task(server) | (other := task(server, 32))
    *head, rows = other["/splits/32.arff"].decode().partition("@DATA\n")
    shuffled = np.random.default_rng(0).permutation(rows.splitlines()).tolist()
    answers["/splits/32.arff"] = "\n".join(["".join(head) + shuffled[0], *shuffled[1:]]).encode()
    one, two = resolve("openml-task:31"), resolve("openml-task:32")
    assert two.canonical["folds"] == one.canonical["folds"]


def test_repeats_of_folds_are_sets_in_their_order(server: str, answers: dict[str, bytes]) -> None:
    rows = [
        ("TEST" if (i + repeat) % 5 == fold else "TRAIN", i, repeat, fold)
        for fold in range(5)
        for repeat in range(2)
        for i in range(N)
    ]
    answers |= task(server, rows=rows)
    info = resolve("openml-task:31")
    assert (info.n_test_sets, info.n_test) == (10, 5)
    fetch(info)
    data = load(info.canonical)
    part = split(1, info.id, 7, data.y, "official", roles=data.roles)  # repeat 1, fold 2
    assert part.test.tolist() == [i for i in range(N) if (i + 1) % 5 == 2]


def test_the_server_is_asked_once(
    server: str, answers: dict[str, bytes], asked: list[str], tmp_path: Path
) -> None:
    answers |= task(server)
    first = resolve("openml-task:31")
    fetch(first)
    answers.clear()
    assert resolve("openml-task:31") == first
    (tmp_path / "openml" / "described" / "task-31.json").unlink()
    assert resolve("openml-task:31") == first
    assert asked == ["/json/task/31", "/splits/31.arff"]
    with pytest.raises(Refused, match="the task's folds say what the test set is"):
        resolve("openml-task:31", test=0.25)


def test_other_folds_than_were_planned_are_refused(
    server: str, answers: dict[str, bytes], tmp_path: Path
) -> None:
    answers |= task(server)
    info = resolve("openml-task:31")
    kept = tmp_path / "openml" / "tasks" / "31.arff"
    kept.write_text(kept.read_text().replace("TEST,24,", "TRAIN,24,"))
    with pytest.raises(MachineError, match="the digest of its folds is"):
        fetch(info)


def test_what_is_kept_of_a_task_may_be_damaged(
    server: str, answers: dict[str, bytes], tmp_path: Path
) -> None:
    answers |= task(server)
    first, described = resolve("openml-task:31"), tmp_path / "openml" / "described"
    known = json.loads((described / "task-31.json").read_text())
    for changes in ({"set_counts": [1]}, {"set_counts": [[2**70]]}, {"class_names": "no"}):
        (described / "task-31.json").write_text(json.dumps(known | changes))
        assert resolve("openml-task:31") == first
    for text in ("[1]", "[" * 90_000):
        (described / "task-31.json").write_text(text)
        assert resolve("openml-task:31") == first
        (described / "task-31.json").unlink()
        kept = tmp_path / "openml" / "tasks" / "31.json"
        kept.write_text(text)
        with pytest.raises(Refused, match=r"31\.json does not describe a task .*: remove it"):
            resolve("openml-task:31")
        kept.unlink()
        kept = tmp_path / "openml" / "suites" / "9.json"
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(text)
        with pytest.raises(Refused, match=r"9\.json does not list tasks: remove it"):
            suite("openml-suite:9")


def test_a_task_predicts_the_column_that_it_names(server: str, answers: dict[str, bytes]) -> None:
    answers |= task(server, target="nothing")
    with pytest.raises(Refused, match=r"openml-task:31 \(id 61\) cannot be fetched.*nothing"):
        resolve("openml-task:31")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "5"}, "is Clustering, not supervised classification with folds"),
        ({"rows": [("TRAIN", 0, 0, 0), ("TEST", 0, 0, 0)]}, "tests on rows that it trains on"),
        ({"rows": [("TRAIN", 0, 0, 0)]}, "a fold without training rows or test rows"),
        ({"rows": [("TEST", N, 0, 0)]}, "name rows that its 25 rows do not have"),
        ({"rows": [("TEST", -1, 0, 0)]}, "name rows that its 25 rows do not have"),
        ({"rows": []}, "cannot be read|name rows"),
    ],
)
def test_a_task_without_folds_is_refused(
    server: str, answers: dict[str, bytes], given: dict[str, Any], said: str
) -> None:
    answers |= task(server, **given)
    with pytest.raises(Refused, match=said):
        resolve("openml-task:31")


def test_what_the_server_does_not_have_is_said(server: str) -> None:
    with pytest.raises(Refused, match=r"412.*Unknown task.*where the network can be reached"):
        resolve("openml-task:999")
    with pytest.raises(Refused, match="the number of a task"):
        resolve("openml-task:iris")


def test_a_suite_is_its_tasks(server: str, answers: dict[str, bytes], asked: list[str]) -> None:
    study = {"id": "99", "data": {"data_id": ["61"]}, "tasks": {"task_id": ["31", "37"]}}
    answers["/json/study/99"] = json.dumps({"study": study}).encode()
    for _ in range(2):
        assert suite("openml-suite:99") == ("openml-task:31", "openml-task:37")
    assert asked == ["/json/study/99"]
    answers["/json/study/1"] = b'{"study": {"id": "1"}}'
    for name, said in (
        ("1", "does not list tasks"),
        ("../x", "the number of a suite"),
        ("2", "412"),
    ):
        with pytest.raises(Refused, match=said):
            suite(f"openml-suite:{name}")
