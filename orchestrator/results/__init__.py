"""From predictions to result tables and the page."""
