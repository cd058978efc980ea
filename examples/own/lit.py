"""A Lightning script that knows nothing of manyseed: a module, and a trainer."""

import argparse

import lightning
import numpy as np
import torch
from torch import nn


class LitModel(lightning.LightningModule):
    """A small network, its loss and its optimizer."""

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


def main():
    """Read rows from files and write logits to a file."""
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
    lightning.seed_everything(given.init_seed)
    model = LitModel(train["X"].shape[1], int(train["y"].max()) + 1)
    trainer = lightning.Trainer(
        max_epochs=10,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(model, loader)
    with torch.no_grad():
        logits = model.eval()(torch.tensor(test["X"], dtype=torch.float32)).numpy()
    np.save(given.out, logits)


if __name__ == "__main__":
    main()
