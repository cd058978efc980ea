"""Commands: what they are told, what is read of them, how they fail, and that nothing is left."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
import pytest

from manyseed.jobs import classifiers
from manyseed.jobs.checks import Refused
from manyseed.jobs.own import command, guard, probe, record, table
from manyseed.jobs.own.calling import CommandError
from manyseed.jobs.own.copies import find_files
from manyseed.jobs.own.findings import Findings
from manyseed.jobs.run import MachineError, Prediction, seed31
from manyseed.jobs.training.checkpoint import Checkpoint
from manyseed.jobs.training.handling import Handling
from tests.jobs.classifiers.examples import binary, mixed, multiclass
from tests.jobs.own.test_estimator import generators

FILES = "{train} {test} {out}"


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The node's temporary folder, of this test alone."""
    place = tmp_path / "scratch"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def settings(text: str, copy: Path | None = None, **options: Any) -> dict[str, Any]:
    own = table.read({"command": text, **options})
    streams = tuple(table.draws_from(own.command["command"]))
    canonical = record.description(own, Findings(scores="logits", streams=streams))
    if copy is not None:
        command.use(copy, canonical)
    return canonical


def fit(
    canonical: dict[str, Any], data: Any, run: int = 0, timeout: float = 60.0, **hparams: Any
) -> Prediction:
    drawn = generators(run)
    return classifiers.fit(canonical, hparams, data, drawn, Handling(timeout=timeout))


def program(folder: Path, text: str, name: str = "train.py") -> Path:
    """Write a script into a folder of its own, which is returned."""
    place = folder / "copy"
    place.mkdir(exist_ok=True)
    start = "import sys\nimport numpy as np\ntrain, test, out = sys.argv[1:4]\n"
    (place / name).write_text(start + text)
    return place


def test_a_command_is_told_what_its_words_ask_for(tmp_path: Path, scratch: Path) -> None:
    data, _ = multiclass()
    text = (
        "X, y, X_test = np.load(train)['X'], np.load(train)['y'], np.load(test)['X']\n"
        "assert np.load(test).files == ['X']\n"
        "print(sys.argv)\n"
        "values = [len(y), y.sum(), *map(float, sys.argv[4:9])]\n"
        "assert sys.argv[9:] == ['a b', 'true', '{x}', 'cpu', '4'], sys.argv\n"
        "np.save(out, np.outer(X_test[:, 0], np.arange(4)) + 1e-3 * len(values))\n"
        "open(out + '.npy', 'ab').close()\n"
        "np.savetxt('values', values)\n"
        f"import shutil; shutil.copy('values', {str(tmp_path / 'values')!r})\n"
    )
    canonical = settings(
        f"python train.py {FILES} {{seed}} {{seeds.init}} {{seeds.batch}} {{seeds.dropout}} "
        "{hparams.lr} {hparams.text} {hparams.flag} '{{x}}' {device} {n_classes}",
        program(tmp_path, text),
        params={"text": "x", "flag": False, "lr": 0.5},
    )
    found = fit(canonical, data, 3, lr=0.1, text="a b", flag=True)
    values = np.loadtxt(tmp_path / "values")
    drawn = generators(3)
    batch, dropout, init = (seed31(getattr(drawn, name)) for name in ("batch", "dropout", "init"))
    expected = [len(data.y), data.y.sum(), batch, init, batch, dropout, 0.1]
    np.testing.assert_allclose(values, expected)
    scores = np.outer(data.X_test[:, 0], np.arange(4)) + 7e-3
    np.testing.assert_allclose(found.scores[0], scores, rtol=1e-6)
    assert classifiers.consumes(canonical, None) == frozenset({"init", "batch"})
    assert not [*scratch.iterdir()]


WRITTEN = {
    "npz": ("np.savez(out, other=np.zeros(3), scores=S)", "logits"),
    "npz by kind": ("np.savez(out, scores=np.zeros(3), probabilities=P)", "probabilities"),
    "exact name": (
        "open(out, 'wb').write(open(np.save('x.npy', S) or 'x.npy', 'rb').read())",
        "logits",
    ),
    "csv": ("np.savetxt(out + '.csv', S, delimiter=',')", "logits"),
    "csv with names": (
        "np.savetxt(out, S, delimiter=',', header='\"a\",b,c,d', comments='')",
        "logits",
    ),
    "parquet": ("import polars as pl\npl.DataFrame(S).write_parquet(out + '.parquet')", "logits"),
    "labels": ("np.savetxt(out, S.argmax(axis=1), fmt='%d')", "labels"),
    "labels as npz": ("np.savez(out, labels=S.argmax(axis=1))", "labels"),
}


@pytest.mark.parametrize("form", WRITTEN)
def test_what_it_writes_is_read_whatever_its_form(tmp_path: Path, form: str) -> None:
    data, _ = multiclass()
    line, how = WRITTEN[form]
    text = (
        "X = np.load(test)['X']\n"
        "S = np.column_stack([X[:, :3], X[:, 0] * X[:, 1]])\n"
        "P = np.exp(S) / np.exp(S).sum(axis=1, keepdims=True)\n"
    )
    copy = program(tmp_path, text + line)
    found = fit(settings(f"python train.py {FILES}", copy, scores=how), data)
    S = np.column_stack([data.X_test[:, :3], data.X_test[:, 0] * data.X_test[:, 1]])
    np.testing.assert_array_equal(found.label[0], S.argmax(axis=1))
    if how == "logits":
        np.testing.assert_allclose(found.scores[0], S, rtol=1e-6)
    assert np.isnan(found.confidence).all() == (how == "labels")


def test_rows_as_csv_and_parquet_are_the_same_rows(tmp_path: Path) -> None:
    data, _ = mixed()
    for form in ("csv", "parquet"):
        text = (
            f"import shutil; shutil.copy(train, {str(tmp_path / form)!r})\n"
            "import polars as pl\n"
            f"n = len(pl.read_{form}(test))\n"
            "np.savetxt(out, np.arange(3 * n).reshape(n, 3), delimiter=',')\n"
        )
        fit(settings(f"python train.py {FILES}", program(tmp_path, text), rows=form), data)
        read = pl.read_csv if form == "csv" else pl.read_parquet
        frame = read(tmp_path / form)
        np.testing.assert_array_equal(frame["y"].to_numpy(), data.y)
        X = frame.drop("y").cast(pl.Float64).fill_null(np.nan).to_numpy()
        np.testing.assert_array_equal(X, data.X)


FAILING = {
    "sys.exit('planted')": "ended with code 1: planted",
    "1 / 0": "ended with code 1: ZeroDivisionError: division by zero",
    "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)": "ended by signal 11",
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": "killed, as by a system that runs",
    "print('hello')": r"wrote nothing to \{out\}",
    "np.savez(out, a=1); np.save(out, 1)": "wrote several files",
    "np.save(out, np.zeros((3, 4)))": r"returned shape \(3, 4\); \(\d+, 4\) is needed",
    "np.save(out, np.full((len(np.load(test)['X']), 4), np.nan))": "not finite",
    "open(out, 'w').write('a,b\\nc,d\\n')": "cannot be read: ValueError",
    "np.savez(out, a=np.zeros(3), b=np.zeros(3))": "none of its arrays a, b is called logits",
    "open(out, 'wb').write(b'PK\\x03\\x04rubbish')": "cannot be read",
}


@pytest.mark.parametrize("line", FAILING)
def test_what_goes_wrong_in_it_fails_the_run_with_its_log(
    tmp_path: Path, scratch: Path, line: str
) -> None:
    data, _ = multiclass()
    copy = program(tmp_path, f"print('so far'); sys.stdout.flush()\n{line}")
    with pytest.raises(CommandError, match=FAILING[line]) as failed:
        fit(settings(f"python train.py {FILES}", copy), data)
    assert "so far" in "".join(failed.value.__notes__)
    assert not [*scratch.iterdir()]


def test_a_command_that_hangs_is_ended_with_all_that_it_started(
    tmp_path: Path, scratch: Path
) -> None:
    data, _ = multiclass()
    pids = tmp_path / "pids"
    text = (
        "import os, subprocess, time\n"
        "one = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
        " start_new_session=True)\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{one.pid}}')\n"
        "time.sleep(600)\n"
    )
    canonical = settings(f"python train.py {FILES}", program(tmp_path, text))
    for seconds in (1, 5, 60):  # on a busy machine, the command takes long to start
        if not pids.exists():
            with pytest.raises(CommandError, match=f"ended after {seconds} s, its timeout"):
                fit(canonical, data, timeout=float(seconds))
    for pid in map(int, pids.read_text().split()):
        assert is_gone(pid)
    assert not [*scratch.iterdir()]


def is_gone(pid: int) -> bool:
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


HANGING = """
import sys
import tempfile
from pathlib import Path
from tests.jobs.own.test_command import settings, fit, multiclass
tempfile.tempdir = sys.argv[1]
fit(settings("python train.py {train} {test} {out}", Path(sys.argv[2])), multiclass()[0])
"""


def waited_for(what: Any, said: str) -> None:
    until = time.monotonic() + 120
    while not what():
        assert time.monotonic() < until, said
        time.sleep(0.02)


def test_a_killed_process_takes_its_command_and_its_scratch_along(
    tmp_path: Path, scratch: Path
) -> None:
    pids = tmp_path / "pids"
    text = (
        "import os, subprocess, time\n"
        "one = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
        " start_new_session=True)\n"
        f"open({str(tmp_path / 'new')!r}, 'w').write(f'{{os.getpid()}} {{one.pid}}')\n"
        f"os.rename({str(tmp_path / 'new')!r}, {str(pids)!r})\n"
        "time.sleep(600)\n"
    )
    copy = program(tmp_path, text)
    process = subprocess.Popen([sys.executable, "-c", HANGING, str(scratch), str(copy)])
    waited_for(pids.exists, "the command has not begun")
    assert [*scratch.iterdir()]
    process.send_signal(signal.SIGKILL)
    process.wait()
    for pid in map(int, pids.read_text().split()):
        waited_for(lambda pid=pid: is_gone(pid), "the command goes on")
    waited_for(lambda: not [*scratch.iterdir()], "its scratch folder is left")


def test_what_it_writes_does_not_reach_the_copy(tmp_path: Path) -> None:
    data, _ = multiclass()
    text = (
        "import helper\n"
        "open('helper.py', 'a').write('changed = True')\n"
        "np.save(out, np.load(test)['X'][:, :4] * helper.SIZE)\n"
    )
    copy = program(tmp_path, text)
    (copy / "helper.py").write_text("SIZE = 2.0\n")
    found = fit(settings(f"python train.py {FILES}", copy), data)
    np.testing.assert_allclose(found.scores[0], 2 * data.X_test[:, :4], rtol=1e-6)
    assert (copy / "helper.py").read_text() == "SIZE = 2.0\n"
    assert {each.name for each in copy.iterdir()} == {"train.py", "helper.py"}


def test_no_shell_reads_it(tmp_path: Path) -> None:
    data, _ = binary()
    text = (
        "assert sys.argv[4:] == ['$HOME', '*', ';', 'rm']\nnp.save(out, np.load(test)['X'][:, 0])"
    )
    copy = program(tmp_path, text)
    found = fit(settings(f"python train.py {FILES} $HOME * ; rm", copy), data)
    np.testing.assert_allclose(found.scores[0], data.X_test[:, 0], rtol=1e-6)


def test_a_program_that_is_not_there_is_the_machines_fault(scratch: Path) -> None:
    data, _ = binary()
    with pytest.raises(MachineError, match="cannot be started: no-such-program: No such file"):
        fit(settings(f"no-such-program {FILES}"), data)
    assert not [*scratch.iterdir()]


def test_a_checkpoint_folder_outlives_an_interruption(tmp_path: Path) -> None:
    data, _ = binary()
    text = (
        "from pathlib import Path\n"
        "done = Path(sys.argv[4]) / 'done'\n"
        "if not done.exists():\n"
        "    done.write_text('half'); sys.exit('interrupted')\n"
        "np.save(out, np.load(test)['X'][:, 0])\n"
    )
    canonical = settings(f"python train.py {FILES} {{checkpoint}}", program(tmp_path, text))
    handling = Handling(checkpoint=Checkpoint(tmp_path / "0-1", "mine"))
    with pytest.raises(CommandError, match="interrupted"):
        classifiers.fit(canonical, {}, data, generators(), handling)
    assert classifiers.fit(canonical, {}, data, generators(), handling).scores.shape[0] == 1


REFUSED = [
    ("python train.py {train} {test}", {}, r"\{out\} is missing"),
    (f"python {FILES} {{sed}}", {}, r"there is no \{sed\}; did you mean \{seed\}\?"),
    (
        f"python {FILES} {{hparams.lt}}",
        {"params": {"lr": 1.0}},
        r"no \{hparams.lt\}; did you mean \{hparams.lr\}",
    ),
    (f"python {FILES}", {"params": {"lr": 1.0}}, r"\{hparams.lr\} is missing"),
    (f"python '{FILES}", {}, "no closing quotation"),
    ("", {}, "is empty"),
    (f"python {FILES}", {"params": {"sizes": [1, 2]}}, "params.sizes"),
    (f"python {FILES}", {"rows": "xlsx"}, "npz, csv, parquet"),
    (f"python {FILES}", {"files": ["../secret"]}, "beside the script"),
    (f"python {FILES}", {"timeout": 0}, "above 0"),
    (f"python {FILES}", {"seeds": {}}, "seeds"),
]


@pytest.mark.parametrize(("text", "options", "said"), REFUSED)
def test_what_a_table_may_not_say(text: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        table.read({"command": text, **options})


def test_a_command_is_called_by_its_script() -> None:
    for text, name in {
        "python train.py --x 1": "train.py",
        "python -m mine.train {out}": "mine.train",
        "Rscript --vanilla src/fit.R {out}": "src/fit.R",
        "/opt/bin/fit {out}": "fit",
    }.items():
        assert table.command_name(table.split_command("command", text)) == name


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "project"
    for name, text in {
        "train.py": "import helper, numpy\nfrom pkg.inner import x",
        "helper.py": "",
        "other.py": "",
        "pkg/__init__.py": "",
        "pkg/inner.py": "import deeper",
        "deeper.py": "",
        "conf/a.yaml": "a: 1",
        "conf/b/c.yaml": "",
        "src/run.py": "import beside",
        "src/beside.py": "",
        "fit.R": "source('more.R')",
        "more.R": "",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    before = Path.cwd()
    yield root
    os.chdir(before)


@pytest.mark.parametrize(
    ("text", "patterns", "expected"),
    [
        (
            "python train.py",
            [],
            {"train.py", "helper.py", "pkg/__init__.py", "pkg/inner.py", "deeper.py"},
        ),
        ("python src/run.py", [], {"src/run.py", "src/beside.py"}),
        ("python -m pkg.inner", [], {"pkg/__init__.py", "pkg/inner.py", "deeper.py"}),
        ("Rscript fit.R", ["*.R", "conf"], {"fit.R", "more.R", "conf/a.yaml", "conf/b/c.yaml"}),
        ("prog --config=conf/a.yaml", [], {"conf/a.yaml"}),
    ],
)
def test_its_files_are_those_that_it_names_and_what_they_import(
    project: Path, text: str, patterns: list[str], expected: set[str]
) -> None:
    code = find_files(text.split(), patterns, [project.parent, project])
    assert {*code.files} == expected
    assert code.root == project.resolve()


def test_files_that_are_nowhere_are_refused(project: Path) -> None:
    with pytest.raises(Refused, match=r"there is no trian\.py in"):
        find_files(["python", "trian.py"], [], [project])
    with pytest.raises(Refused, match="has nothing of that name"):
        find_files(["python", "train.py"], ["config"], [project])
    assert find_files(["installed", "fit"], [], [project]).root is None


READING = """
import sys
import tempfile
import time
from pathlib import Path
from manyseed.jobs.own import command
from tests.jobs.own.test_command import settings, fit, multiclass
tempfile.tempdir = sys.argv[1]

def read(*_):
    Path(sys.argv[3]).touch()
    time.sleep(600)

command.read = read
fit(settings("python train.py {train} {test} {out}", Path(sys.argv[2])), multiclass()[0])
"""


def test_a_process_killed_while_it_reads_leaves_no_scratch(tmp_path: Path, scratch: Path) -> None:
    copy, told = program(tmp_path, "np.save(out, np.zeros(3))"), tmp_path / "told"
    process = subprocess.Popen([sys.executable, "-c", READING, str(scratch), str(copy), str(told)])
    waited_for(told.exists, "nothing is read")
    process.send_signal(signal.SIGKILL)
    process.wait()
    waited_for(lambda: not [*scratch.iterdir()], "its scratch folder is left")


def test_a_process_with_many_open_files_can_wait_for_a_command() -> None:
    """Its descriptors have numbers above those that select() takes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("the system allows no more than 1,024 open files")
    ours, theirs = os.pipe()
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    try:
        high = fcntl.fcntl(ours, fcntl.F_DUPFD, 1500)
        with subprocess.Popen(["true"]) as process:
            assert guard._waited(process, high, 60.0) == "code 0"
        os.close(theirs)
        with subprocess.Popen(["sleep", "60"]) as process:
            assert guard._waited(process, high, 60.0) is None, "the task is gone"
            process.kill()
        os.close(high)
    finally:
        os.close(ours)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_start_up_of_a_command_does_not_grow_with_its_rows() -> None:
    seconds, rows, more = 1.6, 64, 1024
    startup = probe._startup(seconds, rows, 1.9, more)
    assert startup == pytest.approx(1.58)
    assert probe._startup(seconds, rows, 1.5, more) == pytest.approx(0.99 * seconds), "by noise"
    assert probe._startup(seconds, rows, 100.0, more) == 0
    asked = [probe._times_as_many(s, is_command=True) for s in (0.01, 3.0, 5.0, 14.0, 16.0)]
    assert asked == [16, 16, 12, 4, 1 / 4], "imports on a loaded machine are no matter of rows"
    asked = [probe._times_as_many(s, is_command=False) for s in (0.1, 0.3, 5.0)]
    assert asked == [0, 4, 1 / 4], "long fits are compared with shorter ones"
    assert probe._startup(6.0, 64, 5.7, 16) == pytest.approx(5.6)
    canonical = Findings.from_json(asdict(Findings(seconds=seconds, startup=startup)))
    expected = record._seconds(canonical)
    data = cast(Any, None)
    assert [expected(data, data, n) for n in (32, 1024)] == pytest.approx([1.6, 1.9])
    earlier = {"seeds": {}, "scores": "", "seconds": 2.0, "notes": ()}
    assert record._seconds(Findings.from_json(earlier))(data, data, 640) == 20
