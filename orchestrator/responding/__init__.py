"""Response curves of models that were kept, measured after their training."""
