"""Users' own code: found and probed once for each table, or registered by a program."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from manyseed.jobs.checks import Refused, expanded
from manyseed.jobs.datasets.parts import TEST_FILE
from manyseed.jobs.datasets.tablefile import WORKING_FOLDER
from manyseed.jobs.run import Json, canonical_json, text_identity
from manyseed.orchestrator.calls import checked
from manyseed.orchestrator.errors import UserError, require_one_of

if TYPE_CHECKING:
    from manyseed.jobs.classifiers import ClassifierInfo
    from manyseed.jobs.datasets import DatasetInfo
    from manyseed.jobs.own.findings import Findings
    from manyseed.jobs.own.table import Own


_SILENT_SECONDS = 5.0


@contextmanager
def _told(text: str) -> Iterator[None]:
    """Say on standard error what is waited for, once it takes long."""
    timer = threading.Timer(_SILENT_SECONDS, lambda: print(text, file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


_PROBED: dict[tuple[str, str], Findings] = {}
"""Findings of this process by table and digest of the code, as `run` plans twice."""


_RETURNED: dict[tuple[str, str, str], Mapping[str, Any]] = {}
"""The same for functions that return data; also by their folder, as they may read files in it."""


@dataclass(frozen=True, slots=True)
class Pin:
    """The findings about the code of a table.

    `entry`: the entry point that the table names. `root`: the folder of its local modules; empty
    for an installed library. `digest`: digest of the code that was probed
    (`jobs.own.copies.Code.digest`). `findings`: the fields of `jobs.own.findings.Findings`; for a
    function that returns data, those of `jobs.own.findings.Returned`.
    """

    entry: str
    root: str
    digest: str
    findings: Mapping[str, Any]


def placed(given: Mapping[str, Any], sweep: Path | None) -> dict[str, Any]:
    """Return a dataset's source and options with its files where they are.

    Paths start at the working folder. Where that lacks a file, a sweep that was planned may have it
    beside its directory `sweep`: by default this is made in the working folder.
    """
    found = dict(given)
    for key, kind in (("source", "file:"), (TEST_FILE, "")):
        name = found.get(key)
        if sweep is None or not isinstance(name, str) or not name.startswith(kind):
            continue
        path = expanded(name.removeprefix(kind))
        beside = sweep.absolute().parent / path
        if not exists(path) and exists(beside):
            found[key] = f"{kind}{beside}"
    return found


def lying(error: Refused) -> str | None:
    """Say from where to call a command again that found no file of a sweep's data; or None."""
    if WORKING_FOLDER not in error.reason:
        return None
    name = str(error.value).removeprefix("file:")
    return f"call this from the folder that holds {name}: the one that it was planned in"


def exists(file: Path) -> bool:
    """Return whether there is such a file; none has a name that no file can have."""
    try:
        file.stat()
    except (OSError, ValueError):
        return False
    return True


class OwnCode:
    """Finds users' code, and probes it unless its findings are known.

    `roots`: folders in which local modules are looked for. `pins`: known findings, which hold while
    the code is unchanged or if it can no longer be found. `is_probing`: whether to look for
    classifiers at all; if not, their findings are left open. `is_calling`: whether code may be
    imported; if not, only known findings are used, as for reading a sweep that may be a stranger's.
    `sweep`: the directory of the planned sweep whose own file names the code, if it is one's.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        pins: Mapping[str, Pin],
        *,
        is_probing: bool = True,
        is_calling: bool = True,
        sweep: Path | None = None,
    ) -> None:
        self._roots, self._pins, self.sweep = roots, pins, sweep
        self._is_probing, self._is_calling = is_probing, is_calling
        self.used: dict[str, Pin] = {}
        self.notes: dict[str, Sequence[str]] = {}

    @classmethod
    def beside(
        cls, sweep_file: Path, pins: Mapping[str, Pin] | None = None, sweep: Path | None = None
    ) -> OwnCode:
        """Look beside a sweep file, where code was found earlier, and in the working folder."""
        before = [Path(pin.root) for pin in (pins or {}).values() if pin.root]
        roots = [sweep_file.absolute().parent, *before, Path.cwd()]
        return cls(roots, pins or {}, sweep=sweep)

    def of_data(self) -> OwnCode:
        """Return a finder of functions that return data, which ignores classifiers."""
        return OwnCode(self._roots, self._pins, is_probing=False, sweep=self.sweep)

    def as_planned(self) -> OwnCode:
        """Return a finder that takes all code as it was planned and imports none."""
        return OwnCode(self._roots, self._pins, is_calling=False, sweep=self.sweep)

    def data(self, entry: object, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the data that a function returned: the fields of `jobs.own.findings.Returned`.

        The function is called if its code or arguments are new, or if the data is no longer kept.
        """
        from manyseed.jobs.own import copies, findings

        params, version = options.get("params", {}), options.get("version", 1)
        findings.require_named(entry, params, version)
        name = str(entry)
        key = text_identity(canonical_json({"data": name, "version": version, "params": params}))
        if key in self.used:
            return self.used[key].findings
        known = self._pins.get(key)
        if known is not None and not Path(str(known.findings["kept"])).is_file():
            known = None
        if not self._is_calling:
            if known is None:
                reason = "its data is not on this machine: manyseed plan --fetch calls it"
                raise Refused("data", name, reason)
            return known.findings
        try:
            code = copies.find_modules("data", [name], self._roots)
        except Refused:
            if known is None:
                raise
            self.used[key] = known
            return known.findings
        if known is not None and known.digest == code.digest:
            self.used[key] = known
            return known.findings
        root = str(code.root or "")
        if (key, code.digest, root) not in _RETURNED:
            _RETURNED[key, code.digest, root] = asdict(findings.loaded(name, params, code))
        returned = _RETURNED[key, code.digest, root]
        self.used[key] = Pin(name, root, code.digest, returned)
        return returned

    def resolve(
        self, name: str, options: Mapping[str, Any], dataset: DatasetInfo
    ) -> ClassifierInfo:
        """Resolve a table for a dataset."""
        from manyseed.jobs.own import record, table

        own = table.read(options, of_images=dataset.image is not None)
        record.require_suitable(own, dataset)
        findings = self._findings(own, dataset)
        self.notes[name] = findings.notes
        return record.resolve(name, options, dataset, findings)

    def refusal(self, options: Mapping[str, Any], dataset: DatasetInfo) -> str | None:
        """Return why the code of a table cannot be called; empty if it can, None if not known."""
        if not self._is_probing or not self._is_calling:
            return None
        try:
            OwnCode(self._roots, {}).resolve("", {**options, "probe": False}, dataset)
        except Refused as error:
            return error.reason
        return ""

    def _findings(self, own: Own, dataset: DatasetInfo) -> Findings:
        from manyseed.jobs.own import copies
        from manyseed.jobs.own.findings import Findings, probe

        if not self._is_probing:
            return Findings(scores="predict")
        keys = _keys(own, dataset)
        key = next((each for each in keys if each in self._pins), keys[0])
        if key in self.used:
            return Findings.from_json(self.used[key].findings)
        known = self._pins.get(key)
        if not self._is_calling:
            if known is None:
                raise Refused(own.form, own.entry, "is not the code that was planned")
            return Findings.from_json(known.findings)
        try:
            code = copies.find(own.form, own.entries, own.command, self._roots)
        except Refused:
            if known is None:
                raise
            self.used[key] = known
            return Findings.from_json(known.findings)
        if known is not None and known.digest == code.digest:
            findings = Findings.from_json(known.findings)
        else:
            if (key, code.digest) not in _PROBED:
                with _told(f"Fitting {own.entry} to a few made-up rows."):
                    _PROBED[key, code.digest] = probe(own, code, dataset)
            findings = _PROBED[key, code.digest]
        self.used[key] = Pin(own.entry, str(code.root or ""), code.digest, asdict(findings))
        return findings


def _keys(own: Own, dataset: DatasetInfo) -> list[str]:
    """Return the identity of what a probe depends on besides code, and those of earlier versions.

    These probed without missing values, and with columns of labels last; what they found holds.
    """
    from manyseed.jobs.own.findings import columns_of, labels_of, with_missing

    key = _key(own, dataset)
    keys, beside = [key], dict[str, Json]()
    if missing := with_missing(own, dataset):
        beside["missing"] = [*missing]
        keys.insert(0, text_identity(canonical_json({"key": key, **beside})))
    if own.encode == "raw" and dataset.n_categorical and (columns := columns_of(dataset)):
        beside["columns"] = [n_labels for _, n_labels in columns]
        keys.insert(0, text_identity(canonical_json({"key": key, **beside})))
    if labels := labels_of(own, dataset):
        named = [[name, of] for (name, _), of in zip(columns_of(dataset), labels, strict=True)]
        return [text_identity(canonical_json({"key": key, **beside, "frame": named}))]
    return keys


def _key(own: Own, dataset: DatasetInfo) -> str:
    """Return an identity of the table and the kind of data."""
    parts: dict[str, Json] = {
        "form": own.form,
        "entry": own.entry,
        "version": own.version,
        "params": dict(own.params),
        "space": own.declared,
        "hparams": {hparam.name: hparam.default for hparam in own.space},
        "encode": own.encode,
        "scores": own.scores,
        "seeds": None if own.seeds is None else dict(own.seeds),
        "probe": own.probe,
        **({"training": dict(own.training)} if own.training else {}),
        **own.command,
        "two": len(dataset.class_names) == 2,
        "image": dataset.image,
    }
    return text_identity(canonical_json(parts))


Made = TypeVar("Made", bound=Callable[..., Any])

FORMS = ("estimator", "train", "module")


@dataclass(frozen=True, slots=True)
class _Registered:
    made: Callable[..., Any]
    form: str
    options: Mapping[str, Any]


_BY_NAME: dict[str, _Registered] = {}


def _classifier(name: str, *, form: str | None = None, **options: Any) -> Callable[[Made], Made]:
    """Register a class or a function as a classifier; see `manyseed.classifier`."""
    if form is not None:
        require_one_of(form, FORMS, "unknown form", key="form")

    def register(made: Made) -> Made:
        before = _BY_NAME.get(name)
        if before is not None and _entry(before.made) != _entry(made):
            raise UserError(
                f"{_entry(before.made)} is already registered under this name",
                key="classifier",
                value=name,
                remedy=f"give {_entry(made)} another name",
            )
        default = "estimator" if inspect.isclass(made) else "train"
        _BY_NAME[name] = _Registered(made, form or default, options)
        return made

    return register


classifier = checked(_classifier, "manyseed.classifier")


def _entry(made: Any) -> str:
    return f"{made.__module__}:{made.__qualname__}"


def with_registered(
    sweep: Mapping[str, Any], describe: Callable[[Any], str], plain: Callable[[Any, str], Any]
) -> dict[str, object]:
    """Return a sweep with tables for the registered classifiers that its grids name.

    Keys that the sweep gives in a table of that name take precedence.

    `sweep`: the content of a sweep file. `describe`: takes a class or function, returns the
    ``"module:name"`` to import it by. `plain`: takes a value and its key, returns its form in a
    sweep file.
    """
    tables = sweep.get("classifier", {})
    if not isinstance(tables, Mapping):
        return {**sweep}
    tables = dict(tables)
    for name in _named(sweep):
        if (registered := _BY_NAME.get(name)) is None:
            continue
        options = {
            key: {inner: plain(each, f"{name}.{inner}") for inner, each in value.items()}
            if key == "params" and isinstance(value, Mapping)
            else value
            for key, value in registered.options.items()
        }
        made = {registered.form: describe(registered.made)}
        tables[name] = {**made, **options, **tables.get(name, {})}
    return {**sweep, "classifier": tables} if tables else {**sweep}


def _named(sweep: Mapping[str, Any]) -> Iterator[str]:
    for grid in grids_of(sweep):
        names = grid.get("classifier", ())
        if isinstance(names, Iterable):
            yield from (name for name in names if isinstance(name, str))


def grids_of(sweep: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the grids in the content of a sweep file, which may give a single one by itself."""
    grids = sweep.get("grid", ())
    listed = [grids] if isinstance(grids, Mapping) else grids
    if not isinstance(listed, list | tuple) or not all(isinstance(g, Mapping) for g in listed):
        remedy = 'such as: "grid": [{"dataset": ["sklearn:digits"], "classifier": ["mlp"]}]'
        raise UserError("must be a list of mappings", key="grid", remedy=remedy)
    return [*listed]
