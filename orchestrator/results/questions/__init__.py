"""The questions that can be asked of results, as light records, and how they are asked."""
