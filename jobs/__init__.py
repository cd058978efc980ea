"""What one training run is: identity, random streams, data, classifiers.

Run descriptions in, predictions out. Nothing here knows of a sweep's files, a scheduler or a metric.
"""
