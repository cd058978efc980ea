"""A throw-away SLURM cluster of several virtual nodes on one machine, in its own folder."""

from manyseed.slurm.testcluster.cluster import MissingPackages, TestCluster
from manyseed.slurm.testcluster.settings import NAME, Settings

__all__ = ["NAME", "MissingPackages", "Settings", "TestCluster"]
