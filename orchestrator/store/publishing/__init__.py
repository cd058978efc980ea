"""Publishing journals as shards, one writer at a time."""
