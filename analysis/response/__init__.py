"""Perturbation-response curves: scores, and whether a score predicts which model generalises.

All functions take plain arrays, so they work for any table of models, without a sweep.

Schiff, Quanz, Das, Chen: Predicting Deep Neural Network Generalization with Perturbation Response
Curves, NeurIPS 2021, arXiv:2106.04765 (below: PRC).
"""

from manyseed.analysis.response.curves import (
    cumulative,
    end_accuracy,
    gi,
    gi_folded,
    mean_accuracy,
    pal,
    pal_printed,
)
from manyseed.analysis.response.information import Cmi, cmi, combine, oriented
