"""Datasets: what the plan knows of them, loading, preparation and splits."""

from jobs.datasets.info import DatasetInfo, dataset_id
from jobs.datasets.prepare import Dataset, load
from jobs.datasets.resolution import resolve
from jobs.datasets.sources import names

__all__ = ["Dataset", "DatasetInfo", "dataset_id", "load", "names", "resolve"]
