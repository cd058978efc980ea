"""``manyseed cluster``: write a cluster's profile, and check that the cluster can train."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from manyseed.orchestrator.cli.common import Json
from manyseed.orchestrator.cli.output import console, print_json, say, say_next

if TYPE_CHECKING:
    from manyseed.slurm.discover import Cluster, Partition

app = typer.Typer(help="Describe and check a SLURM cluster.", no_args_is_help=True)


@app.command()
def init(
    name: Annotated[
        str | None,
        typer.Argument(help="The profile's name.", show_default="SLURM's name of the cluster"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="The file.", show_default="in ~/.config"),
    ] = None,
) -> None:
    """Ask SLURM about the cluster, and write a profile for you to complete.

    Examples:

        manyseed cluster init

        manyseed cluster check NAME
    """
    from manyseed.orchestrator.disk.placing import place
    from manyseed.orchestrator.errors import UnavailableError, UserError
    from manyseed.slurm import ClusterError, discover
    from manyseed.slurm.profile import user_folder

    try:
        cluster = discover.discover()
    except ClusterError as error:
        raise UnavailableError(str(error)) from None
    name = name or (out.stem if out else cluster.name)
    file = out or user_folder() / f"{name}.toml"
    if file.exists():
        raise UserError("the profile exists", file=file, remedy="edit it, or choose another name")
    if not any(partition.is_up for partition in cluster.partitions):
        raise UnavailableError(f"{cluster.name}: no partition is up")
    place(file, profile_text(cluster).encode())
    console.print(file.read_text(), end="")
    say(f"\nWrote {file}: complete it.")
    say_next("Next", "cluster", "check", out or name)


@app.command()
def check(
    name: Annotated[str, typer.Argument(help="A profile's name or file.", show_default=False)],
    folder: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="A folder that the nodes share.")
    ] = Path(),
    wait: Annotated[float, typer.Option("--wait", min=1, help="Minutes to wait.")] = 15,
    as_json: Json = False,
) -> None:
    """Submit a tiny job of each resource class, and say what works on its node.

    It checks imports, GPUs, submitting from jobs, requeueing and accounting. Exit code 4 if
    something that a sweep needs does not work.

    Examples:

        manyseed cluster check mycluster

        manyseed cluster check gpu.toml --dir /scratch/me
    """
    from manyseed.orchestrator.errors import UnavailableError
    from manyseed.orchestrator.submissions import nodecheck
    from manyseed.orchestrator.submissions.profiles import read

    profile = read(name, key="NAME")
    with console.status("asking") as status:
        findings = nodecheck.check(
            profile, folder, wait * 60, lambda text: status.update(Text(text))
        )
    if as_json:
        print_json({"findings": [vars(finding) for finding in findings]})
    for finding in () if as_json else findings:
        say(
            Text.assemble(
                ("✗", "red") if finding.problem else ("✓", "green"),
                f" {finding.what}: {finding.answer}",
            )
        )
        if finding.problem:
            say(finding.problem, indent=2)
    if any(finding.problem for finding in findings):
        raise typer.Exit(UnavailableError.exit_code)


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
    ]
    lines += ["", "# Partitions:"]
    lines += [f"#   {_shown(partition)}" for partition in cluster.partitions]
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


def _shown(partition: Partition) -> str:
    longest = "no limit" if partition.max_minutes is None else f"{partition.max_minutes} min"
    text = f"{partition.name}: {partition.n_nodes} nodes, {partition.cores} cores, "
    text += f"{partition.memory_mb} MB, {longest}"
    return text + (f", {partition.gres}" if partition.gres else "")
