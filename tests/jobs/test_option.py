"""An option refuses by its kind, its words and its bounds, and tells its JSON Schema the same."""

from __future__ import annotations

import math
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from manyseed.jobs.checks import Option, Refused, UnknownOption, values_of

WHOLE = Option("Number of it.", int, 3, least=1, most=9)
WORD = Option(words=("a", "b"))
EITHER = Option(kind=float, above=0, words=("auto",))
ENTRY = Option(pattern=r"^\w+:\w+$", called='"module:name"')
LIST = Option(kind=list, distinct=True, of=Option(kind=int, least=1))
TABLE = Option(kind=dict, of={"low": Option(kind=float), "log": Option(kind=bool)})


@pytest.mark.parametrize(
    ("option", "value", "checked"),
    [
        (WHOLE, 9, 9),
        (WORD, "a", "a"),
        (EITHER, 2, 2.0),
        (EITHER, "auto", "auto"),
        (ENTRY, "m:f", "m:f"),
        (LIST, (1, 2), [1, 2]),
        (TABLE, {"low": 1, "log": True}, {"low": 1.0, "log": True}),
        (Option(kind=object), False, False),
        (Option(words=(1, 2)), 2, 2),
    ],
)
def test_allowed_values_are_returned_by_kind(option: Option, value: Any, checked: Any) -> None:
    found = option.check("x", value)
    assert found == checked
    assert type(found) is type(checked)
    assert Draft202012Validator(option.schema()).is_valid(
        [*value] if isinstance(value, tuple) else value
    )


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        (WHOLE, 0, "x = 0: must be a whole number from 1 to 9"),
        (WHOLE, True, "x = True: must be a whole number from 1 to 9"),
        (WHOLE, 2.0, None),  # JSON has no other whole numbers
        (WORD, "c", "x = 'c': unknown; there are a, b"),
        (EITHER, "none", "x = 'none': must be a number above 0, or 'auto'"),
        (EITHER, 0, "x = 0: must be a number above 0, or 'auto'"),
        (
            Option(kind=float, least=0, most=1),
            2,
            "x = 2: must be a number at least 0 and at most 1",
        ),
        (ENTRY, "m:f\n", None),  # what $ means differs
        (ENTRY, "m", "x = 'm': must be \"module:name\""),
        (LIST, [1, 1], "x = [1, 1]: must be a list"),
        (LIST, [], "x = []: must be a list"),
        (LIST, [1, 0], "x = 0: must be a whole number at least 1"),
        (TABLE, {"low": "1"}, "x.low = '1': must be a number"),
        (TABLE, {"low": 1, "log": 1}, "x.log = 1: must be true or false"),
        (TABLE, 3, "x = 3: must be a table"),
        (Option(kind=object), [1], "x = [1]: must be text, a finite number, true or false"),
        (Option(), 1, "x = 1: must be text in quotes"),
        (Option(words=(1, 2)), True, "x = True: unknown; there are 1, 2"),
    ],
)
def test_other_values_are_refused_in_one_wording(option: Option, value: Any, said: str) -> None:
    with pytest.raises(Refused) as refused:
        option.check("x", value)
    if said is not None:
        assert str(refused.value) == said
        assert not Draft202012Validator(option.schema()).is_valid(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, 10**400])
def test_numbers_are_finite(value: float) -> None:
    with pytest.raises(Refused, match="must be a number"):
        Option(kind=float).check("x", value)


def test_a_table_is_read_with_defaults_and_names_what_is_unknown() -> None:
    options = {"members": WHOLE, "kind": WORD}
    assert values_of(options, {"kind": "b"}) == {"members": 3, "kind": "b"}
    with pytest.raises(UnknownOption) as refused:
        values_of(options, {"member": 2}, "table.")
    assert (refused.value.option, refused.value.allowed) == ("table.member", ("members", "kind"))
    with pytest.raises(UnknownOption) as refused:
        TABLE.check("space.a", {"step": 1})
    assert (refused.value.option, refused.value.allowed) == ("space.a.step", ("low", "log"))
    assert WHOLE.schema()["description"] == "Number of it (default: 3)."
