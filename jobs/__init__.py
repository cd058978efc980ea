"""What one training run is: identity, random streams, data, classifiers.

Run descriptions in, predictions out. No files of a sweep, no scheduler, no metrics.
"""
