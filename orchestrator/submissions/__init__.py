"""From missing runs to jobs: submitted once, followed, stopped."""
