"""The notebook of the examples: it was executed, and it runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "examples" / "first-sweep.ipynb"
EXECUTE = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from make_notebook import execute
notebook = json.loads(Path(sys.argv[1]).read_text())
execute(notebook, Path.cwd())
Path("executed.json").write_text(json.dumps(notebook))
"""


def outputs(notebook: dict) -> list[list[str]]:
    """Return the kinds of what each cell of code shows."""
    return [
        [kind for output in cell["outputs"] for kind in output.get("data", [output["output_type"]])]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_the_notebook_runs_and_shows_what_it_says(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, NOTEBOOK, ROOT / "docs"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    executed = json.loads((tmp_path / "executed.json").read_text())
    kept = json.loads(NOTEBOOK.read_text())
    assert outputs(executed) == outputs(kept)
    assert sum("image/png" in shown for shown in outputs(kept)) == 3
    sources = [["".join(cell["source"]) for cell in one["cells"]] for one in (executed, kept)]
    assert sources[0] == sources[1]
    told = json.dumps(kept, ensure_ascii=False)
    assert "between seeds" in told
    assert str(Path.home()) not in told
