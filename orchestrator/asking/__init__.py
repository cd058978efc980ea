"""What is asked of result tables: rows, groups, averages, SQL."""
