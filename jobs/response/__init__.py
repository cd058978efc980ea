"""How often a trained model is right while its inputs are moved: what is asked, and the answers."""
