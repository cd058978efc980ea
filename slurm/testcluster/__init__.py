"""A throw-away SLURM of several virtual nodes on one machine, in a folder of its own."""

from manyseed.slurm.testcluster.cluster import MissingPackages, TestCluster
from manyseed.slurm.testcluster.settings import NAME, Settings

__all__ = ["NAME", "MissingPackages", "Settings", "TestCluster"]
