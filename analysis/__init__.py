"""What predictions mean: metrics of predictions and a frame of runs, figures, the page."""
