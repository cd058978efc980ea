from pathlib import Path
from types import SimpleNamespace
from typing import Any

from manyseed.orchestrator.cli.status import _analysed
from manyseed.orchestrator.disk.records import write_json


def test_after_an_analysis_of_all_that_is_finished_comes_the_report(tmp_path: Path) -> None:
    file = tmp_path / "analysis.json"
    sweep: Any = SimpleNamespace(paths=SimpleNamespace(analysis=file))
    runs = {"done": 60, "copy": 4}
    assert not _analysed(sweep, runs)
    write_json(file, {"runs": {"analysed": 61}})
    assert not _analysed(sweep, runs)
    write_json(file, {"runs": {"analysed": 64}})
    assert _analysed(sweep, runs)
    file.write_text("{")
    assert not _analysed(sweep, runs)
