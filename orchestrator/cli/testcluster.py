"""``manyseed testcluster``: a throw-away SLURM on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from manyseed.orchestrator.cli.common import Json
from manyseed.orchestrator.cli.output import console, print_json, print_table, say, say_next

if TYPE_CHECKING:
    from manyseed.slurm.testcluster import TestCluster

app = typer.Typer(
    help="Try SLURM without a cluster: a throw-away one with virtual nodes on this machine.",
    no_args_is_help=True,
)

_Folder = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="The cluster's folder.", show_default="in ~/.cache"),
]


@app.command()
def start(
    folder: _Folder = None,
    cpu_nodes: Annotated[int, typer.Option(min=1, help="Nodes without GPUs.")] = 3,
    gpu_nodes: Annotated[int, typer.Option(min=0, help="Nodes with GPUs.")] = 2,
    cores: Annotated[int, typer.Option(min=1, help="Virtual cores per node.")] = 8,
    gpus: Annotated[int, typer.Option(min=1, help="Virtual GPUs per GPU node.")] = 2,
    max_array_size: Annotated[int, typer.Option(min=2, help="SLURM's MaxArraySize.")] = 64,
    max_job_count: Annotated[int, typer.Option(min=2, help="SLURM's MaxJobCount.")] = 500,
    accounting: Annotated[bool, typer.Option(help="Record ended jobs, for sacct.")] = True,
) -> None:
    """Start the test cluster in the background, in its own folder. A system's SLURM is unaffected.

    Its profile is named testcluster. Partitions: cpu, gpu, and urgent, which preempts cpu.

    Examples:

        manyseed testcluster start

        manyseed submit sweep --cluster testcluster
    """
    from manyseed.orchestrator.errors import UnavailableError, refused
    from manyseed.slurm.profile import Refused
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
    try:
        cluster = _cluster(folder)
        with console.status("starting"):
            cluster.start(settings)
            cluster.register()
    except Refused as error:
        raise refused(error, key="--dir") from None
    except (MissingPackages, RuntimeError) as error:
        raise UnavailableError(str(error)) from None
    _show(cluster)
    hint = f"\nFor SLURM's own commands: export SLURM_CONF={cluster.conf}"
    console.print(hint, soft_wrap=True)
    say_next("Submit to it", "submit", "DIR", "--cluster", "testcluster")


@app.command()
def stop(
    folder: _Folder = None,
    purge: Annotated[bool, typer.Option("--purge", help="Remove its folder, too.")] = False,
) -> None:
    """End the test cluster's jobs and processes, and no others.

    Examples:

        manyseed testcluster stop

        manyseed testcluster stop --purge
    """
    import shutil

    cluster = _cluster(folder)
    was_running = bool(cluster.daemons.names())
    with console.status("stopping"):
        cluster.stop()
        cluster.unregister()
    if purge and cluster.conf.exists():  # never another folder
        shutil.rmtree(cluster.folder)
    say("Stopped the test cluster." if was_running else "No test cluster is running.")


@app.command()
def status(folder: _Folder = None, as_json: Json = False) -> None:
    """Show the test cluster's nodes and partitions.

    Examples:

        manyseed testcluster status
    """
    cluster = _cluster(folder)
    if as_json:
        nodes = _nodes(cluster) if cluster.is_running else []
        partitions = {name for row in nodes for name in row[1].split(",")}
        print_json(
            {
                "running": cluster.is_running,
                "folder": str(cluster.folder),
                "partitions": sorted(partitions),
                "nodes": [dict(zip(_COLUMNS, row, strict=True)) for row in nodes],
            }
        )
    elif cluster.is_running:
        _show(cluster)
    else:
        say("No test cluster is running.")
        say_next("Start one", "testcluster", "start")


_COLUMNS = ("node", "partitions", "state", "cores", "gpus", "memory_mb", "reason")


def _cluster(folder: Path | None) -> TestCluster:
    from manyseed.slurm.testcluster import TestCluster

    return TestCluster(folder or TestCluster.default_folder())


def _show(cluster: TestCluster) -> None:
    print_table(f"Test cluster in {cluster.folder}", _COLUMNS, _nodes(cluster))


def _nodes(cluster: TestCluster) -> list[tuple[str, str, str, int, int, int, str]]:
    """Return one row per node."""
    from manyseed.orchestrator.errors import UnavailableError

    try:
        printed = cluster.command(["sinfo", "-h", "-N", "-o", "%N|%R|%T|%c|%G|%m|%E"])
    except RuntimeError as error:
        raise UnavailableError(str(error)) from None
    rows: dict[str, tuple[str, str, str, int, int, int, str]] = {}
    for line in printed.splitlines():
        name, partition, state, cores, gres, memory, reason = line.split("|")
        partitions = f"{rows[name][1]},{partition}" if name in rows else partition
        gpus = int(gres.rpartition(":")[2]) if gres.startswith("gpu") else 0
        shown = "" if reason == "none" else reason
        rows[name] = (name, partitions, state, int(cores), gpus, int(memory), shown)
    return list(rows.values())
