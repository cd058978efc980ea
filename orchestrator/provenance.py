"""How runs are made: the recipe, recorded with every result and never part of an identity.

Within one recipe, a run's predictions are the same bit for bit. A recipe is the form of training,
its threads and precision, the device class, and the versions of the packages that compute.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Any

from manyseed import jobs
from manyseed.jobs.hparams.kinds import Value
from manyseed.jobs.run import MachineError
from manyseed.jobs.training.handling import Precision, gpu_has_bf16
from manyseed.orchestrator.disk.placing import place_new, read_plain
from manyseed.orchestrator.disk.records import json_text, read_record
from manyseed.orchestrator.errors import DamagedFile
from manyseed.orchestrator.paths import GIVEN, RECIPE, recipe_file, recipe_mark

_PACKAGES = ("manyseed", "numpy", "scikit-learn", "scipy", "torch", "xgboost", "xgboost-cpu")
_REMEDY = (
    "restore it from a copy of the sweep, or remove it: then it is unknown how its runs were made"
)
_INSTRUCTION_SETS = ("avx512f", "avx2", "avx", "asimd", "sve")
_BF16_SETS = frozenset(("avx512_bf16", "amx_bf16", "bf16"))  # the last of ARM
FLOAT32: Precision = "float32"
BF16: Precision = "bf16"
NO_BF16 = "this processor lacks instructions for bfloat16 (AVX512-BF16, AMX, or ARM's bf16)"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How runs were made; unknown facts, such as those of imported runs, are None.

    `form`: sequential, stacked or imported. `packages`: versions by name. `tuned`: results of
    searches: hparams of tuned cells, and the scale of a posterior. `own`: by `code_key`, what
    distinguishes users' own code from other code of that name and version. `code`: digest of
    manyseed's code that trains, if installed in editable mode; also None in recipes from before it
    was recorded. `members`: how many runs were trained at once, if stacked: a run's last bits
    depend on this and on its place among them. `halved_from`: how many should have been, if memory
    did not suffice for them; changes no bit.
    """

    form: str | None = None
    threads: int | None = None
    precision: str | None = None
    device: str | None = None
    device_class: str | None = None
    python: str | None = None
    packages: Mapping[str, str] | None = None
    tuned: Mapping[str, Value] | None = None
    own: Mapping[str, str] | None = None
    code: str | None = None
    members: int | None = None
    halved_from: int | None = None

    @classmethod
    def here(cls, gpu: str | None = None) -> Recipe:
        """Return the recipe of fits on this machine's CPU, or on its GPU of this model."""
        return cls(
            form="sequential",
            threads=1,
            precision=FLOAT32,
            device="gpu" if gpu else "cpu",
            device_class=gpu or cpu_class(),
            python=platform.python_version(),
            packages=package_versions(),
            code=code_digest(),
        )

    def of_form(self, members: int, precision: Precision, halved_from: int | None = None) -> Recipe:
        """Return the recipe of fits of which so many are trained at once, in this precision."""
        recipe = replace(self, precision=precision, halved_from=halved_from)
        return recipe if members == 1 else replace(recipe, form="stacked", members=members)

    @property
    def where(self) -> str:
        """The device in words, with the precision if that is not float32."""
        products = ", products in bfloat16" if self.precision == BF16 else ""
        return f"{self.device} ({self.device_class}{products})"

    @property
    def machine(self) -> bytes:
        """What all runs of a machine have in common, whatever they train, as JSON."""
        return json_text(
            replace(
                self,
                **dict.fromkeys(("form", "members", "halved_from", "precision", "tuned", "own")),
            ).to_json()
        )

    def changes(self, now: Recipe) -> dict[str, tuple[object, object]]:
        """Return the fields in which `now` differs: by name, the values here and in `now`."""
        pairs = {name: (getattr(self, name), value) for name, value in now.to_json().items()}
        if self.code is None:
            pairs.pop("code", None)
        return {name: (before, after) for name, (before, after) in pairs.items() if before != after}

    def to_json(self) -> dict[str, object]:
        """Return the known fields as JSON values."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def code_key(canonical: Mapping[str, Any]) -> str:
    """Return a recipe's key for users' own code: all that its table names, and its version."""
    from manyseed.jobs.own.table import entries_of  # imported only if there is such code

    return f"{'+'.join(entries_of(canonical))}@{canonical['version']}"


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that compute."""
    return dict(_package_versions())


@cache
def _package_versions() -> dict[str, str]:
    versions = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


@cache
def code_digest() -> str | None:
    """Return a digest of the code that trains; None if installed as a release, not editable."""
    try:
        origin = json.loads(distribution("manyseed").read_text("direct_url.json") or "")
        is_edited = origin["dir_info"].get("editable", False)
    except (PackageNotFoundError, ValueError, KeyError):
        return None
    return folder_digest(Path(jobs.__file__).resolve().parent) if is_edited else None


@dataclass(frozen=True, slots=True)
class CodeState:
    """manyseed's code as installed here.

    `training`: digest of what trains, as in recipes. Of a checkout also the `commit`, and
    `changes`, the SHA-256 of the difference from it, if there is any; else both are empty.
    """

    version: str
    training: str
    commit: str = ""
    changes: str = ""


def code_here() -> CodeState:
    """Return the state of the code that runs; without git, only version and digest."""
    import subprocess  # for a receipt alone

    folder = Path(jobs.__file__).resolve().parent
    commit = changes = b""
    if (folder.parent / ".git").exists():
        git = ("git", "-C", str(folder.parent))
        with suppress(OSError, subprocess.SubprocessError):
            head = subprocess.check_output([*git, "rev-parse", "HEAD"], stderr=subprocess.DEVNULL)
            diff = ("diff", "--binary", "--no-ext-diff", "--no-textconv", "HEAD")
            changes = subprocess.check_output([*git, *diff], stderr=subprocess.DEVNULL)
            commit = head.strip()
    return CodeState(
        version("manyseed"),
        folder_digest(folder),
        commit.decode(),
        hashlib.sha256(changes).hexdigest() if commit and changes else "",
    )


def folder_digest(folder: Path) -> str:
    """Return the SHA-256 over the names and contents of a folder's modules."""
    whole = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        each = hashlib.sha256(file.read_bytes()).hexdigest()
        whole.update(f"{each}  {file.relative_to(folder).as_posix()}\n".encode())
    return f"sha256:{whole.hexdigest()}"


def cpu_class() -> str:
    """Return the CPU's model and its widest known instruction set."""
    fields, flags = _processor()
    model = fields.get("model name") or platform.processor() or platform.machine()
    widest = next((name for name in _INSTRUCTION_SETS if name in flags), "")
    return f"{model} {widest}".strip()


def has_bf16() -> bool:
    """Return whether the CPU has instructions that multiply matrices in bfloat16."""
    return not _BF16_SETS.isdisjoint(_processor()[1])


def require_bf16(*, on_gpu: bool) -> None:
    """Raise MachineError if the device that trains cannot multiply matrices in bfloat16."""
    if on_gpu and not gpu_has_bf16():
        raise MachineError('this GPU lacks bfloat16, which precision = "bf16" needs')
    if not on_gpu and not has_bf16():
        raise MachineError(f'{NO_BF16}, which precision = "bf16" needs')


def _processor() -> tuple[dict[str, str], list[str]]:
    """Return what the system says of the first core, and the instruction sets that it has."""
    fields: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    return fields, (fields.get("flags") or fields.get("Features") or "").split()


def register(folder: Path, recipe: Recipe, used: Callable[[], int] = lambda: 0) -> int:
    """Return the number of a recipe; a new recipe is recorded under the next number.

    Any number of processes may register at once. `used` is as in `keep_numbers`.
    """
    while True:
        highest, known = keep_numbers(folder, used), read_recipes(folder)
        number = next((number for number, other in known.items() if other == recipe), None)
        if number is None:
            number = max([highest, *known]) + 1
            try:
                place_new(recipe_file(folder, number), json_text(recipe.to_json()))
            except FileExistsError:  # another process was first
                continue
        if number > highest:
            _mark(folder, number)
        return number


def keep_numbers(folder: Path, used: Callable[[], int]) -> int:
    """Return the highest number that a recipe was ever given, and mark it as given.

    Runs are stored with only the number of their recipe, whose file may get lost. So that no number
    is given twice, a file beside the recipes marks each. It holds the SHA-256 of the recipe's file
    in hexadecimal digits; marks of earlier versions are empty.

    `used`: returns the highest number that a run has; called if nothing is marked, as in sweeps of
    earlier versions.
    """
    marked = _numbers(folder, GIVEN)
    if not marked:
        marked = [max([used(), *_numbers(folder, RECIPE)])]
        _mark(folder, marked[0])
    return max(marked)


def read_recipe(folder: Path, number: int) -> Recipe:
    """Return a recipe that runs have."""
    file, mark = recipe_file(folder, number), recipe_mark(folder, number)
    try:
        recipe = read_record(file, Recipe, _REMEDY)
        digest = _digest(file)
    except FileNotFoundError:
        raise DamagedFile(file, "is absent") from None
    try:
        marked = read_plain(mark)
    except FileNotFoundError:
        return recipe
    if marked not in (b"", digest):
        raise DamagedFile(file, f"is not the recipe that {mark} was written for", _REMEDY)
    return recipe


def read_recipes(folder: Path) -> dict[int, Recipe]:
    """Return all recorded recipes by number; raises like `read_recipe`."""
    return {number: read_recipe(folder, number) for number in _numbers(folder, RECIPE)}


def lost_recipes(folder: Path) -> list[Path]:
    """Return the files of recipes that have a mark but are absent."""
    marks = (recipe_mark(folder, number) for number in _numbers(folder, GIVEN))
    files = (mark.with_suffix(RECIPE) for mark in marks if mark.stat().st_size)
    return [file for file in files if not file.exists()]


def _numbers(folder: Path, suffix: str) -> list[int]:
    stems = (file.stem for file in folder.glob(f"[0-9]*{suffix}"))
    return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdecimal())


def _digest(file: Path) -> bytes:
    return hashlib.sha256(read_plain(file)).hexdigest().encode()


def _mark(folder: Path, number: int) -> None:
    try:
        digest = _digest(recipe_file(folder, number))
    except (FileNotFoundError, DamagedFile):
        digest = b""
    with suppress(FileExistsError):
        place_new(recipe_mark(folder, number), digest)


def packages_of(versions: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return packages as entities of a receipt."""
    return [
        {
            "@id": f"https://pypi.org/project/{name}/{version}/",
            "@type": "SoftwareApplication",
            "name": name,
            "softwareVersion": version,
        }
        for name, version in versions.items()
        if name != "manyseed"
    ]
