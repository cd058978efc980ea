"""The robust two-sample KS test: trimming levels, references, resamples."""
