"""From finished runs to result tables."""
