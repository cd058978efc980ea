"""Classifiers: what a sweep file names, and the fit of one run."""

from jobs.classifiers.registry import ClassifierInfo, Device, fit, names, resolve, size_class

__all__ = ["ClassifierInfo", "Device", "fit", "names", "resolve", "size_class"]
