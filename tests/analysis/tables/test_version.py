from __future__ import annotations

from pathlib import Path

from manyseed.analysis.options import Options
from manyseed.analysis.version import code_version


def test_the_records_of_tables_are_code_behind_the_numbers(monkeypatch):
    """They hold the types of columns: results of other ones are computed again."""
    options, read = Options(metrics=("accuracy",)), Path.read_bytes
    before = code_version(options)
    assert code_version(options) == before
    for name, counts in (("tables.toml", True), ("studies.toml", False)):
        monkeypatch.setattr(
            Path, "read_bytes", lambda self, of=name: read(self) + b"#" * (self.name == of)
        )
        assert (code_version(options) != before) is counts
