"""Hostile bytes: damaged files, odd texts and wrong conditions for every verb that meets them.

A verb behaves if it ends by itself with one of the exit codes of `orchestrator.errors`, without a
traceback, a warning of a library or advice on a full disk. What is no condition is refused with
exit code 2 by every verb alike. Commands are called in this process. A longer campaign:

    python -m tests.orchestrator.hostile --tries 2000 --seed 7
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tests import here

SWEEP = """
name    = "h"
seed    = 1
repeats = 2
runs    = 4
keep    = { parameters = true }
tune    = { draws = 2 }

[[grid]]
dataset    = ["g"]
classifier = ["lr-sgd", "svm-sgd"]
hparams    = ["default", "tuned"]

[dataset.g]
source     = "synthetic:gaussian"
n_samples  = 60
n_features = 3
test       = 15
"""
PROFILE = 'partition = "p"\ntime = "1:00:00"\ncpus-per-task = 4\nmem = "4G"\n'


def predicted() -> dict[str, NDArray[Any]]:
    """Return scores of four runs and the true classes."""
    dice = np.random.default_rng(1)
    return {"scores": dice.normal(size=(4, 30, 3)), "y_true": dice.integers(0, 3, 30)}


VERBS = (
    *("status DIR", "verify DIR", "analyze DIR --resamples 10", "report DIR", "query DIR"),
    *("query DIR -t ensembles", "answers DIR", "howmany DIR --draws 10", "compact DIR"),
    *("logs DIR", "show DIR 0:0:0", "rerun DIR 0:0:0", "variance DIR", "export DIR -o OUT.zip"),
    *("respond DIR --transforms intra --rows 5 --workers 1", "cancel DIR", "verify DIR --repair"),
    *("drop DIR --dry-run --where cell=0", "plan OUT.toml --out DIR --dry-run"),
    *("status DIR --usage", "status DIR 0:0:0", "answers DIR points --why", "methods DIR"),
    *("seal DIR", "verify DIR --sealed", "split DIR --where cell=0 --out OUT", "merge DIR part"),
    *("merge whole DIR", "plan OUT.toml --out DIR --dry-run --budget 1coreh", "tune DIR"),
    "plan OUT.toml --out DIR --dry-run --cluster p.toml",
)
WHERE = (
    *("query DIR -t runs -w", "rerun DIR --save OUT --where", "drop DIR --dry-run --where"),
    *("respond DIR --where", "compare DIR --where", "compare DIR --b TRUE --a", "dee DIR --where"),
    *("howmany DIR --draws 10 --where", "howmany DIR --until 0.01 --dry-run --where"),
    *("variance DIR --where", "plot DIR accuracy -o OUT.pdf --where", "resume DIR --only"),
    *(
        "submit DIR --only",
        "query DIR -w",
        "split DIR --out OUT --where",
        "plan OUT.toml --dry-run --set keep.parameters=",
    ),
)
"""Verbs that take a condition, which follows."""
CONDITIONS = (
    *("cell", "classifier", "1", "'x'", "NULL", "cell AND TRUE", "classifier AND TRUE", "NOT cell"),
    *("classifier > 1", "cell = 'x'", "abs(classifier) = 1", "length(cell) = 1", "cell IN ('x')"),
    *("classifier IN (1)", "cell BETWEEN 'a' AND 'b'", "-classifier < 1", "cell LIKE 'x'"),
    *(
        "upper(cell) = 'A'",
        "cell +",
        "nothing = 1",
        "",
        "(" * 99,
        "cell = " + "9" * 99,
        "\x00",
        "é",
    ),
)
"""What is no condition of any table that has cells and classifiers."""

TEXTS: dict[str, bytes] = {
    "Latin-1": b"# caf\xe9\n",
    "UTF-16": "name = 1\n".encode("utf-16"),
    "NUL": b"a = 1\x00\n",
    "half a character": b'a = "\xc3"\n',
    "a surrogate": b'a = "\xed\xa0\x80"\n',
    "empty": b"",
    "lists": b"a = " + b"[" * 4000,
    "closed lists": b"a = " + b"[" * 4000 + b"]" * 4000,
    "tables": b"a = " + b"{a = " * 4000,
    "a long key": b"a" + b".a" * 4000 + b" = 1\n",
    "a long number": b"a = " + b"9" * 9000 + b"\n",
    "JSON lists": b'{"a": ' + b"[" * 90_000,
    "JSON null": b"null",
    "JSON list": b"[1]",
}
"""Texts in place of any small file, or before its own text."""

TAKERS = (
    *("plan h.toml --dry-run --budget", "import a.npz --out made --name", "docs", "answers DIR"),
    *("import . --out made --name", "query DIR -t", "query DIR --by", "answers DIR points"),
    *(
        "plan h.toml --dry-run --walltime",
        "merge whole",
        "show DIR",
        "logs DIR",
        "init",
        "plot DIR",
    ),
    *("import a.npz --out made --map", "import a.npz --out made --key", "seal DIR --terms"),
    *("import a.npz --out made --columns", "import a.npz --out made --classifier"),
    *("resume DIR --memory", "submit DIR --cluster", "cluster check", "verify DIR --sealed"),
    "plan h.toml --dry-run --cluster",
)
"""Verbs that take a word, which follows."""
WORDS = (
    *("", " ", "é", "{", "}", "{run}", "{nothing}", "{run}{run}", "{classifier}{run}", "{run}/*"),
    *("-1", "9" * 5000, "0gpuh", "-1coreh", "1e999gpuh", "nangpuh", "1GB,2GB", "\u00b2coreh", "/"),
    *("..", "*" * 300, "[", "(?P<a>", "\n", "\udcff", "a" * 300, "a=b=c", "=", ",", "%s", "1:2:3"),
    *("0:0:99", "99:0:0", ":", "\u202e"),
)
"""Words that few verbs can use."""

ENVIRONMENT = (
    *("TERM", "LANG", "HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "TMPDIR"),
    *("MANYSEED_DATA", "MANYSEED_LEASE_SECONDS", "MANYSEED_CHECKPOINT_SECONDS", "USER", "SHELL"),
    *("SLURM_CONF", "SLURM_JOB_ID", "SLURM_CPUS_ON_NODE", "CUDA_VISIBLE_DEVICES", "TORCH_HOME"),
    *("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS", "MPLBACKEND", "NO_COLOR"),
)
ODD = ("", " ", "\udcff\udcfe", "x", "-1", "0", "1e400", "\u00b2", "9" * 5000, "/nowhere", "{}")
"""Values of variables."""

SURROUNDED = ("status DIR", "submit DIR", "plan h.toml --dry-run", "analyze DIR --resamples 10")

VALUES: tuple[Any, ...] = (None, "x", -1, 2**70, 1.5, True, [], {}, [None], "é" * 300)
BYTES = ("deleted", "empty", "cut", "a bit", "garbage", "a folder", "a dangling link")
_NONE: Mapping[str, str] = {}
_NOT_SO = ("Traceback", "panicked", "Warning:", "Result::unwrap", "make room", "give permission")
_SEES_JSON = (".json", ".jsonl")


@dataclass(frozen=True)
class Misbehaved:
    """A call that misbehaved: what was done before, the command, its exit code and words."""

    done: str
    words: tuple[str, ...]
    code: int
    told: str

    def __str__(self) -> str:
        words = " ".join(word[:60] for word in self.words)
        return f"{self.done}: {words}: exit {self.code}: {self.told[-600:]}"


class Campaign:
    """Copies of a sweep and of an import to damage, in a folder.

    Parameters
    ----------
    folder : Path
        Empty; the sweeps are made there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.found = folder, list[Misbehaved]()
        (folder / "h.toml").write_text(SWEEP)
        (folder / "p.toml").write_text(PROFILE)
        arrays = predicted()
        np.savez(folder / "a.npz", **arrays)
        names = np.array(["a", "b", "c"])
        np.savez_compressed(folder / "packed.npz", **arrays, class_names=names)
        np.save(folder / "a.npy", arrays["scores"])
        np.save(folder / "y.npy", arrays["y_true"])
        labels = pl.DataFrame({"row_id": range(40), "prediction": ["a", "b"] * 20})
        labels.with_columns(truth="prediction").write_parquet(folder / "a.parquet")
        for words in (
            ("plan", "h.toml", "--out", "trained"),
            ("tune", "trained", "--cluster", "local"),
            ("submit", "trained", "--cluster", "local", "--workers", "1"),
            ("analyze", "trained", "--resamples", "10"),
            ("howmany", "trained", "--sizes", "1,2", "--draws", "10"),
            ("report", "trained"),
            ("import", "a.npz", "--out", "imported", "--dataset", "d", "--classifier", "c"),
            ("analyze", "imported", "--resamples", "10"),
            ("export", "imported", "-o", "labels.parquet"),
            ("export", "imported", "-o", "s.zip"),
            ("plan", "h.toml", "--out", "whole"),
            ("split", "whole", "--where", "cell = 0", "--out", "part"),
        ):
            code, told = self._call(*words)
            assert code == 0, (words, told)
        self.sweeps = {name: folder / name for name in ("trained", "imported")}

    def _call(self, *words: str, env: Mapping[str, str] = _NONE) -> tuple[int, str]:
        """Call a command; the exit code is 99 if it raised."""
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            try:
                env = {"MANYSEED_LEASE_SECONDS": "4", **env}
                done = here.call(*words, cwd=self.folder, env=env)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                return 99, traceback.format_exc()
        return done.returncode, done.output

    def tell(
        self,
        done: str,
        words: str,
        *more: str,
        codes: range | tuple[int, ...],
        env: Mapping[str, str] = _NONE,
    ) -> None:
        """Call a command, DIR and OUT replaced, and note it if it misbehaves."""
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        (out / "o.toml").write_text(SWEEP)
        given = [word.replace("DIR", "copy").replace("OUT", "out/o") for word in words.split(" ")]
        if given[-1].endswith("="):  # a key, to which the text belongs
            more = (given.pop() + json.dumps(more[0], ensure_ascii=False),)
        code, told = self._call(*given, *more, env=env)
        if code not in codes or any(word in told for word in _NOT_SO):
            self.found.append(Misbehaved(done, (*given, *more), code, told))

    def copy(self, name: str) -> Path:
        """Return a fresh copy of a sweep."""
        target = self.folder / "copy"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.sweeps[name], target, symlinks=True)
        return target

    def files(self, name: str) -> list[str]:
        """Return the files of a sweep and the folders of its groups, relative to it."""
        root = self.sweeps[name]
        files = [file for file in root.rglob("*") if file.is_file()]
        groups = list(root.glob("predictions.zarr/*/*/"))
        return sorted(path.relative_to(root).as_posix() for path in (*files, *groups))

    def damage_one(self, dice: random.Random) -> None:
        """Damage one file, or lose one group, and call a verb."""
        name = dice.choice([*self.sweeps])
        target = self.copy(name)
        path = dice.choice(self.files(name))
        how = damage(target / path, dice)
        words = dice.choice(VERBS)
        self.tell(f"{name}/{path}, {how}", words, codes=range(5))

    def text_one(self, name: str, reader: str) -> None:
        """Give a text to one of the readers of small files."""
        text, file = TEXTS[name], self.folder / "odd.toml"
        own = {"profile": PROFILE, "checked profile": PROFILE, "sweep file": SWEEP}
        whole = own.get(reader, "")
        for content in {text, text + whole.encode()}:
            file.write_bytes(content)
            for extra in (".csv", ".npz", ".parquet", ".zip", ".npy"):
                file.with_suffix(extra).write_bytes(content)
            codes = (2,) if content == text else (0, 2)
            if reader == "profile":
                self.tell(f"{reader} {name}", "submit DIR --cluster odd.toml", codes=(0, 2, 4))
            elif reader == "checked profile":
                with mock.patch.dict("os.environ", {"PATH": "/nowhere"}):
                    self.tell(f"{reader} {name}", "cluster check odd.toml", codes=(2, 4))
            elif reader == "map of an import":
                words = "import a.npz --out out/i --map odd.toml"
                self.tell(f"{reader} {name}", words, codes=(0, 2))
            elif reader == "sweep file":
                self.tell(f"{reader} {name}", "plan odd.toml --dry-run", codes=codes)
            elif reader == "import":
                for extra in ("csv", "npz", "parquet", "zip", "npy"):
                    self.tell(f"{reader} {name}", f"import odd.{extra} --out out/i", codes=(2,))
            elif reader == "runs of an import":
                words = "import a.npz --out out/i --runs odd.csv"
                self.tell(f"{reader} {name}", words, codes=(2,))
            elif reader == "truth of an import":
                words = "import a.npz --out out/i --truth odd.npy"
                self.tell(f"{reader} {name}", words, codes=(2,))
            elif reader == "setting":
                setting = content.decode(errors="replace").replace("\x00", "").strip()
                self.tell(f"{reader} {name}", "plan h.toml --dry-run --set", setting, codes=(2,))
            else:
                (self.copy("trained") / "sweep.toml").write_bytes(content)
                for words in ("status DIR", "report DIR", "howmany DIR --until 0.01 --dry-run"):
                    self.tell(f"{reader} {name}", words, codes=range(5))

    def import_one(self, dice: random.Random) -> None:
        """Damage bytes of a file of predictions, and import it."""
        name = dice.choice(("a.npz", "packed.npz", "a.npy", "a.parquet", "labels.parquet", "s.zip"))
        content = bytearray((self.folder / name).read_bytes())
        for _ in range(dice.choice((1, 1, 2, 8))):
            # most places that readers believe are at both ends
            ends = (dice.randrange(200), -1 - dice.randrange(200), dice.randrange(len(content)))
            content[dice.choice(ends) % len(content)] = dice.randrange(256)
        content = content[: dice.choice((len(content),) * 5 + (dice.randrange(len(content)),))]
        file = (self.folder / name).with_stem("odd")
        file.write_bytes(content)
        truth = " --truth y.npy" if file.suffix == ".npy" else ""
        made = self.folder / "made"
        shutil.rmtree(made, ignore_errors=True)
        self.tell(f"damaged {name}", f"import {file.name} --out made{truth}", codes=(0, 2))
        if made.is_dir():
            self.tell(f"imported from a damaged {name}", "verify made", codes=(0,))

    def word_one(self, words: str, word: str) -> None:
        """Give a word to a verb that can hardly use it."""
        shutil.rmtree(self.folder / "made", ignore_errors=True)
        with mock.patch.dict("os.environ", {"PATH": "/nowhere"}):
            self.tell("a word", words, word, codes=range(5))

    def surroundings_one(self, name: str, value: str, words: str) -> None:
        """Call a verb with an odd value of a variable."""
        self.tell(f"{name}={value[:20]!r}", words, codes=range(5), env={name: value})

    def condition_one(self, words: str, condition: str) -> None:
        """Give what is no condition to a verb."""
        with mock.patch.dict("os.environ", {"PATH": "/nowhere"}):
            self.tell("no condition", words, condition, codes=(2,))

    def fixed(self, dice: random.Random) -> None:
        """Try every condition, text, word and variable of the lists."""
        self.copy("trained")
        for words in WHERE:
            for condition in CONDITIONS:
                self.condition_one(words, condition)
        for reader in READERS:
            for name in TEXTS:
                self.text_one(name, reader)
        self.copy("trained")
        for words in TAKERS:
            for word in WORDS:
                self.word_one(words, word)
        for name in ENVIRONMENT:
            for value in ODD:
                self.surroundings_one(name, value, dice.choice(SURROUNDED))


READERS = (
    *("profile", "sweep file", "import", "runs of an import", "truth of an import", "setting"),
    *("sweep file of a sweep", "checked profile", "map of an import"),
)


def damage(path: Path, dice: random.Random) -> str:
    """Damage a file or a folder in one way; return in which."""
    if path.is_dir():
        shutil.rmtree(path)
        return "lost"
    content = path.read_bytes()
    kinds = [*BYTES, *(["a text"] if len(content) < 100_000 else [])]
    if path.name.endswith(_SEES_JSON):
        kinds += ["a value"] * 6
    kind = dice.choice(kinds)
    if kind == "a value":
        try:
            document = json.loads(content)
        except ValueError:
            document = None
        places = [*_places(document)]
        if places:
            (inner, key), value = dice.choice(places), dice.choice(VALUES)
            inner[key] = value
            if isinstance(document, dict):
                document.pop("crc32c", None)
            path.write_text(json.dumps(document))
            return f"{key} = {str(value)[:20]}"
        kind = "garbage"
    at = dice.randrange(len(content) + 1)
    path.unlink()
    match kind:
        case "empty":
            path.touch()
        case "cut":
            path.write_bytes(content[:at])
        case "a bit":
            changed = bytearray(content or b"\x00")
            changed[at % len(changed)] ^= 1 << dice.randrange(8)
            path.write_bytes(changed)
        case "garbage":
            path.write_bytes(dice.randbytes(len(content)))
        case "a text":
            name = dice.choice([*TEXTS])
            path.write_bytes(TEXTS[name])
            return name
        case "a folder":
            path.mkdir()
        case "a dangling link":
            path.symlink_to("nowhere")
    return kind


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container of a JSON value with each of its keys."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def main() -> None:
    """Run a campaign, and print what misbehaved."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    here.install()
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(Path(folder))
        dice = random.Random(given.seed)
        campaign.fixed(dice)
        for number in range(given.tries):
            dice.choice((campaign.damage_one, campaign.damage_one, campaign.import_one))(dice)
            if number % 100 == 99:
                print(f"{number + 1} tries, {len(campaign.found)} misbehaved", flush=True)
        for one in campaign.found:
            print(one, end="\n\n")
    sys.exit(1 if campaign.found else 0)


if __name__ == "__main__":
    main()
