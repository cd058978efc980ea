"""How arrays are saved anew, so that they are read."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from manyseed.orchestrator.errors import SeveralModels, UserError

_PLAIN = """import numpy as np; from pathlib import Path
for p in Path({!r}).glob('*.npz'):
  f = dict(np.load(p, allow_pickle=True))
  np.savez(p, **{{k: np.array(v.tolist()) if v.dtype == object else v for k, v in f.items()}})"""


def several_models(
    what: str, theirs: Mapping[str, str], key: str, path: Path, n_models: int
) -> UserError:
    """Return the error for an array whose first axis may be of models, with how to save each."""
    if path.suffix not in (".npz", ".npy", *_TORCH):
        remedy = "if its first axis is of models, give such arrays for each, by its name"
        return UserError(what, file=path, key=key, remedy=remedy)
    file, of = json.dumps(str(path), ensure_ascii=False), theirs.get(key)
    line = f"f = np.load({file})"
    if path.suffix in _TORCH:
        line = f"import torch; f = torch.load({file})"
        line += f'; f = f if isinstance(f, dict) else {{"{key}": f}}' * (of == key)  # one tensor
    beside = {own: json.dumps(theirs[own], ensure_ascii=False) for own in _BESIDE if own in theirs}
    entries = "".join(f", {own}=f[{name}]" for own, name in beside.items())
    array = f"f[{json.dumps(of, ensure_ascii=False)}]" if of else "f"
    each = f"for i, one in enumerate({array})"
    suffix = ".npz" if of else ".npy"
    save = f'np.savez(f"model-{{i}}.npz", {key}=one{entries})'
    save = save if of else 'np.save(f"model-{i}.npy", one)'
    code = shlex.quote(f"import numpy as np; {line}; [{save} {each}]")
    names = _names(theirs, path, n_models) if path.suffix == ".npz" else []
    names = names or [f"model-{i}" for i in range(n_models)]
    return SeveralModels(
        what,
        saving=f"if its first axis is of models, save a file of each: python -c {code}",
        files={name: [f"model-{i}{suffix}"] for i, name in enumerate(names)},
        dataset=path.stem,
        file=path,
        key=key,
    )


_TORCH = (".pt", ".pth")
_BESIDE = ("y_true", "class_names", "test_index")
_OF_MODELS = re.compile(r"(?i)(models?|classifiers?|methods?|algorithms?|estimators?)(_?names?)?")
_OF_OTHERS = re.compile(r"(?i).*(class|label|target|categor|dataset|feature).*")
_MOST_BYTES = 2**20


def _names(theirs: Mapping[str, str], path: Path, n_models: int) -> list[str]:
    """Return as many texts as there are models, if one entry of a file alone holds such."""
    found: dict[str, list[str]] = {}
    with suppress(OSError, ValueError), np.load(path) as file:
        for name in file.files:
            if name in theirs.values() or file.zip.getinfo(f"{name}.npy").file_size > _MOST_BYTES:
                continue
            values = file[name]
            if values.dtype.kind in "US" and values.shape == (n_models,):
                found[name] = [str(one) for one in values.astype(str)]
    meant = [of for name, of in found.items() if _OF_MODELS.fullmatch(name)]
    meant = meant or [of for name, of in found.items() if not _OF_OTHERS.fullmatch(name)]
    is_plain = len(meant) == 1 and all(one.strip() and "=" not in one for one in meant[0])
    return meant[0] if is_plain and len({*meant[0]}) == n_models else []


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
