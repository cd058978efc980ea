"""Check what is stored, set wrong runs back to be trained again, tidy up, write portable copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from orchestrator.errors import UserError
from orchestrator.paths import SweepPaths
from orchestrator.plans.drop import Drop
from orchestrator.plans.drop import drop as drop_cells
from orchestrator.plans.layout import wrong_coordinates
from orchestrator.plans.plan import Plan
from orchestrator.store.compact import Compaction
from orchestrator.store.compact import compact as compact_store
from orchestrator.store.groups import Group, list_groups
from orchestrator.store.lease import LeaseWatch
from orchestrator.store.repair import repair as repair_store
from orchestrator.store.repair import require_rest
from orchestrator.store.verify import Finding, shards_to_verify
from orchestrator.store.verify import verify as verify_group
from orchestrator.stored import require_sound
from orchestrator.submissions.submission import running, submissions
from orchestrator.working.checkpoints import remove_stale


def verify(
    paths: SweepPaths,
    *,
    repair: bool,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, Any]:
    """Check every published run of a sweep.

    Parameters
    ----------
    paths : SweepPaths
    repair : bool
        Take damaged runs from journals where these hold them, set the others back to missing.
    progress : callable
        Told before the first shard and after each: (shards that were checked, all shards).

    Returns
    -------
    dict
        As `Sweep.verify` says.
    """
    groups = list_groups(paths.store) if paths.store.exists() else []
    findings = list(_coordinates(paths, groups, repair=repair))
    if not repair:  # which runs the rows are cannot be known
        unclear = {finding.group for finding in findings}
        groups = [group for group in groups if group.spec.path not in unclear]
    shards = sum(len(shards_to_verify(group)) for group in groups)
    checked: list[int] = []  # finished runs of each shard

    def tell(runs: int) -> None:
        checked.append(runs)
        progress(len(checked), shards)

    progress(0, shards)
    for group in groups:
        findings += verify_group(group, tell)
    wrong = {(finding.group, row) for finding in findings for row in finding.rows}
    result: dict[str, Any] = {
        "runs_checked": sum(checked),
        "runs_wrong": len(wrong),
        "findings": [
            {"group": f.group, "problem": f.problem, "rows": len(f.rows)} for f in findings
        ],
    }
    if repair and findings:
        done = repair_store(groups, findings, paths.journals, LeaseWatch(paths.leases))
        result |= {"runs_healed": done.healed, "runs_set_back": done.dropped}
    return result


def _coordinates(paths: SweepPaths, groups: list[Group], *, repair: bool) -> Iterator[Finding]:
    """Compare what the store says of each row with the plan; write it again for a repair."""
    plan = Plan.read(paths) if groups else None
    wrong = wrong_coordinates(plan, groups) if plan is not None else {}
    if plan is not None and wrong and repair:
        require_rest(LeaseWatch(paths.leases))
        wrong_coordinates(plan, [group for group in groups if group.spec.path in wrong], mend=True)
    for path, names in wrong.items():
        yield Finding(path, f"{', '.join(names)} cannot be read or differ from the plan")


def compact(
    paths: SweepPaths, progress: Callable[[int, int], None] = lambda done, of: None
) -> Compaction:
    """Publish what journals hold, and tidy up; `Sweep.compact` says more."""
    if not paths.store.exists():
        return Compaction(0, 0, (), 0)
    watch = LeaseWatch(paths.leases)
    done = compact_store(paths.store, paths.journals, watch, progress=progress)
    remove_stale(paths)
    return done


def compact_at_rest(paths: SweepPaths) -> None:
    """Do so unless something trains, which publishes itself."""
    if not running(submissions(paths)):
        compact(paths)


def drop(paths: SweepPaths, where: str) -> Drop:
    """Take cells out of the plan unless something trains; `Sweep.drop` says more."""
    if running(submissions(paths)):
        raise UserError(
            "the sweep is being trained",
            file=paths.directory,
            remedy=f"wait for it, or stop it with: manyseed cancel {paths.directory}",
        )
    return drop_cells(paths, where)


def export(paths: SweepPaths, output: Path) -> Path:
    """Write one portable copy of what is finished; `Sweep.export` says more."""
    from orchestrator.store.exchange import export_parquet, export_zip

    if output.suffix not in (".zip", ".parquet"):
        raise UserError(
            "unknown format", file=output, remedy="let the name end in .zip (Zarr) or .parquet"
        )
    if output.exists():
        raise UserError("exists already", file=output, remedy="remove it or choose another name")
    # without journals nothing is to be done: a sweep that may only be read is exported too
    if any(paths.journals.glob("*.journal")):
        compact_at_rest(paths)
    if not paths.store.exists():
        raise UserError(
            "no run is finished yet",
            file=paths.directory,
            remedy=f"manyseed submit {paths.directory}",
        )
    require_sound(paths)
    if output.suffix == ".zip":
        files = [paths.sweep_file, *(file for file in paths.plan.rglob("*") if file.is_file())]
        beside = {file.relative_to(paths.directory).as_posix(): file for file in sorted(files)}
        export_zip(paths.store, output, beside)
    else:
        export_parquet(paths.store, output)
    return output
