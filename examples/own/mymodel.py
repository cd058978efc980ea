"""Estimators of your own: anything that follows scikit-learn's conventions."""

from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


def build(n_components=50, C=1.0):
    """Return logistic regression on random features."""
    return make_pipeline(
        StandardScaler(),
        RBFSampler(n_components=n_components, gamma="scale"),
        LogisticRegression(C=C, max_iter=500),
    )
