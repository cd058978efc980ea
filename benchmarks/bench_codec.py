"""The codec of the store's files, zarr-python and zarrs, on the same files; and compressors.

    python benchmarks/bench_codec.py [--quick] [--json] [--folder DIR]

zarrs is zarr-python's pipeline in Rust (`pip install zarrs`); it is left out if it is not
installed. Reading is measured cold (page cache dropped, if root) and hot, writing from memory to
the page cache; CPU seconds do not depend on other load on the machine. `codecs` is the basis for
the choice of compressor and chunk.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import zarr
from bench_store import (
    SCAN,
    SIZES,
    Read,
    measured,
    ours,
    predicted,
    read_ours,
    show,
    spec_of,
    timed,
)
from numcodecs import Blosc, Zstd
from zarr.storage import LocalStore

from manyseed.orchestrator.paths import METADATA
from manyseed.orchestrator.store.chunkfile import ChunkWriter, parse
from manyseed.orchestrator.store.groups import Group, list_groups
from manyseed.orchestrator.store.reader import read_array


def zarr_ways() -> dict[str, str]:
    """Return zarr-python's codec pipeline, and the one in Rust if it is installed."""
    ways = {"zarr-python ": str(zarr.config.get("codec_pipeline.path"))}
    if importlib.util.find_spec("zarrs"):
        ways["zarrs "] = "zarrs.ZarrsCodecPipeline"
    return ways


def read_zarr(group: Group, pipeline: str) -> int:
    """Read the same files as `read_ours`, in the same steps, by zarr-python."""
    total, step = 0, SCAN * group.spec.chunk_length
    with zarr.config.set({"codec_pipeline.path": pipeline}):
        for name in predicted(group):
            array = zarr.open_array(LocalStore(group.folder / name, read_only=True), mode="r")
            for first in range(0, group.rows, step):
                total += np.asarray(array[first : first + step]).nbytes
    return total


def write_ours(group: Group, values: dict[str, np.ndarray], folder: Path) -> None:
    """Write the files of predictions again, one shard at a time."""
    for name, rows in values.items():
        form = parse(group.metadata(group.spec.array(name)))
        (folder / name).mkdir(parents=True)
        for shard in range(group.shards):
            with (folder / name / form.name(shard)).open("xb", buffering=0) as file:
                writer = ChunkWriter(form, file)
                writer.add(rows[slice(*group.span(shard))])
                writer.finish()


def write_zarr(pipeline: str, group: Group, values: dict[str, np.ndarray], folder: Path) -> None:
    """Write the same files as `write_ours`, in the same steps, by zarr-python."""
    with zarr.config.set({"codec_pipeline.path": pipeline, "array.write_empty_chunks": True}):
        for name, rows in values.items():
            (folder / name).mkdir(parents=True)
            (folder / name / METADATA).write_bytes(group.metadata(group.spec.array(name)))
            array = zarr.open_array(LocalStore(folder / name), mode="r+")
            for shard in range(group.shards):
                array[slice(*group.span(shard))] = rows[slice(*group.span(shard))]


def write_again(group: Group, folder: Path) -> dict[str, float]:
    """Write predictions from memory in all ways, alternately; return medians."""
    values = {name: read_array(group, name) for name in predicted(group)}
    ways: dict[str, Callable[..., None]] = {"manyseed ": write_ours}
    ways |= {name: partial(write_zarr, pipeline) for name, pipeline in zarr_ways().items()}
    found: dict[str, list[float]] = {}
    for _ in range(5):
        for name, write in ways.items():
            wall, processor = timed(partial(write, group, values, folder / "again"))
            shutil.rmtree(folder / "again")
            found.setdefault(f"{name}write_ms_per_run", []).append(1e3 * wall / group.rows)
            each = found.setdefault(f"{name}write_cpu_ms_per_run", [])
            each.append(1e3 * processor / group.rows)
    return {name: statistics.median(values) for name, values in found.items()}


def same_files(folder: Path, points: int, n_runs: int) -> dict[str, dict[str, float]]:
    """Read and write the predictions of a store in all ways, one column per way."""
    spec = spec_of(points)
    ours(folder, spec, n_runs)
    (group,) = list_groups(folder / "predictions.zarr")
    nominal = n_runs * spec.row_bytes
    reads: dict[str, Read] = {"manyseed ": (lambda: read_ours(group, None), nominal)}
    for name, pipeline in zarr_ways().items():
        reads[name] = (partial(read_zarr, group, pipeline), nominal)
    figures = {**write_again(group, folder), **measured(reads, times=5)}
    return {
        way.strip(): {k.removeprefix(way): v for k, v in figures.items() if k.startswith(way)}
        for way in reads
    }


def codecs(quick: bool) -> dict[str, dict[str, float]]:
    """Compressors and sizes of inner chunks: ratio, and MB of values per CPU second, with CRC."""
    random, n = np.random.default_rng(0), 2**22 if quick else 2**24
    margin = random.standard_normal(n).astype(np.float32)
    ten = random.integers(0, 10, n).astype(np.uint8)
    kinds = {"margins": margin, "labels of 2": (margin >= 0).astype(np.uint8), "labels of 10": ten}
    packed = partial(Blosc, clevel=5, shuffle=Blosc.BITSHUFFLE)
    compressors = {
        "none": None,
        "lz4, bits shuffled": packed("lz4"),
        "zstd, bits shuffled": packed("zstd"),
        "zstd": Zstd(1),
    }
    results = {
        f"{kind}, {name}, 1 MiB": codec(values, compressor, 2**20)
        for kind, values in kinds.items()
        for name, compressor in compressors.items()
    }
    for size in (2**14, 2**16, 2**18, 2**22):
        results[f"margins, none, {size // 1024} KiB"] = codec(margin, None, size)
    return results


def codec(values: np.ndarray, compressor: Any, size: int) -> dict[str, float]:
    step = size // values.itemsize
    parts = [values[first : first + step] for first in range(0, len(values), step)]
    encoded: list[Any] = []

    def encode() -> None:
        for part in parts:
            body = part.tobytes() if compressor is None else compressor.encode(part)
            encoded.append((body, google_crc32c.value(body)))

    def decode() -> None:
        into = np.empty_like(values)
        for place, (body, crc) in enumerate(encoded):
            assert google_crc32c.value(body) == crc
            target = into[place * step : (place + 1) * step]
            if compressor is None:
                target[:] = np.frombuffer(body, values.dtype)
            else:
                compressor.decode(body, out=target)

    wrote, read = timed(encode)[1], timed(decode)[1]
    return {
        "ratio": values.nbytes / sum(len(body) for body, _ in encoded),
        "write_MB_per_cpu_s": values.nbytes / wrote / 1e6,
        "read_MB_per_cpu_s": values.nbytes / read / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer runs: under a minute")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--folder", type=Path, help="on the disk to be measured")
    options = parser.parse_args()
    results = {"codecs": codecs(options.quick)}
    for points, n_runs in ((1000, 2000), (17_900, 300)) if options.quick else SIZES:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            title = f"{n_runs:,} runs of {points:,} points"
            results[title] = same_files(Path(folder), points, n_runs)
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        show(results)
        if importlib.util.find_spec("zarrs") is None:
            print("\nzarrs: skipped: zarrs is not installed")


if __name__ == "__main__":
    main()
