"""``python -m manyseed``: the command."""

from manyseed.orchestrator.cli import main

if __name__ == "__main__":
    main()
