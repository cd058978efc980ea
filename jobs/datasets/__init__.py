"""Datasets: what the plan knows of them, fetching, loading, preparation and splits."""

from manyseed.jobs.datasets import openml as openml_task  # as code of others calls it
from manyseed.jobs.datasets.cache import data_home
from manyseed.jobs.datasets.info import ColumnInfo, DatasetInfo, dataset_id
from manyseed.jobs.datasets.sources import (
    Dataset,
    bare_names,
    fetch,
    images_of,
    is_fetched,
    load,
    names,
    names_of,
    needs_fetching,
    resolve,
    suite,
)
