"""Classifiers: resolve what users name, and fit single runs."""

from manyseed.jobs.classifiers.mlp import size_class
from manyseed.jobs.classifiers.record import FORMS, Classifier, ClassifierInfo, Unsuitable
from manyseed.jobs.classifiers.registry import (
    CLASSIFIERS,
    configurations,
    consumes,
    core_seconds,
    fit,
    fit_of,
    fit_stack,
    idle,
    imports,
    is_known,
    is_own,
    kind_of,
    lacking,
    names,
    prepare,
    require_classes,
    resolve,
    space,
    stacks,
)
from manyseed.jobs.training.handling import Device
