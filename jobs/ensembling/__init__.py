"""Several members from one training, averaged (PIT: Ashukha et al. 2020, arXiv 2002.06470)."""
