"""Features of images from a pretrained backbone, computed once per dataset.

Planning locates a file of weights and records its digest; writing a plan stores a copy in the data
folder, so that workers find exactly the file that the identity names, whatever happens to the
original. Nothing is ever downloaded.

``features/DATASET-WEIGHTS-VERSION/`` in the data folder holds the features of all rows of a
prepared dataset; every process memory-maps them. They are computed in parts: processes that need
them at the same time start at different parts and reuse each other's, and after an interruption
finished parts are not computed again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.checks import Option, Refused, did_you_mean_path, expanded
from manyseed.jobs.datasets.cache import HOME_VARIABLE, data_home
from manyseed.jobs.packages import torchvision
from manyseed.jobs.run import DatasetRows, MachineError, TrainingSet
from manyseed.jobs.whole import UNLIKE, appearing, place, sha256

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

PUBLISHED = {
    "swin_t": "https://download.pytorch.org/models/swin_t-704ceda3.pth",
    "vit_b_16": "https://download.pytorch.org/models/vit_b_16-c867db91.pth",
}
"""ImageNet weights of each backbone, as torchvision names them."""


OPTION = Option(
    "The backbone's state dict; by default the published one.",
    called='the path of a file, or "hf:OWNER/NAME"',
)
_UNKNOWN = "0" * 64
_absent: ContextVar[list[str] | None] = ContextVar("absent weights", default=None)


@contextmanager
def counting() -> Iterator[list[str]]:
    """Within this block, runs are only counted: published weights may be absent.

    Yields the list of what is absent, with what to do, which grows as classifiers are resolved.
    Identities are then not those of runs.
    """
    noted: list[str] = []
    token = _absent.set(noted)
    try:
        yield noted
    finally:
        _absent.reset(token)


def locate(backbone: str, weights: object = None) -> tuple[Path, str]:
    """Return a weights file and its SHA-256, hexadecimal.

    `backbone`: one of `PUBLISHED`. `weights`: path of a file with the backbone's state dict, or
    ``hf:OWNER/NAME``, a model in the cache of Hugging Face's hub; by default the published file in
    torch hub's cache.
    """
    if weights is not None:
        OPTION.check("weights", weights)
    hub = _in_hub(backbone)
    if weights is not None and str(weights).startswith("hf:"):
        path = _in_hugging_face(str(weights))
        return path, _digest(path)
    path = hub if weights is None else expanded(str(weights))
    if not path.is_file():
        absent = f"those of {backbone} are not in {hub}"
        if weights:
            absent = f"there is no such file{did_you_mean_path(path)}"
        get = f"download {PUBLISHED[backbone]} to {hub}, or give the path of a state dict"
        if weights is None and (noted := _absent.get()) is not None:
            if (told := f"{absent}: {get}") not in noted:
                noted.append(told)
            return path, _UNKNOWN
        raise Refused("weights", weights, f"{absent}: {get}")
    return path, _digest(path)


def keep(backbone: str, weights: object = None) -> str:
    """Copy a weights file to the data folder and return its digest; parameters as in `locate`."""
    path, digest = locate(backbone, weights)
    copy = _kept(digest)
    if not copy.is_file():
        try:
            with path.open("rb") as file:
                place(copy, partial(shutil.copyfileobj, file))
        except OSError as error:
            raise Refused(
                "weights",
                str(path),
                f"cannot be copied to {copy} ({error}): set {HOME_VARIABLE} to a folder that can "
                "be written",
            ) from error
    return digest


def find(backbone: str, digest: str) -> Path:
    """Return the file with the weights that a run was planned with."""
    copy = _kept(digest)
    for path in (copy, _in_hub(backbone)):
        if path.is_file() and _digest(path) == digest:
            return path
    raise MachineError(
        f"the weights of {backbone} that the sweep was planned with (SHA-256 {digest}) are not in "
        f"{copy}, or have changed: copy them there, or set {HOME_VARIABLE} to where the sweep was "
        "planned"
    )


def _kept(digest: str) -> Path:
    return data_home() / "weights" / f"{digest}.pth"


def _in_hub(backbone: str) -> Path:
    """Return torch hub's path for a published file, without importing torch to ask it."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("TORCH_HOME") or f"{cache}/torch"
    name = PUBLISHED[backbone].rpartition("/")[2]
    return expanded(home) / "hub" / "checkpoints" / name


def _in_hugging_face(weights: str) -> Path:
    """Return the file of a model in the hub's cache, that of the revision ``main`` if it is there.

    Its folder is found as `huggingface_hub` does, which need not be installed.
    """
    owner, _, name = weights.removeprefix("hf:").partition("/")
    home = (
        os.environ.get("HF_HOME") or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    )
    cache = expanded(os.environ.get("HF_HUB_CACHE") or f"{home}/hub")
    folder = cache / f"models--{owner}--{name}"
    named = folder / "refs" / "main"
    revisions = [named.read_text().strip()] if named.is_file() else []
    if not revisions and (folder / "snapshots").is_dir():
        revisions = sorted(one.name for one in (folder / "snapshots").iterdir())
    files = [
        folder / "snapshots" / revision / file
        for revision in revisions
        for file in ("model.safetensors", "pytorch_model.bin")
    ]
    found = [file for file in files if owner and name and file.is_file()]
    if not found:
        reason = f"there is no model.safetensors of it below {folder}"
        get = f"fetch it where the network can be reached: hf download {owner}/{name}"
        raise Refused("weights", weights, f"{reason}: {get}")
    return found[0]


def _digest(path: Path) -> str:
    now = path.stat()
    return _digest_of(path.resolve(), now.st_size, now.st_mtime_ns)


@lru_cache(maxsize=64)
def _digest_of(path: Path, _size: int, _modified: int) -> str:
    return sha256(path)


Features = NDArray[np.float32]

VERSION = 1  # version of the preprocessing of images; features of other versions are ignored

ROWS_OF_A_PART = 128
_ROWS_AT_ONCE = 16

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's, for both weights


@dataclass(frozen=True, slots=True)
class Backbone:
    """A torchvision network without its last layer.

    `head`: the module that maps features to ImageNet's classes, which is left out. `size`: height
    and width to which images are scaled. `interpolation`: how they are scaled, as the published
    weights expect. `width`: number of features per image.
    """

    build: Callable[[], nn.Module]
    head: str
    size: int
    interpolation: Literal["bicubic", "bilinear"]
    width: int = 768


def _torchvision(name: str) -> nn.Module:
    model: nn.Module = getattr(torchvision("torchvision.models"), name)()
    return model


BACKBONES = {
    "swin_t": Backbone(partial(_torchvision, "swin_t"), "head", 224, "bicubic"),
    "vit_b_16": Backbone(partial(_torchvision, "vit_b_16"), "heads", 224, "bilinear"),
}


def features(
    backbone: str, digest: str, data: TrainingSet, device: torch.device
) -> tuple[Features, Features]:
    """Return the features of training and test rows.

    Features of unperturbed rows are looked up, those of perturbed rows computed.

    `backbone` and `digest`: the backbone, and the digest of its weights that `keep` returned.
    Returns (n_train, n_features) and (n_test, n_features).
    """
    in_dataset, image = data.in_dataset, data.image
    if image is None:
        raise ValueError("the dataset's rows are not images")
    white = _white(data.X if in_dataset is None else in_dataset.X)
    compute = partial(_compute, backbone, digest, device, image, white)
    if in_dataset is None:
        return compute(data.X), compute(data.X_test)
    known = _of_dataset(in_dataset, digest, compute)
    train = compute(data.X) if in_dataset.train is None else known[in_dataset.train]
    return train, known[in_dataset.test]


def _white(X: NDArray[Any]) -> float:
    """Return the value of full brightness, a constant of the dataset."""
    return 255.0 if X.dtype == np.uint8 else float(X.max()) or 1.0


def _compute(
    backbone: str,
    digest: str,
    device: torch.device,
    image: tuple[int, int, int],
    white: float,
    X: NDArray[Any],
) -> Features:
    import torch

    if device.type == "cpu":
        torch.set_num_threads(1)  # rounding depends on it
    model = _model(backbone, digest, device)
    parts = []
    for start in range(0, len(X), _ROWS_AT_ONCE):
        rows = torch.tensor(X[start : start + _ROWS_AT_ONCE], dtype=torch.float32, device=device)
        images = as_expected(BACKBONES[backbone], rows.reshape(-1, *image) / white)
        with torch.no_grad():
            parts.append(model(images).cpu().numpy())
    return np.concatenate(parts)


def as_expected(backbone: Backbone, images: Tensor) -> Tensor:
    """Return images in the form that a backbone was trained on.

    `images`, float32 tensor (row, height, width, channel): brightness from 0 to 1; a single channel
    serves as all three colours. Returns float32 tensor (row, 3, size, size): whole images, scaled,
    and normalised by ImageNet's means and standard deviations.
    """
    from torch.nn.functional import interpolate

    colours = images.permute(0, 3, 1, 2).expand(-1, 3, -1, -1)
    size = (backbone.size, backbone.size)
    scaled = interpolate(colours, size, mode=backbone.interpolation, antialias=True)
    mean, std = (scaled.new_tensor(values)[:, None, None] for values in (_MEAN, _STD))
    return (scaled - mean) / std


@lru_cache(maxsize=1)
def _model(backbone: str, digest: str, device: torch.device) -> nn.Module:
    import torch
    from torch import nn

    description = BACKBONES[backbone]
    head = description.head
    path = find(backbone, digest)
    with torch.device("meta"):  # elsewhere the layers would draw from the global generator
        model = description.build()
    setattr(model, head, nn.Identity())
    try:
        state = renamed(_state(path))
        body = {name: value for name, value in state.items() if name.split(".")[0] != head}
        model.load_state_dict(body, assign=True)
    except (RuntimeError, AttributeError, OSError, ValueError) as error:
        raise MachineError(f"{path} holds no weights of {backbone}: {error}") from error
    return model.to(device).eval().requires_grad_(False)


_DTYPES = {"F32": np.float32, "F16": np.float16, "F64": np.float64, "I64": np.int64}


def _state(path: Path) -> dict[str, Tensor]:
    """Read a state dict, of PyTorch's format or of safetensors; neither executes anything."""
    import torch

    with path.open("rb") as file:
        start = file.read(9)
        size = int.from_bytes(start[:8], "little")
        if start[8:] != b"{" or size > path.stat().st_size:
            state: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
            return state
        file.seek(8)
        header = json.loads(file.read(size))
        header.pop("__metadata__", None)
        data = np.fromfile(file, np.uint8)
    found = {}
    for name, one in header.items():
        if one["dtype"] not in _DTYPES:
            raise ValueError(f"{name} is of the type {one['dtype']}")
        first, last = one["data_offsets"]
        values = data[first:last].view(_DTYPES[one["dtype"]]).reshape(one["shape"])
        tensor = torch.from_numpy(values.copy())
        found[name] = tensor.float() if tensor.is_floating_point() else tensor
    return found


_SWIN = (
    (r"^swin\.", ""),
    (r"^embeddings\.patch_embeddings\.projection\.", "features.0.0."),
    (r"^embeddings\.norm\.", "features.0.2."),
    (r"^layernorm\.", "norm."),
    (r"^classifier\.", "head."),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"\.attention\.self\.", ".attn."),
    (r"\.attention\.output\.dense\.", ".attn.proj."),
    (r"\.intermediate\.dense\.", ".mlp.0."),
    (r"\.output\.dense\.", ".mlp.3."),
)
"""Names of parameters of Hugging Face's Swin, and torchvision's."""


def renamed(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the state dict of Hugging Face's Swin under torchvision's names, others as they are.

    Attention's queries, keys and values are apart there, and one array here.
    """
    import torch

    if not any("patch_embeddings.projection" in name for name in state):
        return state
    found: dict[str, Tensor] = {}
    for name, values in state.items():
        for old, new in _SWIN:
            name = re.sub(old, new, name)
        stage = re.match(r"encoder\.layers\.(\d+)\.(blocks\.|downsample\.)", name)
        if stage:
            place = 2 * int(stage[1]) + (1 if stage[2] == "blocks." else 2)
            name = f"features.{place}.{name[stage.end() :]}"
        found[name] = values.reshape(-1) if name.endswith("relative_position_index") else values
    for name in [name for name in found if ".attn.query." in name]:
        parts = [found.pop(name.replace("query", part)) for part in ("query", "key", "value")]
        found[name.replace("query", "qkv")] = torch.cat(parts)
    for name in [name for name in found if name.endswith(".relative_position_bias_table")]:
        index = name.replace("bias_table", "index")  # later versions do not save it
        found.setdefault(index, _relative(round((len(found[name]) ** 0.5 + 1) / 2)))
    return found


def _relative(window: int) -> Tensor:
    """Return the row of the table of biases of every two places of a window, (place · place,)."""
    import torch

    rows, columns = np.divmod(np.arange(window * window), window)
    down, across = (one[:, None] - one[None] + window - 1 for one in (rows, columns))
    return torch.from_numpy((down * (2 * window - 1) + across).reshape(-1))


_OPEN: dict[Path, Features] = {}


def _of_dataset(
    rows: DatasetRows, digest: str, compute: Callable[[NDArray[Any]], Features]
) -> Features:
    where = data_home() / "features" / f"{rows.dataset}-{digest[:32]}-{VERSION}"
    if where not in _OPEN:
        try:
            if not where.exists():
                _make(where, rows.X, compute)
            _OPEN[where] = _read(where, len(rows.X))
        except OSError as error:
            raise MachineError(
                f"features cannot be kept in {where} ({error}): set {HOME_VARIABLE} to a folder "
                "that can be written"
            ) from error
    return _OPEN[where]


def _make(where: Path, X: NDArray[Any], compute: Callable[[NDArray[Any]], Features]) -> None:
    """Compute all parts that no other process has computed, and join them."""
    folder = where.with_name(f"{where.name}.parts")
    starts = range(0, len(X), ROWS_OF_A_PART)
    parts = [folder / f"{start:09d}.npy" for start in starts]
    first = os.getpid() * 7919 % len(parts)  # away from where other processes start
    for i in (*range(first, len(parts)), *range(first)):
        if where.exists():
            break
        if not parts[i].exists():
            values = compute(X[starts[i] : starts[i] + ROWS_OF_A_PART])
            try:
                place(parts[i], partial(np.save, arr=values))
            except FileNotFoundError:
                if not where.exists():  # another process was done and removed all parts
                    raise
    if not where.exists():
        _join(where, parts, len(X))
    shutil.rmtree(folder, ignore_errors=True)


def _join(where: Path, parts: list[Path], n: int) -> None:
    try:
        with appearing(where) as mine:
            rows = [np.load(part, mmap_mode="r") for part in parts]
            values = np.lib.format.open_memmap(
                mine / "features.npy", mode="w+", dtype=np.float32, shape=(n, rows[0].shape[1])
            )
            np.concatenate(rows, out=values)
            values.flush()
            about = {"sha256": sha256(mine / "features.npy")}
            place(mine / "about.json", lambda file: file.write(json.dumps(about).encode()))
    except OSError:
        if not where.exists():  # another process was faster: its features stay
            raise
    except (EOFError, *UNLIKE):
        raise _damaged(parts[0].parent) from None


def _read(where: Path, n: int) -> Features:
    path = where / "features.npy"
    try:
        about = json.loads((where / "about.json").read_bytes())
        if sha256(path) == about["sha256"]:
            values: Features = np.load(path, mmap_mode="r")
            if len(values) == n:
                return values
    except (OSError, EOFError, *UNLIKE):
        pass
    raise _damaged(where)


def _damaged(where: Path) -> MachineError:
    return MachineError(
        f"{where} is damaged: remove it, and the features are computed again by the next fit"
    )
