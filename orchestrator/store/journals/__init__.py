"""Finished runs, appended by the processes that train them."""
