"""``manyseed`` without a command: what is here, and the commands to start with."""

from __future__ import annotations

from pathlib import Path

_SHOWN = 5


def begin(folder: Path) -> None:
    """Print the sweeps and sweep files of a folder, and the commands to start with."""
    from importlib.metadata import version

    from manyseed.analysis.counts import some
    from manyseed.orchestrator.cli.output import console, say, say_next
    from manyseed.orchestrator.submissions.submission import on_cluster

    say(
        f"manyseed {version('manyseed')}: train the same classifier thousands of times and learn "
        "how much the results vary."
    )
    sweeps, files = found(folder)
    if sweeps or files:
        console.print()
    if sweeps:
        say(f"Sweeps here: {some(sweeps, _SHOWN)}")
        say_next("  State", "status", sweeps[0])
    if files:
        say(f"Sweep files here: {some(files, _SHOWN)}")
        say_next("  Grid and cost", "plan", files[0], "--dry-run")
        say_next("  Train and report", "run", files[0], *on_cluster())
    console.print()
    say("Get started:")
    say_next("  Write an example sweep file", "example", "quickstart")
    say_next("  Write one for your data", "init", "DATA.csv")
    say_next("  Import existing predictions", "import", "LOGITS.npz", "--out", "DIR")
    say_next("  Check this machine", "doctor")
    console.print()
    say_next("All commands", "--help")
    say_next("All pages of the documentation", "docs")


def found(folder: Path) -> tuple[list[str], list[str]]:
    """Return the names of the sweep directories and of the sweep files in a folder."""
    from manyseed.orchestrator.paths import SweepPaths

    sweeps, files = [], []
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return [], []
    for entry in entries:
        try:
            if entry.suffix == ".toml" and entry.is_file():
                with entry.open(encoding="utf-8") as file:
                    is_sweep = "[[grid]]" in file.read(100_000)
                files += [entry.name] if is_sweep else []
            elif entry.is_dir() and SweepPaths(entry).is_sweep:
                sweeps.append(entry.name)
        except (OSError, UnicodeDecodeError):
            continue
    return sweeps, files
