"""A script in the manner of Lightning: a module that says how a step is made, and a trainer."""

import argparse

import numpy as np
import torch
from torch import nn


class LitModel(nn.Module):
    """As a LightningModule: what is trained, its loss and its optimizer."""

    def __init__(self, n_features, n_classes):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(n_features, 32), nn.ReLU(), nn.Linear(32, n_classes))

    def forward(self, x):
        """Return logits."""
        return self.net(x)

    def training_step(self, batch, _):
        """Return the loss of a batch."""
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def configure_optimizers(self):
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters(), lr=1e-2)


class Trainer:
    """The part of lightning.Trainer that this needs; with Lightning installed, take that."""

    def __init__(self, max_epochs):
        self.max_epochs = max_epochs

    def fit(self, model, loader):
        """Train a model."""
        optimizer = model.configure_optimizers()
        for _ in range(self.max_epochs):
            for number, batch in enumerate(loader):
                optimizer.zero_grad()
                model.training_step(batch, number).backward()
                optimizer.step()


def main():
    """Read rows from files, write logits to one."""
    parser = argparse.ArgumentParser()
    for name in ("--init-seed", "--order-seed"):
        parser.add_argument(name, type=int)
    for name in ("--train", "--test", "--out"):
        parser.add_argument(name)
    given = parser.parse_args()
    train, test = np.load(given.train), np.load(given.test)
    rows = torch.utils.data.TensorDataset(
        torch.tensor(train["X"], dtype=torch.float32), torch.tensor(train["y"])
    )
    order = torch.Generator().manual_seed(given.order_seed)
    loader = torch.utils.data.DataLoader(rows, batch_size=32, shuffle=True, generator=order)
    torch.manual_seed(given.init_seed)
    model = LitModel(train["X"].shape[1], int(train["y"].max()) + 1)
    Trainer(max_epochs=10).fit(model, loader)
    with torch.no_grad():
        logits = model(torch.tensor(test["X"], dtype=torch.float32)).numpy()
    np.save(given.out, logits)


if __name__ == "__main__":
    main()
