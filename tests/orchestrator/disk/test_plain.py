"""Records taken without pydantic are those that pydantic would take, and equal to them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge, Interval
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from manyseed.orchestrator.disk import records


@dataclass(frozen=True, slots=True)
class Inner:
    text: str
    flag: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    number: Annotated[int, Interval(ge=0, lt=100)]
    seconds: Annotated[float, Ge(0)] = 0.0
    names: tuple[str, ...] = ()
    pair: tuple[int, str] | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    inner: list[Inner] = field(default_factory=list)
    kind: Literal["a", "b"] = "a"
    some: frozenset[str] = frozenset()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 120) | st.floats() | st.sampled_from("ab\u0301"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=4,
)
FIELDS = {
    "number": st.integers(0, 99),
    "seconds": st.integers(0, 9) | st.floats(0, 9),
    "names": st.lists(st.text(max_size=2), max_size=2),
    "pair": st.none() | st.tuples(st.integers(), st.text(max_size=2)),
    "counts": st.dictionaries(st.text(max_size=1), st.integers()),
    "inner": st.lists(st.fixed_dictionaries({"text": st.text(max_size=2), "more": VALUES})),
    "kind": st.sampled_from("ab"),
    "some": st.lists(st.text(max_size=1), max_size=2),
}
RIGHT = st.fixed_dictionaries({"number": FIELDS.pop("number")}, optional=FIELDS)


@given(RIGHT)
def test_right_records_are_taken_as_pydantic_takes_them(value: dict[str, Any]) -> None:
    text = json.dumps(value, ensure_ascii=False).encode()
    assert records.read(text, Record) == TypeAdapter(Record).validate_json(text)


@given(RIGHT, st.sampled_from(["number", *FIELDS, "unknown"]), VALUES)
def test_nothing_is_taken_that_pydantic_refuses(
    value: dict[str, Any], key: str, wrong: Any
) -> None:
    text = json.dumps(value | {key: wrong}).encode()
    try:
        taken = records.read(text, Record)
    except records.Unlike:
        return
    try:
        assert taken == TypeAdapter(Record).validate_json(text)
    except ValidationError as error:
        raise AssertionError(text) from error


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[1]",
        b"{}",
        b'{"number": 1',
        b'{"number": true}',
        b'{"number": "1"}',
        b'{"number": 100}',
        b'{"number": 1, "seconds": -1}',
        b'{"number": 1, "names": ["\\ud800"]}',
        b'{"number": 1, "names": ["\xff"]}',
        b'\xef\xbb\xbf{"number": 1}',
    ],
)
def test_everything_else_is_left_to_pydantic(text: bytes) -> None:
    with pytest.raises(records.Unlike):
        records.read(text, Record)
