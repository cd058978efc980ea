"""Figures of the result tables, each with a caption that says n.

Every function takes result tables with the columns of `analysis.axes.AXES` joined and returns a
`Plot`, or None if nothing it draws is defined. Identical runs are drawn once, and pairs and repeats
of identical runs are left out; captions say how many. Each cell has its own row or panel; cells are
pooled only on request. If there is no room for all, the caption says how many are left out.
"""
