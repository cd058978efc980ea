"""What predictions mean: metrics, result tables, answers, figures, the page."""
