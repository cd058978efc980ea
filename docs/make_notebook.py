"""Execute ``examples/first-sweep.ipynb`` in place, without Jupyter.

Run from the repository's folder: ``python docs/make_notebook.py``. The outputs of a cell are what
it prints and the value of its last line; figures become pictures.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

NOTEBOOK = Path(__file__).parents[1] / "examples" / "first-sweep.ipynb"
DPI = 90


def execute(notebook: dict[str, Any], folder: Path) -> None:
    """Run the code of a notebook in a folder, in order, and give each cell its outputs."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(folder):
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        for number, cell in enumerate(cells, start=1):
            cell["execution_count"] = number
            cell["outputs"] = _run("".join(cell["source"]), names, number)


def _run(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Run a cell; return what it printed and its last line's value."""
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    told = io.StringIO()
    value = None
    with contextlib.redirect_stdout(told):
        exec(compile(ast.Module(body, []), f"cell {number}", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if told.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(told.getvalue())})
    if value is not None:
        shown = {"data": _shown(value), "execution_count": number, "metadata": {}}
        outputs.append({**shown, "output_type": "execute_result"})
    return outputs


def _shown(value: Any) -> dict[str, Any]:
    """Return a value as a notebook shows it."""
    if isinstance(value, Figure):
        picture = io.BytesIO()
        value.savefig(picture, dpi=DPI, facecolor="white", metadata={"Software": None})
        encoded = base64.b64encode(picture.getvalue()).decode()
        return {"image/png": encoded, "text/plain": [f"<Figure of {len(value.axes)} axes>"]}
    data = {"text/plain": _lines(repr(value))}
    if hasattr(value, "_repr_html_"):
        data["text/html"] = _lines(value._repr_html_())
    return data


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    """Execute the notebook and write it."""
    notebook = json.loads(NOTEBOOK.read_text())
    with tempfile.TemporaryDirectory() as folder:
        execute(notebook, Path(folder))
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    os.environ.setdefault("POLARS_TABLE_WIDTH", "100")
    sys.exit(main())
