"""One run: its address, everything that defines it, training it again."""
