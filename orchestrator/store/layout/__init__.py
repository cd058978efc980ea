"""A group on disk: its arrays, their shards and chunks, and the format of one file."""
