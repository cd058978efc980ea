"""Response curves: how often a trained model is right as its inputs are transformed."""
