from pathlib import Path
from types import SimpleNamespace
from typing import Any

from manyseed.orchestrator.disk.records import write_json
from manyseed.orchestrator.progress.nextsteps import is_analysed


def test_after_an_analysis_of_all_that_is_finished_comes_the_report(tmp_path: Path) -> None:
    file = tmp_path / "analysis.json"
    paths: Any = SimpleNamespace(analysis=file)
    runs = {"done": 60, "copy": 4}
    assert not is_analysed(paths, runs)
    write_json(file, {"runs": {"analysed": 61}})
    assert not is_analysed(paths, runs)
    write_json(file, {"runs": {"analysed": 64}})
    assert is_analysed(paths, runs)
    file.write_text("{")
    assert not is_analysed(paths, runs)
