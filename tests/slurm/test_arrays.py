"""What sbatch is given, and whom a task asks as it ends; without a SLURM."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from manyseed.slurm import Refused, arrays, commands, processes
from manyseed.slurm.profile import read_profile

SBATCH = """#!/bin/sh
cat "$1" > {folder}/script
echo "$SLURM_CONF" > {folder}/conf
echo "Submitted batch job 7"
"""
SCONTROL = """#!/bin/sh
echo "MaxArraySize = 1001"
"""


def script(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Submit with a profile; return the lines that sbatch was given."""
    for name, does in (("sbatch", SBATCH), ("scontrol", SCONTROL), ("srun", "#!/bin/sh\n")):
        (folder / name).write_text(does.format(folder=folder))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    (folder / "lab.toml").write_text(text)
    ids = arrays.submit_array(
        read_profile(folder / "lab.toml"),
        "cpu",
        folder / "files",
        arrays.Tasks(
            "manyseed.orchestrator.working.worker:run_task",
            [["a"], ["b"]],
            "my-sweep-0123-cpu",
            comment="/data/a sweep/it's [1]/tasks/0001",
        ),
    )
    assert ids == ["7_0", "7_1"]
    return (folder / "script").read_text().splitlines()


@pytest.mark.parametrize("own", ["", 'wckey = "thesis"\n'])
def test_sbatch_is_given_no_wckey_but_the_users(
    own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = script(tmp_path, f'time = "60"\n{own}', monkeypatch)
    found = [line for line in lines if "--wckey" in line]
    assert found == (["#SBATCH --wckey=thesis"] if own else [])
    assert "#SBATCH --job-name=my-sweep-0123-cpu.0" in lines
    (comment,) = [line for line in lines if line.startswith("#SBATCH --comment=")]
    assert "/data/a sweep/it" in comment


def test_jobs_go_to_the_profiles_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    (tmp_path / "slurm.conf").touch()
    script(tmp_path, f'time = "60"\nslurm-conf = "{tmp_path}/slurm.conf"\n', monkeypatch)
    assert (tmp_path / "conf").read_text() == f"{tmp_path}/slurm.conf\n"
    assert os.environ["SLURM_CONF"] == "/etc/slurm/slurm.conf"
    script(tmp_path, 'time = "60"\n', monkeypatch)
    assert (tmp_path / "conf").read_text() == "/etc/slurm/slurm.conf\n"


def test_lines_of_a_setup_file_stay_out_of_the_script_which_is_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = tmp_path / "it's mine.sh"
    secrets.write_text("export API_TOKEN=hush\n")
    profile = f'time = "60"\nsetup-file = "{secrets}"\nsetup = ["echo $API_TOKEN > {tmp_path}/s"]\n'
    lines = script(tmp_path, profile, monkeypatch)
    (saved,) = (tmp_path / "files").glob("*.sh")
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    assert "hush" not in saved.read_text()
    sourced = [line for line in lines if "mine.sh" in line]
    assert lines.index(sourced[-1]) + 1 == lines.index(f"echo $API_TOKEN > {tmp_path}/s")
    shell = "\n".join([*sourced, f"echo $API_TOKEN > {tmp_path}/s"])
    subprocess.run(["bash", "-c", shell], check=True)
    assert (tmp_path / "s").read_text() == "hush\n"
    secrets.unlink()
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"cannot read {secrets} on " in done.stderr
    with pytest.raises(Refused, match="there is no such file") as refused:
        script(tmp_path, profile, monkeypatch)
    assert refused.value.option == "cpu.setup-file"


@pytest.mark.parametrize("name", ["%j", "%A", "90%x", "%4t", "a%%b", "a\\b"])
def test_a_folder_whose_name_slurm_expands_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Logs would go to another folder, and submitit would look there for what to run."""
    (folder := tmp_path / name).mkdir()
    with pytest.raises(Refused, match="logs would go elsewhere") as refused:
        script(folder, 'time = "60"\n', monkeypatch)
    assert (refused.value.option, refused.value.value) == ("folder", str(folder / "files"))
    assert not (folder / "script").exists()
    assert not (folder / "files").exists()


def test_a_folder_with_other_percent_signs_is_named_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "90%_of_it,5%").mkdir()
    lines = script(folder, 'time = "60"\n', monkeypatch)
    assert f"#SBATCH --output={folder}/files/%A_%a_0_log.out" in lines


@pytest.mark.parametrize(
    ("received", "asks"),
    [
        ({signal.SIGUSR2}, False),  # the walltime, of all tasks at once
        ({signal.SIGUSR2, signal.SIGTERM}, True),
        ({signal.SIGTERM}, True),
    ],
)
def test_a_task_at_its_walltime_asks_nobody(
    received: set[int], asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def run(arguments: list[str]) -> str:
        asked.append(arguments)
        return "COMPLETING\n"

    monkeypatch.setattr(processes, "received", lambda: frozenset(received))
    monkeypatch.setattr(commands, "run", run)
    monkeypatch.setenv("_TEST_CLUSTER_", "slurm")  # of submitit
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert arrays._still_wanted() is not asks
    assert bool(asked) is asks
