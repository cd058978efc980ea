"""How many jobs a user may have, of what accounting tells."""

from __future__ import annotations

import pytest

from manyseed.slurm import ClusterError, commands, discover
from manyseed.slurm.discover import Limits

ANSWERS = {
    "user": """The site's database speaks
science|lab|science||normal|400|
science|lab|teaching||short|30|25
science|lab|science|fast|fast|350|
science|other|science|||1|1
""",
    "association": """The site's database speaks
|science|root|
|teaching|faculty|
|faculty|root|22
|root||1000
me|science|science|1
""",
    "qos": "normal|500||\nshort||20|90\nfast|||\nlong|3||\nnarrow|2||7\n",
    "partition": """PartitionName=cpu AllowQos=ALL QoS=N/A Default=YES
PartitionName=fast AllowQos=ALL QoS=N/A Default=NO
PartitionName=gpu AllowQos=ALL Default=NO QoS=narrow MaxNodes=1
""",
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What SLURM was asked; it answers as above."""
    asked: list[list[str]] = []

    def run(arguments: list[str]) -> str:
        asked.append(arguments)
        return next(text for what, text in ANSWERS.items() if what in arguments)

    monkeypatch.setattr(commands, "run", run)
    return asked


@pytest.mark.parametrize(
    ("job", "most"),
    [
        ({"partition": "cpu"}, 400),  # the default account's, below its QOS
        ({"partition": "fast"}, 350),  # the account's in this partition
        ({"partition": "gpu"}, 2),  # the partition's QOS
        ({"partition": "cpu", "qos": "long"}, 3),  # the one that the jobs name
        ({"partition": "cpu", "account": "teaching"}, 20),  # the association's QOS, an account's
        ({"partition": "cpu", "account": "teaching", "qos": "fast"}, 22),  # of the account above
        ({"partition": "cpu", "account": "nobody's"}, 500),  # SLURM's default QOS
    ],
)
def test_the_smallest_of_all_limits_holds(
    asked: list[list[str]], job: dict[str, str], most: int
) -> None:
    assert discover.ask_limits("lab").most(**job) == most
    assert len(asked) == 4


def test_partitions_are_asked_for_only_where_a_qos_limits_anything(
    asked: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ANSWERS, "qos", "normal|||\n")
    assert discover.ask_limits("lab").most("gpu") == 400
    assert len(asked) == 3
    assert discover.ask_limits("elsewhere").most("gpu") is None


def test_a_group_whose_accounts_are_not_told_or_in_a_ring_has_its_users_limit(
    asked: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    teaching = {"partition": "cpu", "account": "teaching", "qos": "fast"}
    for shown in ("|teaching|teaching|\n", "", "|teaching|faculty|²\n|faculty|teaching|\n"):
        monkeypatch.setitem(ANSWERS, "association", shown)
        assert discover.ask_limits("lab").most(**teaching) == 25
    assert len(asked) == 12


def test_where_accounting_is_silent_no_limit_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(arguments: list[str]) -> str:
        raise ClusterError("sacctmgr: error: Access denied")

    monkeypatch.setattr(commands, "run", run)
    assert discover.ask_limits("lab") == Limits()
