"""Average several members of one training (PIT: Ashukha et al. 2020, arXiv 2002.06470)."""
