"""Cluster profiles: what they say, and what is refused."""

from __future__ import annotations

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from manyseed.slurm import ClusterUnavailable, Refused, commands
from manyseed.slurm.profile import KEYS, find_profile, minutes, read_profile, user_folder

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "clusters"


def write(folder: Path, text: str, name: str = "here.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_common_keys_hold_for_both_resource_classes(tmp_path: Path) -> None:
    text = """
        account = "science"
        time = "1:00:00"
        cpus-per-task = 4
        parallelism = 10
        extra = { switches = 1, spread-job = true }
        [gpu]
        gres = "gpu:1"
        time = "2-0"
        processes-per-gpu = 3
        exclude = ["n1", "n2"]
        extra = { switches = 2 }
    """
    profile = read_profile(write(tmp_path, text))
    assert profile.name == "here"
    cpu, gpu = profile.resources("cpu"), profile.resources("gpu")
    assert dict(cpu.options) == {"account": "science", "cpus-per-task": "4"}
    assert (cpu.minutes, cpu.cores, cpu.parallelism, cpu.processes_per_gpu) == (60, 4, 10, 1)
    assert (gpu.minutes, gpu.cores, gpu.parallelism, gpu.processes_per_gpu) == (2880, 4, 10, 3)
    assert gpu.options["exclude"] == "n1,n2"
    assert (dict(cpu.extra), dict(gpu.extra)) == (
        {"switches": "1", "spread-job": True},
        {"switches": "2", "spread-job": True},
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (7, 7),
        ("90", 90),
        ("1:30", 2),
        ("4:00:00", 240),
        ("00:00:59", 1),
        ("2-3", 51 * 60),
        ("1-02:30", 26 * 60 + 30),
        ("1-02:30:01", 26 * 60 + 31),
        ("90:30", 91),
        ("0-1", 60),
        (" 60 ", 60),
    ],
)
def test_times_are_slurms(text: str | int, expected: int) -> None:
    assert minutes(text) == expected


@pytest.mark.parametrize(
    ("text", "option", "fact"),
    [
        ('time = "1:00:00"\npartitoin = "x"', "partitoin", "partition"),
        ('time = "1:00:00"\n[gpu]\ngress = "x"', "gpu.gress", "gres"),
        ('time = "1:00:00"\narray = "0-3"', "array", "cannot be set"),
        ('time = "1:00:00"\nextra = { signal = "x" }', "extra.signal", "cannot be set"),
        ('time = "60"\n[cpu]\nextra = { signal = "x" }', "cpu.extra.signal", "cannot be set"),
        ('time = "60"\nextra = { modules = "x" }', "extra.modules", "stands beside extra"),
        *(
            (f'time = "60"\n[{name}]\nmem = "1G"', name, rf"did you mean \[{name.lower()[:3]}\]")
            for name in ("cpus", "gpus", "CPU", "gpu-nodes")
        ),
        ('time = "60"\n[slurm]\nmem = "1G"', "slurm", r"is no table .*\[cpu\], \[gpu\], extra"),
        ('time = "60"\n[cpu.extras]\nx = 1', "cpu.extras", r"did you mean \[extra\]"),
        ('time = "60"\n[cpu]\nslurm-conf = "/x"', "cpu.slurm-conf", "stands above the tables"),
        ('partition = "x"', "cpu.time", "is missing"),
        ('time = "soon"', "cpu.time", "a time such as"),
        ('time = "0"', "cpu.time", "a minute or more"),
        ("time = 04:00:00", "cpu.time", "a number or text in quotes"),
        ('time = "60"\nmem = "much"', "cpu.mem", 'such as "32G"'),
        ('time = "60"\n[gpu]\npartition = "x"', "gpu", "requests no GPU"),
        (
            'time = "60"\nwhole-node = true\ncpus-per-task = 2',
            "cpu.whole-node",
            "excludes cpus-per-task",
        ),
        ('time = "60"\nwhole-node = "yes"', "cpu.whole-node", "true or false"),
        ('time = "60"\ncpus-per-task = 0', "cpu.cpus-per-task", "whole number from 1"),
        ('time = "60"\nparallelism = 0', "cpu.parallelism", "whole number from 1"),
        ('time = "60"\nsetup = "module load x"', "cpu.setup", "a list of strings"),
        ('time = "60"\nsetup-file = "mine.sh"', "cpu.setup-file", "begins with / or ~/"),
        ('time = "60"\nextra = 3', "extra", "a table"),
        ('time = "60"\ncpu = 3', "cpu", "a table"),
        ("time = ", "", "not a TOML file"),
    ],
)
def test_a_mistake_is_named_with_its_key(tmp_path: Path, text: str, option: str, fact: str) -> None:
    with pytest.raises(Refused, match=fact) as refused:
        read_profile(write(tmp_path, text))
    assert refused.value.option == option


TIMES = ('"UNLIMITED"', '"4h"', "4.5", '"-1"', "2020-01-01", '"1:2:3:4"', '""', '"1-"', '"²"')
MEMORY = ('"1.5G"', '"32 GB"', '"32GiB"', '"-1"', "1.5", '"all"', '""', "true")
COUNTS = ("²", "a100:²", "٢", "0", "9" * 5000)
EXTRA = ("exclusive = true", 'extra = { array = "0-3" }', "extra = { ntasks-per-node = 4 }")


@pytest.mark.parametrize(
    ("line", "option"),
    [
        *((f"time = {value}", "cpu.time") for value in TIMES),
        *((f'time = "60"\nmem = {value}', "cpu.mem") for value in MEMORY),
        *((f'time = "60"\n[cpu]\n{line}', "") for line in EXTRA),
        *((f'time = "60"\n[gpu]\ngres = "gpu:{n}"', "gpu.gres") for n in COUNTS),
        *((f'time = "60"\n[gpu]\nextra = {{ gpus = "{n}" }}', "gpu.gpus") for n in COUNTS),
    ],
)
def test_a_form_that_sbatch_does_not_take_is_refused(
    tmp_path: Path, line: str, option: str
) -> None:
    with pytest.raises(Refused) as refused:
        read_profile(write(tmp_path, line))
    assert option in refused.value.option


def test_options_are_taken_as_users_of_sbatch_write_them(tmp_path: Path) -> None:
    for mem in ('"32G"', "16000", '"0"', '"1T"', '"32gb"'):
        profile = read_profile(write(tmp_path, f'time = "60"\nmem = {mem}'))
        assert profile.resources("cpu").options["mem"] == mem.strip('"')
    text = """
        time = "60"
        partition = ["a", "b"]
        nice = 100
        exclude = "n[1-3,7]"
        constraint = "[rack1|rack2]&nvlink"
        gres = "gpu:a100:1"
        extra = { hold = true, export = "NONE" }
    """
    resources = read_profile(write(tmp_path, text)).resources("cpu")
    assert dict(resources.options) == {
        "partition": "a,b",
        "nice": "100",
        "exclude": "n[1-3,7]",
        "constraint": "[rack1|rack2]&nvlink",
        "gres": "gpu:a100:1",
    }
    assert dict(resources.extra) == {"hold": True, "export": "NONE"}


@pytest.mark.parametrize(
    ("line", "secrets"),
    [
        ("export WANDB_API_KEY=0123abc", ["WANDB_API_KEY"]),
        ("HF_TOKEN='hf_x' Password=x", ["HF_TOKEN", "Password"]),
        ("export https_proxy=http://me:word@proxy:3128", ["an address with a password"]),
        ("login --access-key=1 --private_key=2", ["private_key"]),
        ('export WANDB_API_KEY=$(cat ~/.wandb) A_TOKEN="$B_TOKEN" C_SECRET=', []),
        ("export TOKENIZERS_PARALLELISM=false; source ~/secrets.sh", []),
        ("export https_proxy=http://proxy:3128; git clone git@host:a/b", []),
        ("export https_proxy=http://me:$WORD@proxy:3128", []),
    ],
)
def test_what_looks_like_a_secret_is_named(tmp_path: Path, line: str, secrets: list[str]) -> None:
    profile = read_profile(write(tmp_path, f"time = '60'\nsetup = [{json.dumps(line)}]"))
    assert profile.resources("cpu").secrets == secrets


def test_a_class_that_is_not_there_is_refused(tmp_path: Path) -> None:
    profile = read_profile(write(tmp_path, 'time = "60"'))
    with pytest.raises(ValueError, match=r"gpu = None: .* has no such table"):
        profile.resources("gpu")


def test_a_profile_of_gpus_alone_needs_no_time_of_cpus(tmp_path: Path) -> None:
    profile = read_profile(write(tmp_path, '[gpu]\ntime = "60"\ngres = "gpu:1"')).with_memory("2G")
    assert (profile.cpu, profile.resources("gpu").options["mem"]) == (None, "2G")
    with pytest.raises(
        ValueError, match=r"cpu = None: .* no such table: add \[cpu\] with its time"
    ):
        profile.resources("cpu")
    both = read_profile(write(tmp_path, 'time = "60"\n[gpu]\ngres = "gpu:1"'))
    assert both.resources("cpu").minutes == 60


def test_more_memory_replaces_every_kind_of_it(tmp_path: Path) -> None:
    text = 'time = "60"\nmem-per-cpu = "2G"\n[gpu]\ngpus = 1\nmem = "4G"'
    more = read_profile(write(tmp_path, text)).with_memory("32G")
    assert dict(more.resources("cpu").options) == {"mem": "32G"}
    assert dict(more.resources("gpu").options) == {"gpus": "1", "mem": "32G"}
    with pytest.raises(ValueError, match="lots"):
        more.with_memory("lots")


def test_a_profile_is_found_by_path_then_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Refused, match="no such cluster profile") as refused:
        find_profile("fast")
    assert refused.value.allowed == ()
    user_folder().mkdir(parents=True)
    mine = write(user_folder(), 'time = "60"', "fast.toml")
    assert find_profile("fast") == mine
    near = write(tmp_path, 'time = "60"', "fast.toml")
    assert find_profile("fast").resolve() == near
    assert find_profile("./fast.toml").resolve() == near
    with pytest.raises(Refused) as refused:
        find_profile("fats")
    assert refused.value.allowed == ("fast",)
    with pytest.raises(ValueError, match="no such file"):
        find_profile("./slow.toml")


def test_a_cluster_of_its_own_is_spoken_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    conf = tmp_path / "slurm.conf"
    profile = read_profile(write(tmp_path, f'time = "60"\nslurm-conf = "{conf}"'))
    with (
        pytest.raises(ClusterUnavailable, match="no such file"),
        commands.speaking_to(profile.slurm_conf),
    ):
        pass
    conf.touch()
    default = read_profile(write(tmp_path, 'time = "60"', "default.toml"))
    asked = partial(commands.run, ["printenv", "SLURM_CONF"])
    with commands.speaking_to(profile.slurm_conf):
        assert asked() == f"{conf}\n"
        with ThreadPoolExecutor() as others:
            assert others.submit(asked).result() == "/etc/slurm/slurm.conf\n", "another thread's"
        with commands.speaking_to(default.slurm_conf):
            assert asked() == "/etc/slurm/slurm.conf\n"
        assert os.environ["SLURM_CONF"] == "/etc/slurm/slurm.conf"
    assert asked() == "/etc/slurm/slurm.conf\n", "of the next in the same process"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_example_profiles_are_valid(path: Path) -> None:
    profile = read_profile(path)
    assert profile.cpu.options["account"] == "my-project"


def test_there_is_an_example_for_each_kind_of_cluster() -> None:
    examples = {path.stem: read_profile(path) for path in EXAMPLES.glob("*.toml")}
    assert examples.keys() == {"generic", "gpu", "whole-node"}
    assert examples["whole-node"].cpu.whole_node
    assert examples["gpu"].resources("gpu").processes_per_gpu == 4


def test_the_documented_profile_is_valid(tmp_path: Path) -> None:
    text, *_ = re.findall(  # the others are of other schedulers
        r"```toml\n(.*?)```", (ROOT / "docs" / "cluster.md").read_text(), re.DOTALL
    )
    assert read_profile(write(tmp_path, text)).resources("gpu").processes_per_gpu == 4


def test_every_key_of_a_profile_is_documented() -> None:
    page = (ROOT / "docs" / "cluster.md").read_text()
    assert [key for key in (*KEYS, "slurm-conf", "time") if f"`{key}`" not in page] == []
