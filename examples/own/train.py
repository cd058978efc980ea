"""A program that knows nothing of manyseed: softmax regression by stochastic gradient descent."""

import argparse

import numpy as np


def main():
    """Read rows from files and write logits to a file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int)
    parser.add_argument("--lr", type=float)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--train")
    parser.add_argument("--test")
    parser.add_argument("--out")
    given = parser.parse_args()
    train, test = np.load(given.train), np.load(given.test)
    X, y = train["X"], train["y"]
    random = np.random.default_rng(given.seed)
    W = random.normal(size=(X.shape[1], y.max() + 1)) / np.sqrt(X.shape[1])
    wanted = np.eye(W.shape[1])[y]
    for _ in range(given.epochs):
        for rows in np.array_split(random.permutation(len(y)), max(1, len(y) // 16)):
            logits = X[rows] @ W
            shares = np.exp(logits - logits.max(axis=1, keepdims=True))
            shares /= shares.sum(axis=1, keepdims=True)
            W -= given.lr * X[rows].T @ (shares - wanted[rows]) / len(rows)
    np.savez(given.out, scores=test["X"] @ W)


if __name__ == "__main__":
    main()
