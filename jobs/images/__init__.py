"""Transforms of images: of training images at random, of a trained model's inputs on purpose."""
