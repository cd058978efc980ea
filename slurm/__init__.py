"""Where work runs: the local machine, and SLURM clusters through submitit."""

from manyseed.slurm.commands import ClusterError, ClusterUnavailable, available

__all__ = ["ClusterError", "ClusterUnavailable", "available"]
