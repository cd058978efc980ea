"""One task on its node: a pool of training processes, shards published while they train."""
