"""A Hydra app that knows nothing of manyseed: logistic regression on a bootstrap sample."""

import hydra
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


@hydra.main(version_base="1.3", config_path=".", config_name="hydra_app")
def main(config):
    """Read rows from files and write probabilities to a file."""
    train, test = np.load(config.data.train), np.load(config.data.test)
    rows = np.random.default_rng(config.seed).integers(len(train["y"]), size=len(train["y"]))
    model = make_pipeline(StandardScaler(), LogisticRegression(C=config.C, max_iter=500))
    model.fit(train["X"][rows], train["y"][rows])
    np.savez(config.out, probabilities=model.predict_proba(test["X"]))


if __name__ == "__main__":
    main()
