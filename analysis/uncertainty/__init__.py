"""How good probabilities are, before and after calibration, and what ensembles are worth."""
