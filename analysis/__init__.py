"""What predictions mean: metrics on dask arrays and a frame of runs, figures, the page."""
