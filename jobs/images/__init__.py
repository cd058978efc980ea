"""Transforms of images: random for training, of given magnitude for response curves."""
