"""Users' own classifiers: their code is described, found, probed and called."""
