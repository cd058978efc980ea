"""Analysis: what predictions mean. Metrics on dask arrays and a frame of runs, figures, the page."""
