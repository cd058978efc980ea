"""What the command prints on a terminal of 80 columns, and where there is none."""

import ast
import io
import re
from pathlib import Path

import polars as pl
import pytest
import typer
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from manyseed import Sweep
from manyseed.orchestrator.cli import answers, arguments, keep, output, status, train
from manyseed.orchestrator.cli.commands import app
from manyseed.orchestrator.results.questions import registry
from tests.orchestrator.conftest import inside, write

COLUMNS = 80
ROOT = Path(__file__).parents[3]
LIBRARIES = ("jobs", "slurm", "analysis")


def commands():
    """The commands that the help lists; earlier verbs have the examples of what replaces them."""

    def under(command, path):
        yield path
        for name, child in getattr(command, "commands", {}).items():
            if not child.hidden and path != ("answers",):  # a question is asked below a DIR
                yield from under(child, (*path, name))

    return list(under(typer.main.get_command(app), ()))


def every(app):
    def under(command):
        yield command
        for child in getattr(command, "commands", {}).values():
            yield from under(child)

    return under(typer.main.get_command(app))


def verbs():
    """Every command that takes words, those that the help does not list too, as it is typed."""

    def under(command, path):
        if command.params:
            yield path, command
        for name, child in getattr(command, "commands", {}).items():
            yield from under(child, (*path, name))

    asked = [(("answers", "DIR", name), answers.command_of(name)) for name in registry.known()]
    return [*under(typer.main.get_command(app), ()), *asked]


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ((2, 0), "2 tasks asked to stop."),
        ((0, 1), "1 waiting task cancelled."),
        ((1, 3), "1 task asked to stop, 3 waiting tasks cancelled."),
    ],
)
def test_tasks_that_there_are_not_are_not_said_to_be_stopped(tasks, said):
    assert train._stopped(tasks[0], "asked to stop", tasks[1], "cancelled") == said


def test_a_damaged_store_of_whole_runs_is_not_said_to_be_right():
    found = {"findings": [{"problem": "lost"}], "runs_wrong": 0}
    assert keep._verdict(found) == "their predictions are whole, other files are damaged."
    assert keep._verdict({**found, "runs_wrong": 2}) == "2 are wrong."
    assert keep._verdict({**found, "runs_wrong": 1}) == "1 is wrong."


def console(monkeypatch, *, terminal):
    found = Console(file=io.StringIO(), width=COLUMNS, force_terminal=terminal, no_color=True)
    monkeypatch.setattr(output, "console", found)
    return found


def test_an_option_has_one_name_and_one_letter_in_every_verb():
    letters = {"--out": "-o", "--where": "-w", "--metric": "-m", "--format": "-f", "--table": "-t"}
    for command in every(app):
        for option in command.params:
            names = {*option.opts}
            assert "--output" not in names, command.name
            for name, letter in letters.items():
                assert (letter in names) == (name in names), (command.name, names)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["export", "DIR", "--output", "a.zip"], ["export", "DIR", "--out", "a.zip"]),
        (["plan", "s.toml", "--output=d"], ["plan", "s.toml", "--out=d"]),
        (["query", "DIR", "--caption", "--output"], ["query", "DIR", "--caption", "--output"]),
        (["query", "DIR", "-n", "--", "--output"], ["query", "DIR", "-n", "--", "--output"]),
        (["submit", "DIR", "--where", "--only"], ["submit", "DIR", "--only", "--only"]),
        (["cancel", "DIR", "--now", "-w", "a = 1"], ["cancel", "DIR", "--now", "--only", "a = 1"]),
        (["query", "DIR", "-w", "a = 1"], ["query", "DIR", "-w", "a = 1"]),
        (["status", "DIR", "--output", "x"], ["status", "DIR", "--output", "x"]),
    ],
)
def test_scripts_may_use_another_name_of_an_option(words, shown):
    verb = typer.main.get_command(app).commands[words[0]]
    parameters = verb.get_params(typer.Context(verb))
    assert [*arguments._as_shown(parameters, words)] == shown


def test_what_is_written_goes_to_either_spelling(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for spelling in ("--out", "--output", "-o"):
        code, _ = inside("init", "--example", "quickstart", spelling, f"s{spelling}.toml")
        assert code == 0
    assert len({file.read_text() for file in tmp_path.glob("s*.toml")}) == 1


@pytest.mark.parametrize("width", [60, COLUMNS])
def test_help_is_shown_as_it_is_written(monkeypatch, width):
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", width)
    for path in commands():
        shown = CliRunner().invoke(app, [*path, "--help"]).output
        assert all(cell_len(line) <= width for line in shown.splitlines()), path
        # no emoji of a CELL:REPEAT:RUN, no underlined heading, no name in brackets lost
        assert not re.search(r"[\U0001F000-\U0001FAFF]|^\s*-{4,}", shown, re.MULTILINE), path
        if "[ARGS]..." not in shown:
            assert re.search(rf"Examples:\s+\$ manyseed {' '.join(path)}\b", shown), path
    for name in registry.known():
        shown = CliRunner().invoke(app, ["answers", "quickstart", name, "--help"]).output
        assert all(cell_len(line) <= width for line in shown.splitlines()), name
        assert re.search(rf"Examples:\s+\$ manyseed answers quickstart {name}\b", shown), name
    shown = CliRunner().invoke(app, ["analyze", "--help"]).output
    assert "table [analysis]." in " ".join(shown.split())


def test_no_library_names_a_verb_a_flag_or_a_table_of_the_sweep_file():
    """They say what is wrong as facts; what to type or to write, whoever knows of commands says."""
    flags = {option for group in every(app) for one in group.params for option in one.opts}
    flags = {flag for flag in flags if flag.startswith("--")} - {"--help", "--version"}
    verbs = {f"manyseed {' '.join(path)}" for path in commands() if path}
    words = "|".join(f"{re.escape(word)}(?![\\w-])" for word in flags | verbs)
    tables = r"\[\[grid|\[(classifier|dataset|analysis|keep|tune)\b|\b(keep|analysis)\.\w+ ="
    for file in (file for name in LIBRARIES for file in (ROOT / name).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_bytes())):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and "\n" not in text:  # no docstring
                assert not re.search(f"{words}|{tables}", text), (file, text)


def test_sentences_break_between_words_on_a_terminal_and_nowhere_else(monkeypatch):
    text = "ece is not computed for [this] dataset × classifier: " + "it needs probabilities, " * 4
    told = console(monkeypatch, terminal=True)
    output.say(text, indent=2, to=told)
    lines = told.file.getvalue().splitlines()
    assert len(lines) > 1
    assert all(line.startswith("  ") and len(line) <= COLUMNS for line in lines)
    assert " ".join(" ".join(lines).split()) == text.strip()

    piped = console(monkeypatch, terminal=False)
    output.say(text, to=piped)
    assert piped.file.getvalue() == text + "\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_the_next_command_can_be_copied(monkeypatch, terminal):
    told = console(monkeypatch, terminal=terminal)
    output.say_next("Next", "resume", "/a path/" + "long/" * 20, "--failed")
    expected = f"Next: manyseed resume '/a path/{'long/' * 20}' --failed\n"
    assert told.file.getvalue() == expected


def test_a_nested_table_says_each_name_once(monkeypatch):
    told = console(monkeypatch, terminal=False)
    rows = [("some data", "mlp", 1), ("other", "xgb", 2000), ("some data", "xgb", 30)]
    columns = ("dataset", "classifier", "runs")
    output.print_table(None, columns, rows, total=("all", "", 2031), nested=True)
    assert [line.split() for line in told.file.getvalue().splitlines()] == [
        ["classifier", "runs"],
        ["some", "data"],
        ["mlp", "1"],
        ["xgb", "30"],
        ["other"],
        ["xgb", "2,000"],
        ["all", "2,031"],
    ]


def test_columns_without_any_value_are_left_out(monkeypatch):
    told = console(monkeypatch, terminal=False)
    columns, rows = ("cell", "sd", "mean"), [("a", None, 0.5), ("b", "–", None)]
    output.print_table(None, columns, rows)
    assert [line.split() for line in told.file.getvalue().splitlines()] == [
        ["cell", "mean"],
        ["a", "0.5000"],
        ["b", "–"],
    ]
    told = console(monkeypatch, terminal=False)
    output.print_rows(columns, rows, 2, asked=False)
    assert told.file.getvalue().splitlines()[-1] == "Undefined here: sd"
    told = console(monkeypatch, terminal=False)
    output.print_rows(columns, rows, 2)
    assert told.file.getvalue().splitlines()[0].split() == list(columns)


def test_a_table_with_a_total_names_what_it_has_no_room_for(monkeypatch):
    told = console(monkeypatch, terminal=False)
    told.width = 24
    columns = ("dataset", "classifier", "runs", "done", "missing\nruns")
    total = ("all", "", 5, 5, 5)
    output.print_table(None, columns, [("d", "mlp", 5, 5, 5)], total=total, nested=True)
    lines = told.file.getvalue().splitlines()
    assert lines[-1] == "No room for missing runs"
    assert [line.split() for line in lines[-3:-1]] == [["mlp", "5", "5"], ["all", "5", "5"]]


def test_names_of_options_are_whole_in_a_narrow_terminal(monkeypatch):
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 60)
    shown = CliRunner().invoke(app, ["analyze", "--help"]).output
    assert all(cell_len(line) <= 60 for line in shown.splitlines())
    names = "".join(re.findall(r"^│ (\S+)", shown, re.MULTILINE))  # broken, not cut
    for command in every(app):
        if command.name == "analyze":
            for option in command.params[1:]:
                assert option.opts[-1] in names


@pytest.mark.parametrize(
    ("n", "noun", "expected"),
    [(1, "run", "1 run"), (0, "run", "0 runs"), (2000, "process", "2,000 processes")],
)
def test_counted(n, noun, expected):
    assert output.counted(n, noun) == expected


def test_columns_that_there_is_no_room_for_are_named_and_none_is_cut(monkeypatch):
    told = console(monkeypatch, terminal=False)
    names = [f"column_{number}" for number in range(12)]
    frame = pl.DataFrame({"dataset": ["a-name-of-a-dataset"], **dict.fromkeys(names, 0.123456)})
    output.print_frame(frame, 10)
    lines = told.file.getvalue().splitlines()
    missing = re.search(r"No room for (.*); see", " ".join(lines))
    assert missing is not None
    shown = len(names) - len(missing[1].split(", "))
    assert max(map(len, lines[:-1])) <= COLUMNS
    assert "\n".join(lines).count("0.1235") == shown
    assert missing[1].split(", ") == names[shown:]


@pytest.mark.parametrize(("width", "broken"), [(80, 0), (64, 1), (50, 3)])
def test_heads_of_columns_break_at_underscores_where_there_is_no_room(monkeypatch, width, broken):
    told = Console(file=io.StringIO(), width=width, no_color=True)
    monkeypatch.setattr(output, "console", told)
    names = ["train_fraction", "accuracy_mean", "alpha_hat_mean", "n_identical_repeats"]
    output.print_frame(pl.DataFrame({"dataset": ["wine"], **dict.fromkeys(names, 0.5)}), 10)
    shown = told.file.getvalue()
    assert sum(name not in shown for name in names) == broken
    assert "No room" not in shown
    assert max(map(len, shown.splitlines())) <= width


def test_a_short_name_is_not_cut_for_the_sake_of_more_columns(monkeypatch):
    told = Console(file=io.StringIO(), width=40, no_color=True)
    monkeypatch.setattr(output, "console", told)
    names = {"by": ["relative:0.5"], "a": ["sixteen-letters-"], "n": [123456], "last": [1.5]}
    output.print_frame(pl.DataFrame(names), 10)
    assert "sixteen-letters-" in told.file.getvalue()
    assert "No room for last" in told.file.getvalue()


def test_a_table_leaves_out_columns_rather_than_break_names(monkeypatch):
    told = Console(file=io.StringIO(), width=60, no_color=True)
    monkeypatch.setattr(output, "console", told)
    columns = ("source", "samples", "features", "categorical", "classes", "fetched")
    rows = [("sklearn:breast_cancer", 569, 30, 0, 2, True), ("openml:car@3", 1728, 6, 6, 4, False)]
    output.print_table(None, columns, rows)
    head, first, second, last = told.file.getvalue().splitlines()
    assert head.split() == list(columns[:-1])
    assert [line.split()[0] for line in (first, second)] == [row[0] for row in rows]
    assert last == "No room for fetched"


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("nested", [True, False])
def test_no_cell_is_broken_within_a_number_or_a_name(monkeypatch, width, nested):
    told = Console(file=io.StringIO(), width=width, no_color=True)
    monkeypatch.setattr(output, "console", told)
    words = ["breast-cancer × lr-sgd", "0.5 · relative:0.1 · sig-digit:0", "perturb_hparams"]
    numbers = ["-0.0085 ± 0.0071*", "0.980 ± 0.007", 123456, 0.123456, "<0.01", "2,000"]
    heads = [f"head_number_{n}" for n in range(len(words) + len(numbers))]
    rows = [[*words, *numbers], [*words, *numbers]]
    output.print_table(None, heads, rows, nested=nested)
    output.print_rows(heads, rows, len(rows))
    shown = told.file.getvalue()
    table = [line for line in shown.splitlines() if "No room" not in line]
    assert max(map(cell_len, table)) <= width
    whole = [name for text in words for name in text.split()]
    whole += [text for number in map(output.shown, numbers) for text in [number, *number.split()]]
    allowed = {*whole, *(part for head in heads for part in re.split("(?<=_)", head)), *heads}
    left = {word.strip(",;") for word in shown.split()} - allowed
    assert left <= {"No", "room", "for", "see", "--columns", "and", "--out"}
    assert all(line.count("±") == len(re.findall(r"\d ± \d", line)) for line in table)


def test_lines_of_a_nested_cell_keep_its_indent(monkeypatch):
    told = Console(file=io.StringIO(), width=30, no_color=True)
    monkeypatch.setattr(output, "console", told)
    output.print_table(None, ("", "cell", "n"), [("d", "0.5 · sig-digit:0", 100000)], nested=True)
    lines = [line.rstrip() for line in told.file.getvalue().splitlines()]
    assert "  0.5 · sig-digit:0 100,000" in lines
    told.width = 25
    output.print_table(None, ("", "cell", "n"), [("d", "0.5 · sig-digit:0", 100000)], nested=True)
    assert "  sig-digit:0" in [line.rstrip() for line in told.file.getvalue().splitlines()]


@pytest.mark.parametrize("terminal", [True, False])
def test_shards_are_counted_on_a_terminal_alone(monkeypatch, terminal):
    told = console(monkeypatch, terminal=terminal)
    monkeypatch.setattr(output, "console", told)
    with output.shards_done("verifying") as tell:
        tell(0, 12)
        tell(12, 12)
    shown = told.file.getvalue()
    assert ("verifying" in shown and "12/12 shards" in shown) is terminal
    assert bool(shown) is terminal


def test_the_list_of_commands_holds_every_one():
    page = (ROOT / "docs" / "commands.md").read_text()
    listed = set(re.findall(r"`(?:manyseed )?(\w+)", page))
    hidden = {path[0] for path in commands() if path} - listed
    assert not hidden


@pytest.mark.parametrize("terminal", [True, False])
def test_what_defines_a_run_is_broken_beside_its_key(monkeypatch, terminal):
    told = console(monkeypatch, terminal=terminal)
    monkeypatch.setattr(status, "console", told)
    value = {"digest": "0f" * 32, "ignore": ["date", "visit"], "source": "file", "version": 1}
    status.print_values({"cell": 0, "description": {"dataset": value, "vary": ["init"]}})
    first, head, *lines = told.file.getvalue().splitlines()
    assert (first.split(), head) == (["cell", "0"], "description:")
    assert lines[0].startswith("  dataset " + " " * 13 + "{")
    assert all(line.startswith(" " * 23) for line in lines[1:-1])
    assert (len(lines) > 2) is terminal
    assert max(map(len, lines)) <= COLUMNS or not terminal
    assert "".join(lines[:-1]).replace(" ", "").endswith('"source":"file","version":1}')


def test_every_command_and_option_of_the_pages_is_there():
    """Whatever a page or an example tells one to type, run by another test or not."""
    pages = (*ROOT.glob("*.md"), *ROOT.glob("*/*.md"), *ROOT.glob("examples/**/*.toml"))
    seen = 0
    for page in pages:
        text = re.sub(r"\\\n\s*", " ", page.read_text())
        typed = re.findall(r"^(?:# +)?manyseed (.*)$", text, re.MULTILINE)
        for line in typed + re.findall(r"`manyseed ([^`]*)`", text):
            words = re.sub(r"--sort[ =]\S+", "", re.split(r" [#|&]|;", line)[0]).split()
            command = typer.main.get_command(app)
            while words and words[0] in getattr(command, "commands", {}):
                command = command.commands[words.pop(0)]
            if command.name == "answers" and len(words) > 1 and words[1] in registry.known():
                command = answers.command_of(words[1])
            if words[:1] == ["COMMAND"]:
                continue
            there = {option for one in command.params for option in one.opts + one.secondary_opts}
            asked = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
            assert asked <= there | {"-h", "--help"}, (page, line)
            is_group = "commands" in vars(command) and command.name != "answers"
            assert not is_group or not words or words[0][0] == "-", (page, line)
            seen += len(asked)
    assert seen > 100


def test_dropping_cells_asks_whether_to_do_so_permanently(tmp_path):
    text = """
name    = "two"
seed    = 1
repeats = 2
runs    = 3

[[grid]]
dataset    = ["cancer"]
classifier = ["lr-sgd", "xgb"]

[dataset.cancer]
source = "sklearn:breast_cancer"
"""
    sweep = Sweep.plan(write(tmp_path / "two.toml", text), tmp_path / "sweep")
    asked = ["drop", str(sweep.directory), "--where", "classifier = 'xgb'"]
    found = CliRunner().invoke(app, asked, input="n\n")
    assert "Permanently drop 1 cell (6 runs, 0 finished)? [y/N]" in found.output
    assert found.exit_code == 1
    dry = CliRunner().invoke(app, [*asked, "--dry-run"]).output
    assert "1 cell (6 runs, 0 finished). Nothing was written" in dry
    done = CliRunner().invoke(app, [*asked, "--yes"]).output
    assert "Dropped 1 cell (6 runs, 0 finished)." in done


@pytest.mark.parametrize("value", ["", " "])
def test_no_verb_takes_an_empty_word_for_an_option_that_is_not_given(value):
    """As `--dataset "$NAME"` has it if NAME is not set: of every option of every verb."""
    tried = 0
    for path, command in verbs():
        for option in command.params:
            if option.opts[0].startswith("-") and not getattr(option, "is_flag", False):
                for words in [(name, value) for name in option.opts] + [
                    (f"{name}={value}",) for name in option.opts if name.startswith("--")
                ]:
                    code, told = inside(*path, *words)
                    assert (code, f"{words[0].rstrip('= ')}: is empty" in told) == (2, True), (
                        path,
                        words,
                        told,
                    )
                    tried += 1
        if any(not one.opts[0].startswith("-") for one in command.params):
            code, told = inside(*path, value)
            assert (code, "is empty" in told) == (2, True), (path, told)
    assert tried > 200


def test_times_below_a_second_are_told_as_such() -> None:
    times = {0.0: "0 s", 0.00002: "<0.001 s", 0.0083: "0.0083 s", 0.25: "0.25 s", 59.0: "59 s"}
    assert {seconds: output.duration(seconds) for seconds in times} == times
    minutes = {0.0: "–", 0.0001: "<0.001", 0.002: "0.002", 0.25: "0.25", 1234.0: "1,234"}
    assert {number: output.amount(number) for number in minutes} == minutes
