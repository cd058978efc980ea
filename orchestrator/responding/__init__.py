"""Response curves of kept models, measured after their training."""
