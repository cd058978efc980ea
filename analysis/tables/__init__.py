"""The result tables: their schemas, columns, means and summaries."""
