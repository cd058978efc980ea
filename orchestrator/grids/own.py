"""What is known of users' own code while a sweep file is resolved, asked once for each table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyseed.jobs.checks import Refused
from manyseed.jobs.identity import canonical_json, text_identity

if TYPE_CHECKING:
    from manyseed.jobs.classifiers import ClassifierInfo
    from manyseed.jobs.datasets import DatasetInfo
    from manyseed.jobs.own.findings import Findings
    from manyseed.jobs.own.table import Own


_PROBED: dict[tuple[str, str], Findings] = {}
"""By what a probe depends on, in this process: `run` plans twice."""


@dataclass(frozen=True, slots=True)
class Pin:
    """What was found out about the code of a table.

    Attributes
    ----------
    entry : str
        What the table names.
    root : str
        The folder of its local modules; empty for an installed library.
    digest : str
        Of the code that was probed (`jobs.own.modules.Code.digest`).
    findings : mapping
        As `jobs.own.findings.Findings.to_json` gives them.
    """

    entry: str
    root: str
    digest: str
    findings: Mapping[str, Any]


class OwnCode:
    """Finds users' code, and probes it where nothing is known of it yet.

    Parameters
    ----------
    roots : sequence of Path
        Folders that local modules are looked for in.
    pins : mapping of str to Pin
        What is known already; it holds while the code stays as it is, or cannot be found any more.
    is_probing : bool
        Whether code is looked for at all; else what would be found is left open.
    """

    def __init__(
        self, roots: Sequence[Path], pins: Mapping[str, Pin], *, is_probing: bool = True
    ) -> None:
        self._roots, self._pins, self._is_probing = roots, pins, is_probing
        self.used: dict[str, Pin] = {}
        self.notes: dict[str, Sequence[str]] = {}

    @classmethod
    def beside(cls, sweep_file: Path, pins: Mapping[str, Pin] | None = None) -> OwnCode:
        """Look beside a sweep file, where code was found before, and in the working folder."""
        before = [Path(pin.root) for pin in (pins or {}).values() if pin.root]
        return cls([sweep_file.absolute().parent, *before, Path.cwd()], pins or {})

    @classmethod
    def unseen(cls) -> OwnCode:
        """Look for nothing: for who asks about datasets alone."""
        return cls([], {}, is_probing=False)

    def resolve(
        self, name: str, options: Mapping[str, Any], dataset: DatasetInfo
    ) -> ClassifierInfo:
        """Resolve a table for a dataset.

        Raises
        ------
        jobs.checks.Refused
        jobs.classifiers.Unsuitable
        """
        from manyseed.jobs.own import record, table

        own = table.read(options, of_images=dataset.image is not None)
        record.require_suitable(own, dataset)
        findings = self._findings(own, dataset)
        self.notes[name] = findings.notes
        return record.resolve(name, options, dataset, findings)

    def _findings(self, own: Own, dataset: DatasetInfo) -> Findings:
        from manyseed.jobs.own import copies
        from manyseed.jobs.own.findings import Findings, probe

        if not self._is_probing:
            return Findings(scores="predict")
        key = _key(own, dataset)
        if key in self.used:
            return Findings.from_json(self.used[key].findings)
        known = self._pins.get(key)
        try:
            code = copies.find(own.form, own.entries, own.command, self._roots)
        except Refused:
            if known is None:
                raise
            self.used[key] = known
            return Findings.from_json(known.findings)
        if known is not None and known.digest == code.digest:
            found = Findings.from_json(known.findings)
        else:
            if (key, code.digest) not in _PROBED:
                _PROBED[key, code.digest] = probe(own, code, dataset)
            found = _PROBED[key, code.digest]
        root = "" if code.root is None else str(code.root)
        self.used[key] = Pin(own.entry, root, code.digest, found.to_json())
        return found


def _key(own: Own, dataset: DatasetInfo) -> str:
    """Return what a probe depends on besides the code: the table, and the kind of data."""
    asked: dict[str, Any] = {
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
    return text_identity(canonical_json(asked))
