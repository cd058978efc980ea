"""Classifiers of users' own: their code, described, found, probed and called."""
