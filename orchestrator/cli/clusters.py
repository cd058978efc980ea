"""``manyseed cluster``: profiles, checks of a cluster and of this machine, a throw-away SLURM."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from manyseed.orchestrator.cli.arguments import Json, switch, written_to
from manyseed.orchestrator.cli.output import (
    console,
    counted,
    print_json,
    print_table,
    say,
    say_next,
)

if TYPE_CHECKING:
    from manyseed.orchestrator.doctor import Check
    from manyseed.orchestrator.submissions.nodecheck import CheckResult
    from manyseed.slurm.discover import Cluster, Partition
    from manyseed.slurm.testcluster import TestCluster

cluster_app = typer.Typer(
    help="Describe, check and try a SLURM cluster; check this machine.", no_args_is_help=True
)


@cluster_app.command()
def init(
    name: str | None = typer.Argument(
        None, help="The profile's name.", show_default="SLURM's name of the cluster"
    ),
    out: Path | None = written_to("The file.", shown="in ~/.config"),
) -> None:
    """Ask SLURM about the cluster, and write a profile for you to complete.

    Examples:

        manyseed cluster init

        manyseed cluster check NAME
    """
    from manyseed.orchestrator.disk.placing import place
    from manyseed.orchestrator.errors import UnavailableError, UserError
    from manyseed.orchestrator.submissions.profiles import TESTCLUSTER
    from manyseed.orchestrator.submissions.scheduler import scheduler_of
    from manyseed.slurm import discover
    from manyseed.slurm.profile import user_folder

    with scheduler_of(None).active(), _naming_a_test_cluster():
        cluster = discover.discover()
    remedy = "edit it, or write one of another name: manyseed cluster init NAME"
    if out is None and (name or cluster.name) == TESTCLUSTER:
        # a profile of this name is chosen by name alone, and test clusters replace none
        if name is not None:
            remedy = f"write one of another name: manyseed cluster init my-{name}"
            raise UserError("is kept for test clusters", key="NAME", value=name, remedy=remedy)
        name = f"my-{TESTCLUSTER}"
    name = name or (out.stem if out else cluster.name)
    file = out or user_folder() / f"{name}.toml"
    if file.exists():
        raise UserError("the profile exists", file=file, remedy=remedy)
    if not any(partition.is_up for partition in cluster.partitions):
        raise UnavailableError(f"{cluster.name}: no partition is up")
    place(file, profile_text(cluster).encode())
    console.print(file.read_text(), end="")
    say(f"\nWrote {file}: complete it.")
    say_next("Next", "cluster", "check", out or name)


@cluster_app.command()
def check(
    name: str | None = typer.Argument(
        None, help="A profile's name or file.", show_default="this machine"
    ),
    folder: Path = typer.Option(
        Path(), "--dir", metavar="DIR", help="A folder for sweeps, which the nodes share."
    ),
    wait: float = typer.Option(15, min=1, help="Minutes to wait for jobs."),
    as_json: Json = False,
) -> None:
    """Submit a tiny job of each resource class, and say what works on its node.

    It checks imports, GPUs, submitting from jobs, requeueing and accounting. Without NAME, it
    checks this machine: versions, cores, GPUs, SLURM, the folder's file system. Exit code 4 if
    something that a sweep needs does not work.

    Examples:

        manyseed cluster check mycluster

        manyseed cluster check gpu.toml --dir /scratch/me

        manyseed cluster check
    """
    from manyseed.orchestrator.errors import UnavailableError
    from manyseed.orchestrator.submissions import nodecheck
    from manyseed.orchestrator.submissions.profiles import read

    if name is None:
        doctor(folder, as_json)
        return
    profile = read(name, key="NAME")
    with console.status("asking") as status:
        findings = nodecheck.check(
            profile, folder, wait * 60, lambda text: status.update(Text(text))
        )
    if as_json:
        print_json({"findings": [vars(finding) for finding in findings]})
    for finding in () if as_json else findings:
        _say_checked(finding)
    if any(finding.problem and finding.needed for finding in findings):
        raise typer.Exit(UnavailableError.exit_code)


@contextmanager
def _naming_a_test_cluster() -> Iterator[None]:
    """Say how SLURM's commands find a test cluster that runs, where they find no other."""
    from manyseed.orchestrator.errors import UserError
    from manyseed.slurm.commands import ClusterUnavailable
    from manyseed.slurm.profile import find_profile, read_profile

    try:
        yield
    except ClusterUnavailable as error:
        profile = None
        if not os.environ.get("SLURM_CONF"):
            with suppress(ValueError, OSError):
                profile = read_profile(find_profile("testcluster"))
        if profile is None or profile.slurm_conf is None:
            raise
        raise UserError(
            f"SLURM's commands find no cluster: {error}",
            key="SLURM_CONF",
            remedy=f"for the test cluster: export SLURM_CONF={profile.slurm_conf}",
        ) from None


def _say_checked(check: Check | CheckResult) -> None:
    mark = ("✗", "red") if check.problem else ("✓", "green")
    say(Text.assemble(mark, f" {check.what}: {check.answer}"))
    if check.problem:
        say(check.problem, indent=2)


def profile_text(cluster: Cluster) -> str:
    """Return a profile for the cluster, with its default partition and one with GPUs."""
    up = [partition for partition in cluster.partitions if partition.is_up]
    plain = [partition for partition in up if not partition.has_gpus] or up
    cpu = next((partition for partition in plain if partition.is_default), plain[0])
    gpu = next((partition for partition in up if partition.has_gpus), None)
    lines = [
        f"# {cluster.name}: SLURM {cluster.version}; arrays of at most {cluster.max_array_size}.",
        "# Keys are sbatch's options; further options go into a table [extra].",
        "",
        '# account = "my-project"',
        '# modules = ["python/3.11"]',
        '# setup   = ["source ~/manyseed/bin/activate"]',
        '# setup-file = "~/tokens.sh"  # sourced before setup; its lines stay out of sweeps',
    ]
    if conf := os.environ.get("SLURM_CONF"):
        told = "# the cluster that SLURM_CONF named: a shell may name another, or none"
        lines += ["", told, f"slurm-conf = {json.dumps(str(Path(conf).absolute()))}"]
    lines += ["", "# Partitions:"]
    lines += [f"#   {_in_words(partition)}" for partition in cluster.partitions]
    lines += ["", "[cpu]", f'partition     = "{cpu.name}"', f'time          = "{_walltime(cpu)}"']
    lines += [f"cpus-per-task = {min(cpu.cores, 16)}", _memory(cpu, 2)]
    lines += _limit(cluster, cpu)
    if gpu is not None:
        lines += ["", "[gpu]", f'partition     = "{gpu.name}"', 'gres          = "gpu:1"']
        lines += [f'time          = "{_walltime(gpu)}"', f"cpus-per-task = {min(gpu.cores, 4)}"]
        lines += [_memory(gpu, 4), "processes-per-gpu = 1", *_limit(cluster, gpu)]
    return "\n".join(lines) + "\n"


def _memory(partition: Partition, gigabytes: int) -> str:
    """Return the line with the memory of a core: no more than a node has for each of its cores."""
    there = partition.memory_mb // partition.cores
    if there == 0 or there >= gigabytes * 1024:  # 0: unknown
        return f'mem-per-cpu   = "{gigabytes}G"'
    return f'mem-per-cpu   = "{there}M"'


def _limit(cluster: Cluster, partition: Partition) -> list[str]:
    """Return the line with the user's limit of jobs, if there is a limit."""
    limit = cluster.max_submit_jobs({"partition": partition.name})
    return [f"max-jobs      = {limit}"] if limit else []


def _walltime(partition: Partition) -> str:
    """Return four hours, or less if the partition allows only less."""
    minutes = min(partition.max_minutes or 240, 240)
    return f"{minutes // 60}:{minutes % 60:02d}:00"


def _in_words(partition: Partition) -> str:
    longest = "no limit" if partition.max_minutes is None else f"{partition.max_minutes} min"
    size = f"{counted(partition.n_nodes, 'node')}, {counted(partition.cores, 'core')}"
    text = f"{partition.name}: {size}, "
    text += f"{partition.memory_mb} MB, {longest}"
    return text + (f", {partition.gres}" if partition.gres else "")


testcluster_app = typer.Typer(
    help="Try SLURM without a cluster: a throw-away one with virtual nodes on this machine.",
    no_args_is_help=True,
)

cluster_app.add_typer(testcluster_app, name="test")

_Folder = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="The cluster's folder.", show_default="in ~/.cache"),
]


@testcluster_app.command()
def start(
    folder: _Folder = None,
    cpu_nodes: int = typer.Option(3, min=1, help="Nodes without GPUs."),
    gpu_nodes: int = typer.Option(2, min=0, help="Nodes with GPUs."),
    cores: int = typer.Option(8, min=1, help="Virtual cores per node."),
    gpus: int = typer.Option(2, min=1, help="Virtual GPUs per GPU node."),
    max_array_size: int = typer.Option(64, min=2, help="SLURM's MaxArraySize."),
    max_job_count: int = typer.Option(500, min=2, help="SLURM's MaxJobCount."),
    accounting: bool = typer.Option(True, help="Record ended jobs, for sacct."),
) -> None:
    """Start the test cluster in the background, in its own folder. A system's SLURM is unaffected.

    Its profile is named testcluster. Partitions: cpu, gpu, and urgent, which preempts cpu.

    Examples:

        manyseed cluster test start

        manyseed submit sweep --cluster testcluster
    """
    from manyseed.orchestrator.errors import UnavailableError, UserError, refused
    from manyseed.slurm import Refused
    from manyseed.slurm.testcluster import MissingPackages, Settings

    settings = Settings(
        cpu_nodes=cpu_nodes,
        gpu_nodes=gpu_nodes,
        cores=cores,
        gpus=gpus,
        max_array_size=max_array_size,
        max_job_count=max_job_count,
        accounting=accounting,
    )
    cluster = _cluster(folder)
    try:
        cluster.require_name()
    except Refused as error:
        raise UserError(error.reason, file=error.option, remedy=_freeing(error.option)) from None
    try:
        with console.status("starting"):
            cluster.start(settings)
            cluster.register()
    except Refused as error:
        raise refused(error, key="--dir") from None
    except (MissingPackages, RuntimeError) as error:
        raise UnavailableError(str(error)) from None
    _show_nodes(cluster)
    hint = f"\nFor SLURM's own commands: export SLURM_CONF={cluster.conf}"
    console.print(hint, soft_wrap=True)
    say_next("Submit to it", "submit", "DIR", "--cluster", "testcluster")


@testcluster_app.command()
def stop(
    folder: _Folder = None,
    purge: bool = switch("--purge", "Remove its folder, too."),
) -> None:
    """End the test cluster's jobs and processes, and no others.

    Examples:

        manyseed cluster test stop

        manyseed cluster test stop --purge
    """
    import shutil

    cluster = _running(folder)
    was_running = bool(cluster.daemons.names())
    with console.status("stopping"):
        cluster.stop()
        cluster.unregister()
    if purge and cluster.conf.exists():  # never another folder
        shutil.rmtree(cluster.folder)
    say("Stopped the test cluster." if was_running else "No test cluster is running.")


@testcluster_app.command()
def status(folder: _Folder = None, as_json: Json = False) -> None:
    """Show the test cluster's nodes and partitions.

    Examples:

        manyseed cluster test status
    """
    cluster = _running(folder)
    if as_json:
        nodes = _rows_of_nodes(cluster) if cluster.is_running else []
        partitions = {name for row in nodes for name in row[1].split(",")}
        print_json(
            {
                "running": cluster.is_running,
                "folder": str(cluster.folder),
                "partitions": sorted(partitions),
                "nodes": [dict(zip(_NODE_COLUMNS, row, strict=True)) for row in nodes],
            }
        )
    elif cluster.is_running:
        _show_nodes(cluster)
    elif left := [*filter(cluster.daemons.is_alive, cluster.daemons.names())]:
        say(f"The controller of the test cluster in {cluster.folder} (slurmctld) has ended.")
        say(f"Still running: {', '.join(left)}.")
        say_next("End it", "cluster", "test", "stop", "--dir", cluster.folder)
    else:
        say("No test cluster is running.")
        say_next("Start one", "cluster", "test", "start")


_NODE_COLUMNS = ("node", "partitions", "state", "cores", "gpus", "memory_mb", "reason")


def _freeing(profile: str) -> str:
    """Return the command after which a test cluster may have the name of this profile."""
    from manyseed.orchestrator.errors import command, shell_word

    file = Path(profile)
    if file.is_symlink():
        stopping = command("cluster", "test", "stop", "--dir", file.readlink().parent)
        return f"end that cluster: {stopping}"
    names = (f"{'my-' * n}{file.name}" for n in itertools.count(1))
    new = next(path for path in map(file.with_name, names) if not path.exists())
    return f"rename it: mv {shell_word(str(file))} {shell_word(str(new))}"


def _cluster(folder: Path | None) -> TestCluster:
    from manyseed.slurm.testcluster import TestCluster

    return TestCluster(folder or TestCluster.default_folder())


def _running(folder: Path | None) -> TestCluster:
    """Return the cluster in a folder; without one, the cluster that runs, wherever it lies."""
    from manyseed.slurm.testcluster import TestCluster

    registered = TestCluster.registered()
    if folder is None and registered is not None and TestCluster(registered).daemons.names():
        return TestCluster(registered)
    return _cluster(folder)


def _show_nodes(cluster: TestCluster) -> None:
    print_table(f"Test cluster in {cluster.folder}", _NODE_COLUMNS, _rows_of_nodes(cluster))


def _rows_of_nodes(cluster: TestCluster) -> list[tuple[str, str, str, int, int, int, str]]:
    """Return one row per node."""
    from manyseed.orchestrator.errors import UnavailableError
    from manyseed.slurm import states

    try:
        printed = cluster.command(["sinfo", "-h", "-N", "-o", "%N|%R|%T|%c|%G|%m|%E"])
    except RuntimeError as error:
        raise UnavailableError(str(error)) from None
    rows: dict[str, tuple[str, str, str, int, int, int, str]] = {}
    for name, partition, state, cores, gres, memory, reason in states.fields(printed, 7):
        known = rows[name][1].split(",") if name in rows else []
        partitions = ",".join(sorted({*known, partition}))  # sinfo prints them in any order
        numbers = (
            states.number(cores, "the number of CPUs") or 0,
            states.n_gpus(gres),
            states.number(memory, "the memory of a node") or 0,
        )
        shown = "" if reason == "none" else reason
        rows[name] = (name, partitions, state, *numbers, shown)
    return list(rows.values())


def doctor(
    directory: Path = typer.Argument(
        Path(), metavar="[DIR]", help="A folder for sweeps.", show_default="here"
    ),
    as_json: Json = False,
) -> None:
    """Check this machine for sweeps: versions, cores, GPUs, SLURM, the folder's file system.

    It writes files like those of a sweep into the folder and removes them. Exit code 4 if sweeps
    cannot work here; lesser problems are reported with their remedies.

    Examples:

        manyseed doctor

        manyseed doctor /scratch/sweeps
    """
    from manyseed.orchestrator.doctor import examine
    from manyseed.orchestrator.errors import UnavailableError

    checks = []
    for check in examine(directory):
        checks.append(check)
        if not as_json:
            _say_checked(check)
    failed = any(check.problem and check.needed for check in checks)
    if as_json:
        print_json({"checks": [asdict(check) for check in checks]})
    elif not failed:
        _say_cluster()
    if failed:
        raise typer.Exit(UnavailableError.exit_code)


def _say_cluster() -> None:
    """Name the command that checks the nodes of this machine's cluster, if it has one."""
    from manyseed.orchestrator.submissions.profiles import own_names
    from manyseed.slurm import available

    if available():
        names = own_names()
        say("")
        if not names:
            say_next("A profile of the cluster", "cluster", "init")
        for name in names:
            say_next("Nodes of a cluster", "cluster", "check", name)
