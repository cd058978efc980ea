"""Check what is stored, and set wrong runs back to be trained again."""

from __future__ import annotations

from typing import Any

import numpy as np

from orchestrator.paths import SweepPaths
from orchestrator.store.arrays import COPY, DONE
from orchestrator.store.groups import list_groups
from orchestrator.store.lease import LeaseWatch
from orchestrator.store.reader import statuses
from orchestrator.store.repair import repair as repair_store
from orchestrator.store.verify import verify as verify_group


def verify(paths: SweepPaths, *, repair: bool) -> dict[str, Any]:
    """Check every published run of a sweep.

    Parameters
    ----------
    paths : SweepPaths
    repair : bool
        Take damaged runs from journals where these hold them, set the others back to missing.

    Returns
    -------
    dict
        As `Sweep.verify` says.
    """
    groups = list_groups(paths.store) if paths.store.exists() else []
    checked = sum(int(np.isin(statuses(group), (DONE, COPY)).sum()) for group in groups)
    findings = [finding for group in groups for finding in verify_group(group)]
    wrong = {(finding.group, row) for finding in findings for row in finding.rows}
    result: dict[str, Any] = {
        "runs_checked": checked,
        "runs_wrong": len(wrong),
        "findings": [
            {"group": f.group, "problem": f.problem, "rows": len(f.rows)} for f in findings
        ],
    }
    if repair and findings:
        done = repair_store(groups, findings, paths.journals, LeaseWatch(paths.leases))
        result |= {"runs_healed": done.healed, "runs_set_back": done.dropped}
    return result
