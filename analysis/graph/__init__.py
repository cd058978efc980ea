"""From the predictions of a group to its tables, as dask graphs over whole repeats."""
