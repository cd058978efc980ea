"""Datasets: what the plan knows of them, fetching, loading, preparation and splits."""

from manyseed.jobs.datasets.cache import data_home
from manyseed.jobs.datasets.columns import ColumnInfo
from manyseed.jobs.datasets.info import DatasetInfo, dataset_id
from manyseed.jobs.datasets.prepare import Dataset, fetch, is_fetched, load, needs_fetching
from manyseed.jobs.datasets.resolution import resolve
from manyseed.jobs.datasets.sources import bare_names, names, suite

__all__ = [
    "ColumnInfo",
    "Dataset",
    "DatasetInfo",
    "bare_names",
    "data_home",
    "dataset_id",
    "fetch",
    "is_fetched",
    "load",
    "names",
    "needs_fetching",
    "resolve",
    "suite",
]
