"""Make the small stores that must stay readable; each only once, then it is committed.

Each zip holds ``predictions.zarr``, ``journals`` and ``expected.npz``, every array's values.
"""

import io
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from manyseed.orchestrator.store.coordinates import TRAIN_ACCURACY
from manyseed.orchestrator.store.reader import read_array, read_rows
from manyseed.orchestrator.store.shards import publish
from tests.orchestrator.store.world import NUMBER, World, spec, values

STORES = {
    "binary-margin": spec(2),
    "multiclass-all": spec(3, scores="all"),
    "multiclass-margin": spec(5),
    "float16-all": spec(3, scores="all", dtype="float16"),
    "labels-of-300": spec(300, scores="none"),
    "curves": spec(3, curves=True),
    "train-accuracy": spec(2, optional=(TRAIN_ACCURACY.of(),)),
}


def file_of(name: str) -> Path:
    """Return the zip of a store, in the folder of its layout."""
    layout = STORES[name].to_attributes()["layout"]
    return Path(__file__).parent / f"layout-{layout}" / f"{name}.zip"


def make(name: str, folder: Path) -> None:
    """Ten planned rows in shards of four: finished ones, a copy, missing ones, padding."""
    world = World(folder, STORES[name])
    world.write_splits()
    world.finish(0, 1, 2, 5, 8)
    with world.journal() as journal:
        journal.append_copy(NUMBER, 3, 1)
    for shard in range(3):
        publish(world.group, shard, world.index(), world.watch)
    world.finish(6)  # only a journal holds it
    names = [array.name for array in world.spec.arrays]
    expected = {array: read_array(world.group, array) for array in names}
    predictions = [array.name for array in world.spec.arrays if array.role == "prediction"]
    for row, original in {0: 0, 1: 1, 2: 2, 3: 1, 5: 5, 8: 8}.items():
        stored = read_rows(world.group, predictions, [row])
        trained = values(world.spec, original)
        assert b"".join(stored[array].tobytes() for array in predictions) == (
            b"".join(trained.parts(world.spec).values())
        )
    raw = np.frombuffer(b"".join(values(world.spec, 6).parts(world.spec).values()), np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **expected, row_6=raw)
    file_of(name).parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(file_of(name), "w", zipfile.ZIP_DEFLATED) as archive:
        for part in ("predictions.zarr", "journals"):
            for file in sorted((folder / part).rglob("*")):
                if file.is_file():
                    archive.writestr(
                        zipfile.ZipInfo(str(file.relative_to(folder))),
                        file.read_bytes(),
                        zipfile.ZIP_DEFLATED,
                    )
        archive.writestr(zipfile.ZipInfo("expected.npz"), buffer.getvalue(), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    for name in STORES:
        if file_of(name).exists():
            continue
        with tempfile.TemporaryDirectory() as folder:
            make(name, Path(folder))
