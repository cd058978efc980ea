"""Datasets: what the plan knows of them, loading, preparation and splits."""

from jobs.datasets.info import DatasetInfo, dataset_id

__all__ = ["DatasetInfo", "dataset_id"]
