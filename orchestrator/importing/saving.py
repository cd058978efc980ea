"""How arrays are saved anew, so that they are read."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

_PLAIN = """import numpy as np; from pathlib import Path
for p in Path({!r}).glob('*.npz'):
  f = dict(np.load(p, allow_pickle=True))
  np.savez(p, **{{k: np.array(v.tolist()) if v.dtype == object else v for k, v in f.items()}})"""


def a_file_each(theirs: Mapping[str, str], key: str, path: Path) -> str:
    """Return how to save the models of an array's first axis in a file each."""
    line = f"[np.save(f'model-{{i}}.npy', one) for i, one in enumerate(np.load({str(path)!r}))]"
    if path.suffix == ".npz":
        entries = f"{key}=one"
        entries += f", y_true=f[{theirs['y_true']!r}]" if "y_true" in theirs else ""
        each = f"for i, one in enumerate(f[{theirs.get(key, key)!r}])"
        line = f"f = np.load({str(path)!r}); [np.savez(f'model-{{i}}.npz', {entries}) {each}]"
    code = shlex.quote(f"import numpy as np; {line}")
    return f"if its first axis is of models, save a file of each: python -c {code}"


def without_objects(path: Path, key: str, shape: tuple[int, ...]) -> str:
    """Return how an entry of Python objects becomes an array of numbers or text."""
    remedy = f"save numbers or text, such as {key}.astype(float) or {key}.astype(str)"
    if path.suffix == ".npz":
        remedy += "; or convert all of the folder in place, if you trust them, and repeat this "
        remedy += f"command: python -c {shlex.quote(_PLAIN.format(str(path.parent)))}"
    if not shape and path.suffix == ".npy":
        line = f"np.savez({str(path.with_suffix('.npz'))!r}, "
        line += f"**np.load({str(path)!r}, allow_pickle=True).item())"
        remedy = "if it is a dict of arrays that you trust: python -c "
        remedy += shlex.quote(f"import numpy as np; {line}")
    return remedy
