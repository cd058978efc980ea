"""The command as a process: Ctrl-C at any moment, pipes that are closed, terminals of ASCII."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from manyseed.analysis.options import Options
from manyseed.orchestrator.cli.process import CommandProcess
from manyseed.orchestrator.disk.parquet import read_parquet, write_parquet
from tests.orchestrator.conftest import MANYSEED, inside

GRID = 'name = "s"\nseed = 1\n[[grid]]\ndataset = ["sklearn:wine"]\nclassifier = ["lr-sgd"]\n'
AT = """
import os, sys
class At:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ.get("AT"):
            os.environ["AT"] = ""
            os.kill(os.getpid(), int(os.environ["SIGNAL"]))
sys.meta_path.insert(0, At())
"""
"""A Python that sends itself a signal as it imports a module."""


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A small sweep whose names are those of rich's markup, and whose folder is a pattern."""
    folder = tmp_path_factory.mktemp("a[b]*?")
    rng = np.random.default_rng(0)
    np.savez(
        folder / "given.npz",
        scores=rng.normal(size=(4, 30)).astype(np.float32),
        y_true=rng.integers(0, 2, 30),
    )
    return Sweep.import_predictions(
        [folder / "given.npz"], folder / "s*[1]?", dataset="[/]é", classifier="[bold]x[/]"
    )


def ends(
    *arguments: object, shell: str = '"$@"', **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Run the command within a line of bash; stdout may be closed, so both are one."""
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {shell}", "bash", MANYSEED, *map(str, arguments)],
        env={**os.environ, "COLUMNS": "80", **environment},
        capture_output=True,
        timeout=120,
        check=False,
    )


def signalled(folder: Path, module: str, number: int, *arguments: object) -> tuple[int, bytes]:
    (folder / "sitecustomize.py").write_text(AT)
    found = ends(*arguments, PYTHONPATH=str(folder), AT=module, SIGNAL=str(int(number)))
    return found.returncode, found.stderr


@pytest.mark.parametrize(
    "module", ["manyseed.orchestrator.cli.process", "typer", "manyseed.orchestrator.survey"]
)
def test_ctrl_c_is_heard_from_the_first_import_on(
    sweep: Sweep, tmp_path: Path, module: str
) -> None:
    code, told = signalled(tmp_path, module, signal.SIGINT, "status", sweep.directory)
    assert code == 130, told
    assert b"Traceback" not in told


def test_what_is_terminated_leaves_nothing(sweep: Sweep, tmp_path: Path) -> None:
    file = sweep.export(tmp_path / "all.zip")
    for number in (signal.SIGTERM, signal.SIGHUP):
        asked = ("import", file, "--out", tmp_path / "sweep")
        code, told = signalled(tmp_path, "manyseed.orchestrator.survey", number, *asked)
        assert code == 128 + number, told
        assert b"Traceback" not in told
    left = {"all.zip", "sitecustomize.py", "__pycache__"}
    assert {path.name for path in tmp_path.iterdir()} <= left


WITHIN = """
import os, sys
class Within:
    def find_spec(self, name, path=None, target=None):
        if name == "manyseed.orchestrator.survey":
            sys.meta_path.remove(self)
            import polars
            made = polars.List.__init__
            def signalled(*words):
                polars.List.__init__ = made
                os.kill(os.getpid(), int(os.environ["SIGNAL"]))
                made(*words)
            polars.List.__init__ = signalled
sys.meta_path.insert(0, Within())
"""
"""A Python that sends itself a signal where polars' Rust calls a type of a table's column."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_table_that_was_being_read_is_not_damaged(
    sweep: Sweep, tmp_path: Path, number: int
) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHIN)
    folder = tmp_path / "s"
    shutil.copytree(sweep.directory, folder)
    cells = folder / "plan" / "cells.parquet"
    write_parquet(cells, read_parquet(cells).with_columns(more=pl.lit([1])))
    found = ends("status", folder, PYTHONPATH=str(tmp_path), SIGNAL=str(int(number)))
    told = b"Interrupted. To continue, run the same command again.\n"
    assert found.stderr == (told if number == signal.SIGINT else b"")
    assert (found.returncode, found.stdout) == (128 + number, b"")


READERS = {
    "polars": """
import polars as pl
table = pl.DataFrame({"a": [[1, 2]], "b": [{"x": 1}]}).lazy()
read, longest = table.collect_schema, 1e-4
""",
    "npz": """
import numpy as np
np.savez_compressed(folder / "a.npz", **{f"x{i}": np.ones((20, 30)) for i in range(5)})
longest = 2e-3
def read():
    with np.load(folder / "a.npz") as held:
        return [held[name] for name in held.files]
""",
    "zarr": """
import numpy as np, zarr
zarr.open_group(folder / "a", mode="w").create_array("x", data=np.ones((20, 30)), chunks=(5, 10))
longest = 0.05
def read():
    return zarr.open_group(folder / "a", mode="r")["x"][:]
""",
    "xarray": """
import numpy as np, xarray
made = xarray.Dataset({"x": (("a", "b"), np.ones((20, 30)))})
made.to_zarr(folder / "a", consolidated=False)
longest = 0.05
def read():
    return xarray.open_zarr(folder / "a", consolidated=False)["x"].mean().compute()
""",
    "dask": """
import dask.array as da
made, longest = da.ones((200, 200), chunks=50).sum(), 0.01
def read():
    return made.compute(scheduler="threads", num_workers=2)
""",
}
"""What signals come to while it reads."""


@pytest.mark.parametrize("reader", READERS)
def test_signals_at_many_instants_within_readers_end_the_command(
    tmp_path: Path, reader: str
) -> None:
    script = tmp_path / "many.py"
    script.write_text(MANY.replace("READER", READERS[reader]))
    found = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=300, check=False
    )
    assert (found.returncode, found.stderr) == (130, "")
    kinds = json.loads(found.stdout)
    # Python silences what comes while it destroys an object, such as a file within a zip
    assert kinds.pop("lost", 0) <= 2
    assert set(kinds) <= {"SystemExit", "KeyboardInterrupt"}, kinds
    assert sum(kinds.values()) >= 90


MANY = """
import collections, json, pathlib, random, signal, sys
from manyseed.orchestrator import cli
from manyseed.orchestrator.cli.process import CommandProcess

process = CommandProcess()
process._is_own = False
folder, sent = pathlib.Path(__file__).parent, []
READER
read()
kinds, draw = collections.Counter(), random.Random(1)
with process:
    ends = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    def turn(_, frame):
        if len(sent) > heard:
            return  # woken again: Python may have begun to wait just as the first one came
        sent.append(len(sent) % 2)
        ends[sent[-1]](ending[sent[-1]], frame)
    ending = (signal.SIGINT, signal.SIGTERM)
    signal.signal(signal.SIGALRM, turn)
    while sum(kinds.values()) < (300 if longest < 1e-3 else 100):
        heard, left = len(sent), 200
        try:
            signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-6, longest), 1)
            while left:
                read()
                left -= len(sent) > heard
            kinds["lost"] += 1
        except BaseException as end:
            # a lock's own exit may complain that it is not held: the signal is what came before
            while end.__context__ and not isinstance(end, (KeyboardInterrupt, SystemExit)):
                end = end.__context__
            kinds[type(end).__name__] += 1
            if sys.getprofile() is not None:
                kinds["profiled"] += 1

def main():
    print(json.dumps(kinds))
    raise SystemExit(130)

cli.main = main
cli.entry()  # as a command does that was ended
"""


def test_a_signal_while_a_lost_exception_is_handled_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process, sent = CommandProcess(), queue.Queue[int]()
    monkeypatch.setattr(signal, "pthread_kill", lambda _, number: sent.put(number))

    class Lost:
        @property
        def exc_value(self) -> None:
            process._end(signal.SIGTERM, sys._getframe())

    with warnings.catch_warnings():
        process._resend(Lost())  # type: ignore[arg-type]
    assert sent.get(timeout=60) == signal.SIGTERM


@pytest.mark.parametrize(
    ("shell", "code"),
    [
        ('"$@" | true', 141),
        ('"$@" >&-', 0),
        ('"$@" <&- >&- 2>&-', 0),
    ],
)
def test_closed_streams_are_no_error(sweep: Sweep, shell: str, code: int) -> None:
    found = ends("status", sweep.directory, "0:0:0", shell=shell)
    assert found.returncode == code, found.stderr
    assert found.stderr == b""


FULL = [
    *(["status"], ["status", "--json"], ["show", "0:0:0", "--json"]),
    *(["query", "--format", form] for form in ("csv", "json", "latex", "parquet")),
    *(["query", "-o", "-"], ["howmany", "--format", "csv"]),
]


@pytest.mark.parametrize("words", FULL, ids=" ".join)
def test_a_disk_that_takes_no_output_is_named(sweep: Sweep, words: Sequence[str]) -> None:
    verb, *more = words
    if verb in ("query", "howmany") and not (sweep.directory / "results").exists():
        sweep.analyze(Options(metrics=("accuracy",), resamples=2), workers=1)
    found = ends(verb, sweep.directory, *more, shell='"$@" > /dev/full')
    told = found.stderr.decode()
    assert (found.returncode, "standard output: No space left" in told) == (4, True), told
    assert "Traceback" not in told
    both = ends(verb, sweep.directory, *more, shell='"$@" > /dev/full 2>&1')
    assert both.returncode == 4


def test_a_current_folder_that_is_gone_is_said_to_be(sweep: Sweep, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(GRID)
    away = f'cd "{tmp_path}" && mkdir gone && cd gone && rmdir ../gone && "$@"'
    found = ends("status", sweep.directory, shell=away)
    assert (found.returncode, found.stderr) == (0, b"")
    found = ends("plan", tmp_path / "s.toml", "--out", tmp_path / "planned", shell=away)
    told = found.stderr.decode()
    assert (found.returncode, "the current folder no longer exists" in told) == (4, True), told
    assert not (tmp_path / "planned").exists()


SIZES = [{"COLUMNS": "0"}, {"COLUMNS": "²"}, {"TERMINAL_WIDTH": "x"}, {"LINES": "9" * 5000}]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_size_that_no_terminal_has_is_forgotten(sizes: dict[str, str]) -> None:
    found = ends("status", "nowhere", **sizes)
    assert (found.returncode, b"there is no such directory" in found.stderr) == (2, True)
    found = ends("status", "--help", **sizes)
    assert (found.returncode, b"--json" in found.stdout) == (0, True), found.stderr


ODD = os.fsdecode(b"/\xff\xfe")


@pytest.mark.parametrize(
    ("unset", "given"),
    [
        ("HOME", {}),
        ("USER", {"LOGNAME": ""}),
        ("", {"HOME": ""}),
        ("", {"HOME": ODD, "XDG_CONFIG_HOME": ODD, "XDG_CACHE_HOME": ODD}),
        ("", {"TMPDIR": ODD, "TERM": ODD, "LANG": ODD, "LC_ALL": "C"}),
    ],
    ids=str,
)
def test_odd_surroundings_are_no_error(sweep: Sweep, unset: str, given: dict[str, str]) -> None:
    shell = f'unset {unset}; "$@"' if unset else '"$@"'
    for words in (("status", sweep.directory), ("cluster", "check", "nowhere")):
        found = ends(*words, shell=shell, **given)
        told = found.stderr.decode(errors="replace")
        assert found.returncode == (0 if words[0] == "status" else 2), told
        assert "Traceback" not in told


def test_a_reader_that_leaves_early_is_no_error(sweep: Sweep) -> None:
    asked: Sequence[Sequence[object]] = (
        ("--help",),
        ("query", sweep.directory),
        ("query", sweep.directory, "--format", "csv"),
        ("query", sweep.directory, "--json"),
    )
    if not sweep.paths.results.exists():
        sweep.analyze(Options(metrics=("accuracy",), resamples=2), workers=1)
    for words in asked:
        found = ends(*words, shell='"$@" | true')
        assert (found.returncode, found.stderr) == (141, b""), words


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp1252", "utf-16"])
def test_output_in_any_encoding_is_no_error(sweep: Sweep, encoding: str) -> None:
    if not sweep.paths.results.exists():
        sweep.analyze(Options(metrics=("accuracy",), resamples=2), workers=1)
    where = sweep.directory
    for code, *words in (
        (0, "status", where),
        (0, "query", where, "--json"),
        (0, "report", where),
        (2, "plan", where.with_name("é.toml"), "--dry-run"),
    ):
        found = ends(*words, PYTHONIOENCODING=encoding)
        told = (found.stdout + found.stderr).decode(encoding, errors="replace")
        assert found.returncode == code, told
        assert "Traceback" not in told
        assert "error:" in told if code else "error:" not in told
        if words[0] == "query":
            assert {cell["dataset"] for cell in json.loads(found.stdout.decode(encoding))["rows"]}


def test_a_terminal_of_few_letters_shows_what_it_can(sweep: Sweep) -> None:
    few = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    assert "a^" in ends("analyze", "--help", **few).stdout.decode("ascii")
    found = ends("status", sweep.directory, **few)
    assert found.returncode == 0, found.stderr
    assert "[/]e" in found.stdout.decode("ascii")
    told = ends("status", sweep.directory, "--json", **few).stdout.decode("ascii")
    assert json.loads(told)["groups"][0]["dataset"] == "[/]é"


def test_names_of_markup_and_folders_of_patterns_are_names_like_others(sweep: Sweep) -> None:
    copy = sweep.directory.with_name("sxxx1x")  # what the folder's name would match
    copy.mkdir(exist_ok=True)
    asked: Sequence[Sequence[object]] = (
        ("analyze",),
        ("query", "-t", "runs"),
        ("query", "--where", "dataset = '[/]é'"),
        ("status",),
        ("verify",),
        ("compact",),
        ("export", "--output", sweep.directory.with_name("all.parquet")),
    )
    answered(sweep, asked)


@pytest.mark.slow
def test_names_of_markup_are_names_in_reports_too(sweep: Sweep) -> None:
    answered(sweep, [("analyze",), ("howmany", "--draws", "2"), ("report",)])


def answered(sweep: Sweep, asked: Sequence[Sequence[object]]) -> None:
    for verb, *options in asked:
        code, told = inside(verb, sweep.directory, *options)
        assert code in (0, 3), told
        if verb in ("analyze", "status", "howmany"):
            assert "[/]é" in told, verb
            assert "[bold]x[/]" in told, verb


LATE = """
import os, signal, sys, threading, time
from manyseed.orchestrator.cli import main, process

def wait(write=os.write, sleep=time.sleep):
    write(1, b"now")
    sleep(5)

class Late:
    def __del__(self, wait=wait):
        wait()

def thread():
    while signal.getsignal(signal.SIGINT) is not process._leave:
        time.sleep(0.01)
    wait()

sys.argv = ["manyseed", "--version"]
{hold}
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("hold", ["threading.Thread(target=thread).start()", "late = Late()"])
def test_a_signal_after_a_command_is_no_death_by_it(hold: str, number: signal.Signals) -> None:
    # somebody waits for threads; where the interpreter takes itself apart the command has ended
    code = 128 + number if "thread" in hold else 0
    command = [sys.executable, "-c", LATE.replace("{hold}", hold)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        heard = b""
        while not heard.endswith(b"now"):
            heard += process.stdout.read(1)
        process.send_signal(number)
    assert process.returncode == code


ENTRY = """
import atexit, os, sys, threading
from manyseed.orchestrator import cli

class Held:
    def __del__(self, write=os.write):
        write(1, b" taken apart")

def main():
    import polars
    held.append(Held())
    print("said", end="")
    raise SystemExit(3)

held = []
cli.main = main
atexit.register(lambda: print(" exit", end=""))
{more}
cli.entry()
"""
LATER = """
def last():
    threading.main_thread().join()
    print(" thread", end="")
threading.Thread(target=last).start()
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("", "said exit"),
        (LATER, "said thread exit taken apart"),
        ("sys.setprofile(lambda *_: None)", "said exit taken apart"),
    ],
)
def test_a_command_ends_at_once_where_nothing_is_waited_for(more: str, told: str) -> None:
    code = ENTRY.replace("{more}", more)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, told, "")


HELD = """
import atexit, os, signal, sys, threading
from manyseed.orchestrator import cli

{more}
held = threading.Lock()
held.acquire()
waiting = threading.Thread(target=held.acquire)
def main():
    waiting.start()
    atexit.register(print, "exit")
    raise SystemExit({code})

cli.main = main
cli.entry()
"""


@pytest.mark.process
@pytest.mark.parametrize("code", [129, 130, 143])
@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("cli._PATIENCE = 0.1", ""),
        ("threading.Timer(0.2, lambda: held.release()).start()", "exit\n"),
    ],
)
def test_a_command_ends_after_a_signal_even_if_a_lock_is_held_for_good(
    more: str, told: str, code: int
) -> None:
    script = HELD.replace("{more}", more).replace("{code}", str(code))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, told, "")


BUSY = """
import atexit, time
from manyseed.orchestrator import cli

def own():
    raise ValueError("own")

def main():
    import polars, zarr.core.sync
    zarr.core.sync._get_loop().call_soon_threadsafe(time.sleep, 1)
    time.sleep(0.1)
    atexit.register(own)
    raise SystemExit({code})

cli.main = main
cli.entry()
"""


@pytest.mark.process
@pytest.mark.parametrize("code", [0, 130])
def test_a_thread_of_zarr_that_is_busy_at_exit_is_not_told(code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BUSY.replace("{code}", str(code))],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("Exception ignored in atexit callback: <function own")
    assert "zarr" not in done.stderr
    assert "event loop" not in done.stderr


@pytest.mark.process
@pytest.mark.parametrize("given", [{}, {"OMP_NUM_THREADS": "2"}, {"OPENBLAS_NUM_THREADS": "2"}])
def test_numpy_of_a_command_starts_no_threads_but_those_asked_for(given: dict[str, str]) -> None:
    code = (
        "import os\n"
        "from manyseed.orchestrator import cli\n"
        "def main():\n"
        "    import numpy\n"
        "    print(len(os.listdir('/proc/self/task')), os.environ.get('OPENBLAS_NUM_THREADS'))\n"
        "    raise SystemExit\n"
        "cli.main = main\n"
        "cli.entry()\n"
    )
    free = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=free | given, check=True)
    threads = min(2, os.cpu_count() or 1) if given else 1
    assert done.stdout.split() == [str(threads), given.get("OPENBLAS_NUM_THREADS", "None")]


DEAF = """
import os, sys, time
from manyseed.orchestrator.cli import commands, main

class Dying:
    def __del__(self):
        os.write(1, b"now")
        time.sleep(5)

def app():
    Dying()
    time.sleep(60)

commands.app = app
sys.argv = ["manyseed", "status"]
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_an_object_is_destroyed_is_heard(number: signal.Signals) -> None:
    command = [sys.executable, "-c", DEAF]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        heard = b""
        while not heard.endswith(b"now"):
            heard += process.stdout.read(1)
        process.send_signal(number)
        said = b"Interrupted. To continue, run the same command again.\n"
        assert process.stdout.read() == (said if number == signal.SIGINT else b"")
    assert process.returncode == 128 + number


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_end_is_heard_at_any_moment(sweep: Sweep, number: int) -> None:
    dice = Random(0)
    for verb in ("status", "logs", "query", "analyze", "export", "plan") * 6:
        more = {"logs": ["--failed"], "export": ["--output", "never.zip"]}
        process = subprocess.Popen(
            [sys.executable, "-c", _RUN, verb, sweep.directory, *more.get(verb, [])],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=sweep.directory.parent,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        time.sleep(dice.uniform(0, 1))  # any moment is right
        process.send_signal(number)
        told = process.stdout.read()
        # -number: before it began, or all was done
        assert process.wait() in (128 + number, 0, 2, -number), told
        assert not any(word in told for word in (b"Traceback", b"panicked", b"damaged")), told
        sweep.directory.with_name("never.zip").unlink(missing_ok=True)


_RUN = """
import sys
from manyseed.orchestrator.cli import main
print("begun", flush=True)
main()
"""


def test_a_file_that_hides_a_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("")
    hidden = ends("datasets", "list", PYTHONPATH=str(tmp_path))
    assert hidden.returncode == 2
    told = hidden.stderr.decode().replace("\n", "")
    assert "torch.py" in told
    assert "PYTHONPATH" in told
    assert "Traceback" not in told


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("-x", {"OMP_NUM_THREADS": "", "MKL_NUM_THREADS": "auto", "TMPDIR": "/nowhere"}),
        ("~x", {"OMP_NUM_THREADS": "4,2", "HOME": "/nonexistent", "COLUMNS": "1"}),
        ("lr=0.1 50% done", {"PYTHONWARNINGS": "error", "LC_ALL": "C", "PYTHONUTF8": "0"}),
    ],
)
def test_a_sweep_is_trained_in_odd_surroundings(
    tmp_path: Path, name: str, given: dict[str, str]
) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "s.toml").write_text(
        GRID.replace('["lr-sgd"]', '["lr-sgd", "xgb", "mlp"]').replace(
            "[[", "repeats = 1\nruns = 2\n[[", 1
        )
        + "[classifier.mlp]\nepochs = 1\n"
    )
    where = f'cd "{tmp_path}"; "$@"'
    words = ("run", f"./{name}/s.toml", "--out", f"./{name}/[1]", "--cluster", "local")
    found = ends(*words, shell=where, XDG_CONFIG_HOME=str(tmp_path / "config"), **given)
    told = (found.stdout + found.stderr).decode(errors="replace")
    assert (found.returncode, "Traceback" in told, "Warning:" in told) == (0, False, False), told
    runs = Sweep(tmp_path / name / "[1]").status()["runs"]
    assert (runs["done"] + runs["copy"], runs["missing"], runs["failed"]) == (6, 0, 0)
