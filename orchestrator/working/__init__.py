"""One task on its node: a pool of training processes, and shards published while they train."""
