"""Where work runs: the local machine and clusters, through submitit."""
