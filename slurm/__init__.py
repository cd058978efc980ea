"""Where work runs: the local machine, and SLURM clusters through submitit."""

from __future__ import annotations

from manyseed.slurm.commands import ClusterError, ClusterUnavailable, available
from manyseed.slurm.refused import Refused
