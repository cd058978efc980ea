"""Classifiers: what a sweep file names, and the fit of one run."""

from jobs.classifiers.registry import ClassifierInfo, fit, names, resolve, size_class

__all__ = ["ClassifierInfo", "fit", "names", "resolve", "size_class"]
