"""From a sweep file to the distinct cells that its grids ask for."""
