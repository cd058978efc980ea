"""Settings of a test cluster, and the configuration files written from them."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from manyseed.slurm.processes import user_name

NAME = "testcluster"


@dataclass(frozen=True)
class Settings:
    """Size and limits of a test cluster.

    Nodes are virtual: they have as many cores and as much memory (MB) as stated here. GPUs are
    devices that exist only for SLURM.
    """

    cpu_nodes: int = 3
    gpu_nodes: int = 2
    cores: int = 8
    memory_mb: int = 16_000
    gpus: int = 2
    max_array_size: int = 64
    max_job_count: int = 500
    accounting: bool = True
    grace_seconds: int = 20
    node_timeout_seconds: int = 10

    @property
    def nodes(self) -> list[str]:
        """Names of the nodes: c1, c2 … without GPUs, g1 … with GPUs."""
        cpu = [f"c{number}" for number in range(1, self.cpu_nodes + 1)]
        return cpu + [f"g{number}" for number in range(1, self.gpu_nodes + 1)]


@dataclass(frozen=True)
class Ports:
    """Free ports of this machine, one for each daemon."""

    controller: int
    database: int
    accounting: int
    nodes: tuple[int, ...]

    @classmethod
    def pick(cls, n_nodes: int) -> Ports:
        """Choose free ports below those that the kernel uses for outgoing connections."""
        free: list[int] = []
        for port in random.SystemRandom().sample(range(10_000, 32_000), 1000):
            with socket.socket() as trial, suppress(OSError):
                trial.bind(("", port))
                free.append(port)
            if len(free) == 3 + n_nodes:
                break
        controller, database, accounting, *nodes = free
        return cls(controller, database, accounting, tuple(nodes))


def write(folder: Path, settings: Settings, ports: Ports) -> None:
    """Write every file that the daemons read, and the profile ``testcluster.toml``."""
    etc = folder / "etc"
    etc.mkdir(exist_ok=True)
    (etc / "slurm.conf").write_text("\n".join(_slurm_conf(folder, settings, ports)) + "\n")
    (etc / "gres.conf").write_text("".join(_gres_conf(folder, settings)))
    (etc / "cgroup.conf").write_text(
        "CgroupAutomount=no\nConstrainCores=no\nConstrainRAMSpace=no\n"
    )
    if settings.accounting:
        dbd = etc / "slurmdbd.conf"
        dbd.touch(mode=0o600)  # slurmdbd refuses a file that others can read
        dbd.write_text("\n".join(_slurmdbd_conf(folder, ports)) + "\n")
    (folder / f"{NAME}.toml").write_text(_profile(folder, settings))


def _slurm_conf(folder: Path, settings: Settings, ports: Ports) -> Iterator[str]:
    host, user = socket.gethostname().partition(".")[0], user_name()
    yield f"""\
ClusterName={NAME}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports.controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
# a short cred_expire lets a node that comes back be trusted again within seconds
AuthInfo=socket={folder}/munge/socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
# nothing privileged: no cgroups, no binding
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=2
JobAcctGatherParams=OverMemoryKill
MpiDefault=none
SwitchType=switch/none
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=500
# schedule at once
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=50000,sched_interval=2,bf_interval=2,bf_min_age_reserve=0
PriorityType=priority/multifactor
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
JobRequeue=1
MaxArraySize={settings.max_array_size}
MaxJobCount={settings.max_job_count}
KillWait=3
SlurmdTimeout={settings.node_timeout_seconds}
SlurmctldTimeout=10
BatchStartTimeout=20
MessageTimeout=10
CompleteWait=0
InactiveLimit=0
ReturnToService=2
GresTypes=gpu"""
    if settings.accounting:
        yield f"""\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={ports.accounting}
AccountingStoragePass={folder}/munge/socket
AccountingStorageTRES=gres/gpu"""
    else:
        yield "AccountingStorageType=accounting_storage/none"
    for node, port in zip(settings.nodes, ports.nodes, strict=True):
        gres = f" Gres=gpu:{settings.gpus}" if node.startswith("g") else ""
        yield (
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
            f"CPUs={settings.cores} Boards=1 SocketsPerBoard=1 CoresPerSocket={settings.cores} "
            f"ThreadsPerCore=1 RealMemory={settings.memory_mb}{gres} State=UNKNOWN"
        )
    limits = "MaxTime=1-00:00:00 DefaultTime=10 State=UP"
    requeue = f"PriorityTier=10 {limits} PreemptMode=REQUEUE GraceTime={settings.grace_seconds}"
    cpu = f"Nodes=c[1-{settings.cpu_nodes}]"
    yield f"PartitionName=cpu {cpu} Default=YES {requeue}"
    yield f"PartitionName=urgent {cpu} PriorityTier=100 {limits} PreemptMode=OFF"
    if settings.gpu_nodes:
        yield f"PartitionName=gpu Nodes=g[1-{settings.gpu_nodes}] {requeue}"


def _gres_conf(folder: Path, settings: Settings) -> Iterator[str]:
    """Name the GPUs: SLURM requires character devices, whose numbers go to CUDA_VISIBLE_DEVICES."""
    if not settings.gpu_nodes:
        return
    devices = folder / "dev"
    devices.mkdir(exist_ok=True)
    for number in range(settings.gpus):
        device = devices / f"nvidia{number}"
        device.unlink(missing_ok=True)
        device.symlink_to("/dev/null")
    last = settings.gpus - 1
    yield f"NodeName=g[1-{settings.gpu_nodes}] Name=gpu File={devices}/nvidia[0-{last}]\n"


def _slurmdbd_conf(folder: Path, ports: Ports) -> Iterator[str]:
    yield f"""\
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
DbdHost={socket.gethostname().partition(".")[0]}
DbdAddr=127.0.0.1
DbdPort={ports.accounting}
SlurmUser={user_name()}
LogFile={folder}/log/slurmdbd.log
PidFile={folder}/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={ports.database}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm
CommitDelay=0"""


def _profile(folder: Path, settings: Settings) -> str:
    gpu = (
        """
[gpu]
partition     = "gpu"
gres          = "gpu:1"
cpus-per-task = 2
"""
        if settings.gpu_nodes
        else ""
    )
    return f"""\
# The throw-away cluster of this machine; this file goes when it is stopped.
slurm-conf = "{folder}/etc/slurm.conf"
time       = "30"
mem        = "2G"

[cpu]
partition     = "cpu"
cpus-per-task = 2
{gpu}"""
