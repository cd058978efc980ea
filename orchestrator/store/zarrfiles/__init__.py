"""The files of a Zarr store: arrays and metadata, written and read."""
