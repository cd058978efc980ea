"""Files of a Zarr store: writing and reading arrays and metadata."""
