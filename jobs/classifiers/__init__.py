"""Classifiers: what a sweep file names, and the fit of one run."""

from jobs.classifiers.registry import ClassifierInfo, fit, keep_weights, names, resolve, size_class
from jobs.training.handling import Device

__all__ = ["ClassifierInfo", "Device", "fit", "keep_weights", "names", "resolve", "size_class"]
