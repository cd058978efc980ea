"""Run the command: ``python -m manyseed``."""

from manyseed.orchestrator.cli import main

if __name__ == "__main__":
    main()
