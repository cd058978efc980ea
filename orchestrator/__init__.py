"""From a sweep file to results: the only package that joins jobs, slurm and analysis."""
