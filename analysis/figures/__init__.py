"""Figures of the result tables, each with a caption that says n.

Every function takes result tables with the columns of `analysis.axes.AXES` joined and
returns a `Plot`, or None where nothing that it draws is defined. A run that was copied because
nothing of its training varies is drawn once, and pairs and repeats of identical runs are left out;
captions say how many. Cells have rows or panels of their own, and are put together only where that
is asked for; where there is no room for all, the caption says how many are left out.
"""
