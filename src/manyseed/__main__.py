"""Run the command: ``python -m manyseed``."""

from manyseed.orchestrator.cli import entry

if __name__ == "__main__":
    entry()
