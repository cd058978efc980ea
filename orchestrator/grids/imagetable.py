"""A table that names image files beside it, and the command that sorts them by class.

Images are read from a folder for each class: trained on the table, a classifier would learn from
the names of files.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from manyseed.jobs.checks import TABLES
from manyseed.jobs.datasets import csvfile
from manyseed.jobs.datasets.imagefolder import ENDINGS
from manyseed.orchestrator.errors import command, shell_word

if TYPE_CHECKING:
    import polars as pl

_SAMPLE = 100  # rows
_TRIED = 5  # tables of a folder
_NO_FEATURES = {"split", "part", "fold", "set", "subset", "width", "height", "size", "channels"}
"""What tables say of images besides their classes, in lower case."""


@dataclass(frozen=True)
class NamedImages:
    """Images in a folder that a column of a table names, with or without their ending."""

    table: Path
    column: str
    folder: Path
    ending: str
    sample: pl.DataFrame

    @property
    def has_header(self) -> bool:
        """Whether the column's own name is not that of an image."""
        return not (self.folder / f"{self.column}{self.ending}").is_file()

    def features(self, target: str) -> list[str]:
        """Return the columns that may say more of a row than which image it is."""
        found = []
        for values in self.sample:
            different = values.drop_nulls().n_unique()
            repeats = 1 < different < len(values) or (different > 1 and values.dtype.is_float())
            if repeats and values.name.lower() not in _NO_FEATURES:
                found.append(values.name)
        return [name for name in found if name not in (self.column, target)]

    def sorting(self, target: str) -> str:
        """Return the commands that copy the images into a folder for each class and read them."""
        out = Path(f"{self.folder.absolute().name}-classes")
        read = command("init", out)
        if out.exists():
            return f"they may be sorted already: {read}"
        return f"sort them by {target}:\n  {self._copying(target, out)}\n  then: {read}"

    def _copying(self, target: str, out: Path) -> str:
        """Return a command that copies each image into the folder of its class."""
        names, labels = (_texts(self.table, name) for name in (self.column, target))
        name, label = f"r[{self.column!r}]", f"r[{target!r}]"
        conditions = [label] if any(not one for one in labels) else []
        if self.table.suffix == ".parquet":
            modules, rows = "polars", f"polars.read_parquet({str(self.table)!r}).to_dicts()"
            name, label = f"str({name})", f"str({label})"
        else:
            modules, rows = "csv", _rows(self.table)
        if any(one != one.strip() for one in labels):
            label += ".strip()"
        if any("/" in one for one in labels):
            label += ".replace('/','-')"
        file = name + (f"+{self.ending!r}" if self.ending else "")
        to = "d"
        if any("/" in one for one in names):  # two of them may have the same last part
            to = f"d+'/'+({file}).replace('/','-')"
        source = f"{f'{self.folder}/'!r}+{file}"
        if not all((self.folder / f"{one}{self.ending}").is_file() for one in names):
            conditions.append(f"os.path.isfile({source})")
        only = f" if {' and '.join(conditions)}" if conditions else ""
        script = (
            f"import {modules},os,shutil; [(os.makedirs(d:={f'{out}/'!r}+{label},exist_ok=True), "
            f"shutil.copy({source},{to})) for r in {rows}{only}]"
        )
        return f"python -c {shell_word(script)}"


def named_images(table: Path) -> NamedImages | None:
    """Return the images that a column of a table names, if they are beside it."""
    if table.suffix not in TABLES or not table.is_file():
        return None
    try:
        sample = _read(table, _SAMPLE)
        folders = [table.parent, *sorted(each for each in table.parent.iterdir() if each.is_dir())]
    except Exception:  # reading it for itself says what is wrong
        return None
    for values in sample:
        names = [str(value) for value in values.drop_nulls().head(5)]
        if not names or values.dtype.is_float() or values.n_unique() < len(values) / 2:
            continue
        for folder in folders:
            for ending in ("", *ENDINGS):
                if _are_images(folder, names, ending):
                    return NamedImages(table, values.name, folder, ending, sample)
    return None


def tables_of_images(folder: Path) -> Iterator[NamedImages]:
    """Yield the images that tables in a folder, or beside it, name."""
    above = folder.absolute().parent
    for place in (folder, above if folder.is_absolute() else Path(os.path.relpath(above))):
        tables: Sequence[Path] = []
        with suppress(OSError):
            tables = sorted(each for each in place.iterdir() if each.suffix in TABLES)
        for table in tables[:_TRIED]:
            found = named_images(table)
            if found is not None and (place == folder or found.folder.samefile(folder)):
                yield found


def _are_images(folder: Path, names: Sequence[str], ending: str) -> bool:
    files = [folder / f"{name}{ending}" for name in names]
    with suppress(OSError, ValueError):  # such as for a text that is too long for a name
        return 2 * sum(each.suffix.lower() in ENDINGS and each.is_file() for each in files) > len(
            files
        )
    return False


def _read(table: Path, n_rows: int | None = None, labels: Sequence[str] = ()) -> pl.DataFrame:
    import polars as pl

    if table.suffix == ".parquet":
        return pl.read_parquet(table, n_rows=n_rows)
    return csvfile.read(table.read_bytes(), table.suffix, labels, n_rows=n_rows)


def _texts(table: Path, column: str) -> list[str]:
    """Return a column's values as text, empty where missing."""
    values = _read(table, labels=[column])[column].to_list()
    return ["" if value is None else str(value) for value in values]


def _rows(table: Path) -> str:
    """Return the expression that reads the rows of a CSV or TSV as mappings."""
    content = table.read_bytes()
    has_mark = content.startswith(codecs.BOM_UTF8)
    is_wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    encoding = ",encoding='utf-8-sig'" if has_mark else ",encoding='utf-16'" if is_wide else ""
    header = content.decode("utf-16" if is_wide else "utf-8", "replace").partition("\n")[0]
    separator = next((one for one in (",", ";", "\t") if one in header), ",")
    separator = "\t" if table.suffix == ".tsv" else separator
    by = {",": "", ";": ",delimiter=';'", "\t": ",dialect='excel-tab'"}[separator]
    return f"csv.DictReader(open({str(table)!r}{encoding}){by})"
