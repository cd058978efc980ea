"""A single training run: identity, random streams, data, classifiers.

Turns run descriptions into predictions; knows no sweep files, scheduler or metrics.
"""
