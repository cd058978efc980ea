"""From missing runs to jobs: submit them once, follow them, stop them."""
