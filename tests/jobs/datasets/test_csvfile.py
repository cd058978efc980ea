"""CSV files as spreadsheets write them: other separators, decimal commas, marks of encoding."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets import csvfile, fetch, load, resolve, sources
from manyseed.orchestrator.grids.plannotes import Notes, data_notes

ROWS = [
    ("1.5", "a,b", "2", "no"),
    ("-2.25", "c", "10", "yes"),
    ("", "a,b", "3", "no"),
    ("0.5e1", "c", "4", "yes"),
    ("7", "d", "5", "no"),
    ("8", "d", "6", "yes"),
]


def written(folder: Path, separator: str, *, comma: bool = False, bom: bool = False) -> Path:
    lines = ["x,kind,n,y".replace(",", separator)]
    for x, kind, n, y in ROWS:
        text = f'"{kind}"' if separator in kind else kind
        lines.append(separator.join([x.replace(".", ",") if comma else x, text, n, y]))
    path = folder / f"{len(list(folder.iterdir()))}.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8-sig" if bom else "utf-8")
    return path


def samples(path: Path, **options: object):
    info = resolve(f"file:{path}", target="y", test=2, **options)
    fetch(info)
    return info, load(info.canonical)


@pytest.mark.parametrize("bom", [False, True])
@pytest.mark.parametrize(("separator", "comma"), [(";", False), (";", True), ("\t", True)])
def test_each_form_holds_the_same(tmp_path: Path, separator: str, comma: bool, bom: bool) -> None:
    _, plain = samples(written(tmp_path, ","))
    info, other = samples(written(tmp_path, separator, comma=comma, bom=bom))
    np.testing.assert_array_equal(other.X, plain.X)
    np.testing.assert_array_equal(other.y, plain.y)
    np.testing.assert_array_equal(other.cardinality, plain.cardinality)
    assert [column.name for column in info.columns] == ["x", "kind", "n"]


@pytest.mark.parametrize(("suffix", "encoding"), [(".tsv", "utf-8"), (".csv", "utf-16")])
def test_so_do_a_tsv_and_what_spreadsheets_call_unicode(
    tmp_path: Path, suffix: str, encoding: str
) -> None:
    _, plain = samples(written(tmp_path, ","))
    text = written(tmp_path, "\t", comma=True).read_text()
    path = tmp_path / f"other{suffix}"
    path.write_bytes(text.encode(encoding))
    _, other = samples(path)
    np.testing.assert_array_equal(other.X, plain.X)
    np.testing.assert_array_equal(other.y, plain.y)


def test_what_is_cut_off_is_no_such_file(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("x,y\n1,0\n".encode("utf-16")[:-1])
    with pytest.raises(Refused, match=r"cannot be read as \.csv"):
        resolve(f"file:{path}", target="y")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.csv", "größe,y\n1,0\n2,1\n".encode("latin-1"), "line 1 holds the byte 0xf6"),
        ("t.csv", "x,ort\n1,a\n2,é\n".encode("cp1252"), "line 3 holds the byte 0xe9"),
        ("t.tsv", "µm\ty\n1\t0\n2\t1\n".encode("latin-1"), "line 1 holds the byte 0xb5"),
        ("t.csv", "x,y\n1,0\n2,1\n".encode("utf-16-le"), "line 1 holds the byte 0x00"),
    ],
)
def test_bytes_that_are_not_utf8_are_refused_with_their_line(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(
        Refused, match=rf"{name}.*: {said}, so it is not UTF-8.*; save it as UTF-8"
    ) as error:
        resolve(f"file:{path}", target="y", ignore=["x"])
    of = "utf-16le" if b"\0" in content else "windows-1252"
    command = str(error.value).rpartition("convert it: ")[2]
    new = path.with_stem("t-utf8")
    assert command.startswith(f"iconv -f {of} -t utf-8 {path} > {new}")
    subprocess.run(["bash", "-c", command], check=True)
    assert new.read_bytes().decode() == content.decode(of)


@pytest.mark.parametrize("separator", [",", ";"])
@pytest.mark.parametrize(
    ("header", "ignore", "said", "needed"),
    [
        ("a,a,b,c,y", [], "2 columns called 'a'", ["a", "a_duplicated_0"]),
        ("a,a,b,c,y", ["a"], "2 columns called 'a'", ["a", "a_duplicated_0"]),
        ("b,a,a,c,y", ["b"], "2 columns called 'a'", ["a", "a_duplicated_0", "b"]),
        (",,b,c,y", [], "2 columns without a name", ["", "_duplicated_0"]),
        ("a,y,b,c,y", [], "2 columns called 'y'", None),
    ],
)
def test_columns_of_one_name_are_refused_unless_all_are_ignored(
    tmp_path: Path,
    separator: str,
    header: str,
    ignore: list[str],
    said: str,
    needed: list[str] | None,
) -> None:
    path = tmp_path / "t.csv"
    rows = [header, *(f"{n},{n * n},{n % 5},{n % 3},{n % 2}" for n in range(8))]
    path.write_text("\n".join(rows).replace(",", separator) + "\n")
    with pytest.raises(Refused, match=rf"t\.csv.* has {said}; rename them") as error:
        resolve(f"file:{path}", target="y", ignore=ignore)
    assert error.value.needs == ({} if needed is None else {"ignore": needed})
    if needed is not None:
        info, _ = samples(path, ignore=needed)
        assert info.n_features == 4 - len(needed)
        path.write_text(path.read_text().replace("1", "01"))
        info, _ = samples(path, ignore=needed)
        assert [each.looks for each in info.columns if each.kind != "ignored"] == [
            "zeros"
        ] * info.n_features


def test_one_column_may_have_no_name(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(",x,y\n" + "".join(f"{n},{n},{n % 2}\n" for n in range(8)))
    info, _ = samples(path)
    assert [column.name for column in info.columns] == ["", "x"]


def test_commas_decide_where_the_first_line_has_one(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a;b,y\n" + "".join(f"{n};0,{n % 2}\n" for n in range(9)))
    info, _ = samples(path)
    assert [column.name for column in info.columns] == ["a;b"]


def test_texts_that_are_no_numbers_throughout_stay_texts(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = [("1,5", "1.234,5", "1,5"), ("2", "2", "x")] * 4
    path.write_text(
        "a;b;c;label;y\n"
        + "".join(f"{';'.join(row)};0,{n};{n % 2}\n" for n, row in enumerate(rows))
    )
    info, _ = samples(path, categorical=["label"])
    kinds = {column.name: column.kind for column in info.columns}
    assert kinds == {
        "a": "continuous",
        "b": "categorical",
        "c": "categorical",
        "label": "categorical",
    }


LINES = [f"{i}.5;{'ab'[i % 2]}" for i in range(20)]


@pytest.mark.parametrize(
    "text",
    [
        "x;y\n" + "\n".join(LINES) + "\n\n\n",
        "x;y\n" + "\n\n".join(LINES),
        "\r\n\r\nx;y\r\n" + "\r\n  \r\n".join(LINES) + "\r\n\r\n",
        "sep=;\nx;y\n" + "\n".join(LINES),
        "sep=,\nx,y\n" + "\n".join(LINES).replace(";", ","),
        "SEP=\t\r\nx\ty\r\n" + "\r\n".join(LINES).replace(";", "\t"),
        '\ufeff"sep=;"\r\n"x";"y"\r\n' + "\r\n".join(LINES),
        "x;y\n" + "\n".join(LINES) + "\n\x1a",
        "x;y\r" + "\r".join(LINES),
    ],
    ids=["end", "between", "CRLF", "sep", "comma", "tab", "quoted sep", "end mark", "CR"],
)
def test_what_is_neither_names_nor_rows_is_left_out(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text, newline="")
    info, data = samples(path)
    assert (info.n_samples, [column.name for column in info.columns]) == (20, ["x"])
    assert data.X[:, 0].tolist() == [i + 0.5 for i in range(20)]


def test_blank_lines_within_quotes_are_text(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + '"p\n\nq",a\n\nr,b\n' * 4)
    info, _ = samples(path)
    assert (info.n_samples, info.columns[0].n_labels) == (8, 2)
    frame = csvfile.read(path.read_bytes())
    assert frame["x"].unique().sort().to_list() == ["p\n\nq", "r"]


def test_a_blank_line_of_a_single_column_is_a_missing_value() -> None:
    frame = csvfile.read(b"fit_seconds\n1.5\n\n2.5\n", missing=())
    assert frame["fit_seconds"].to_list() == [1.5, None, 2.5]


@pytest.mark.parametrize(
    ("names", "separator", "found"),
    [
        ('"Age, years";y', ";", "Age, years"),
        ('"Weight\nkg";y', ";", "Weight\nkg"),
        ('"a;b"\ty', "\t", "a;b"),
        ('"a,b",y', ",", "a,b"),
    ],
)
def test_what_separates_names_is_outside_of_quotes(
    tmp_path: Path, names: str, separator: str, found: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(names + "\n" + "\n".join(LINES).replace(";", separator))
    info, _ = samples(path)
    assert [column.name for column in info.columns] == [found]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# made 2020\nx,y\n1,a\n2,b\n", "line 2 has 2 fields, but the first line, '# made 2020'"),
        ("x,y\n1,a,\n2,b,\n", "line 2 has 3 fields, but the first line, 'x,y', names 2 columns"),
        ('x,y\n"p,a\n', "quotation marks"),
    ],
)
def test_what_is_wrong_with_a_table_is_said_in_our_words(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(Refused, match=re.escape(said)) as error:
        resolve(f"file:{path}", target="y")
    assert "Schema" not in str(error.value)
    with pytest.raises(csvfile.Unreadable, match=re.escape(said)):
        csvfile.read(text.encode())


def test_latin_1_in_a_name_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("gr\u00f6\u00dfe,y\n1,a\n2,b\n".encode("latin-1"))
    with pytest.raises(Refused, match="line 1 holds the byte 0xf6, so it is not UTF-8"):
        resolve(f"file:{path}", target="y")


def test_labels_that_are_one_as_numbers_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    codes = ["01", "1", "02", "2"] * 6
    path.write_text("g,v,y\n" + "".join(f"{g},{i}.5,{g}\n" for i, g in enumerate(codes)))
    assert samples(path)[0].class_names == ("01", "1", "02", "2")
    path.write_text("g,v,y\n" + "".join(f"{g},{i}.5,{i % 2}\n" for i, g in enumerate(codes)))
    _, data = samples(path, categorical=["g"])
    assert data.cardinality.tolist() == [4, 0]
    info = resolve(f"file:{path}", target="y", group="g", test=6)
    assert info.group_sizes[0] == 4
    path.write_text("v,y\n" + "".join(f"{i}.5,{('1e1', '10')[i % 2]}\n" for i in range(12)))
    assert samples(path)[0].class_names == ("10", "1e1")


def test_labels_that_are_not_are_read_as_before(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("v,y\n" + "".join(f"{i}.5,0{i % 3}\n" for i in range(12)))
    info, _ = samples(path)
    assert info.class_names == ("0", "1", "2")
    (note,) = data_notes(info)
    assert note.startswith('y holds numbers with leading zeros, such as "00"; the names of its cl')
    path.write_text(
        "v,y\n" + "".join(f"{i}.5,{('1', '1.0', '2.50', '2.5')[i % 4]}\n" for i in range(12))
    )
    info, _ = samples(path)
    assert info.class_names == ("1.0", "2.5")
    assert [*data_notes(info)] == [f'y {MERGED} "1", "1.0"']
    assert "y" not in [column.name for column in info.columns]


MERGED = "holds numbers written in several ways, which are taken as one:"
APART = "has labels that are the same number:"


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("key", ["categorical", "group", "folds"])
def test_one_number_written_in_several_ways_is_noted(tmp_path: Path, suffix: str, key: str) -> None:
    """A CSV has numbers, which are one; text of Parquet stays apart, as it always did."""
    path = tmp_path / f"t{suffix}"
    frame = pl.DataFrame(
        {
            "g": [("1", "1.0", "2", "3")[i % 4] for i in range(40)],
            "v": [i / 7 for i in range(40)],
            "y": ["a", "b", "b", "a", "b"] * 8,
        }
    )
    getattr(frame, f"write_{suffix[1:]}")(path)
    given = ["g"] if key == "categorical" else "g"
    info = resolve(f"file:{path}", target="y", **{key: given})
    (note,) = data_notes(info)
    assert note == f'g {MERGED if suffix == ".csv" else APART} "1", "1.0"'


@pytest.mark.parametrize("labels", [("1", "2"), ("01", "1"), ("1.5", "2.5"), ("a", "1.0")])
def test_numbers_written_in_one_way_are_not(tmp_path: Path, labels: tuple[str, str]) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "g,v,y\n" + "".join(f"{labels[i % 2]},{i}.5,{'aab'[i % 3]}\n" for i in range(12))
    )
    notes = [*data_notes(resolve(f"file:{path}", target="y", categorical=["g"]))]
    assert notes == ([f'g {APART} "01", "1"'] if labels[0] == "01" else [])


SAME = [
    ("größe", "gro\u0308ße"),
    ("x", "x "),
    ("a b", "a\u00a0b"),
    ("x", "x\u200b"),
]


@pytest.mark.parametrize("same", SAME)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_names_of_columns_that_look_the_same_are_refused_unless_all_are_ignored(
    tmp_path: Path, same: tuple[str, str], suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"t{suffix}"
    one, other = same
    columns = {one: range(12), other: [i / 2 for i in range(12)], "z": [i % 5 for i in range(12)]}
    frame = pl.DataFrame({**columns, "y": ["a", "b"] * 6})
    getattr(frame, f"write_{suffix[1:]}")(path)
    for ignore in ([], [one]):
        with pytest.raises(Refused, match=r"t\.(csv|parquet).*names look the same") as error:
            resolve(f"file:{path}", target="y", ignore=ignore)
        assert error.value.needs == {"ignore": sorted(same)}
    assert samples(path, **error.value.needs)[0].n_features == 1
    with monkeypatch.context() as earlier:
        earlier.setattr(sources, "_require_columns", lambda *_: None)
        before, _ = samples(path)
    assert resolve(f"file:{path}", target="y", test=2) == before
    assert resolve(f"file:{path}", target="y", test=3).n_test == 3
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "elsewhere"))
    frame.rename({"y": "q", "z": "y"}).rename({"q": "y "}).write_csv(tmp_path / "u.csv")
    with pytest.raises(Refused, match="names look the same") as error:
        resolve(f"file:{tmp_path / 'u.csv'}", target="y ", ignore=[*same])
    assert error.value.needs == {}


@pytest.mark.parametrize(
    ("separator", "values", "looks", "shown"),
    [
        (";", ["850", "1,200", "12,500", "990"], "thousands", ("1,200",)),
        ("\t", ["1,234,567", "1,000"], "", ()),
        ("\t", ["850", "1,200", "12,500", "990"], "thousands", ("1,200",)),
        (";", ["850,5", "1,200"], "", ()),
        (";", ["1.200", "12.500", "850"], "thousands", ("1.200",)),
        (";", ["0.125", "1.200"], "", ()),
        (",", ["1.200", "12.500"], "", ()),
        (",", ["01234", "23456", "34567"], "zeros", ("01234",)),
        (";", ["007", "8"], "zeros", ("007",)),
        (",", ["0.5", "0", "-0.25"], "", ()),
    ],
)
def test_numbers_that_may_mean_something_else_are_found(
    tmp_path: Path, separator: str, values: list[str], looks: str, shown: tuple[str, ...]
) -> None:
    path = tmp_path / ("t.tsv" if separator == "\t" else "t.csv")
    lines = [f"{values[i % len(values)]},{i}.5,{'aabab'[i % 5]}" for i in range(40)]
    if separator != ",":
        lines = [separator.join(line.rsplit(",", 2)) for line in lines]
    path.write_text("\n".join([separator.join("xzy"), *lines]))
    info = resolve(f"file:{path}", target="y")
    if info.columns[0].kind == "continuous":
        assert (info.columns[0].looks, info.columns[0].shown) == (looks, shown)
    else:
        assert info.columns[0].looks == "numbers"
    assert any(f"d: {note}".startswith("d: x ") for note in data_notes(info)) == bool(
        info.columns[0].looks
    )


def test_ids_with_more_digits_than_a_float_has_are_found(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "".join(f"{12345678901234567890 + i},{i % 2}\n" for i in range(40)))
    assert resolve(f"file:{path}", target="y").columns[0].looks == "id"


def test_a_table_without_names_that_was_taken_before_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("".join(f"{i / 4 + 1.5},{'ab'[i % 2]}\n" for i in range(20)))
    with monkeypatch.context() as earlier:
        earlier.setattr(csvfile, "data_as_header", lambda *_: None)
        before = resolve(f"file:{path}", target="a")
        fetch(before)
    assert resolve(f"file:{path}", target="a") == before
    assert resolve(f"file:{path}", target="a", test=4).n_test == 4
    with pytest.raises(Refused, match="has no names of columns"):
        resolve(f"file:{path}", target="1.5")
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(Refused, match="has no names of columns"):
        resolve(f"file:{path}", target="a")


def test_blanks_after_commas_are_part_of_names_and_labels(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x, y\n" + "".join(f"{i}.5, {('<=50K', '>50K')[i % 2]}\n" for i in range(40)))
    with pytest.raises(Refused, match='unknown column; there are x, " y"'):
        resolve(f"file:{path}", target="y")
    assert resolve(f"file:{path}", target=" y").class_names == (" <=50K", " >50K")


def test_truth_in_any_case_is_one_label(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    words = ("TRUE", "True", "FALSE", "false")
    path.write_text("x,y\n" + "".join(f"{words[i % 4]},{words[i // 4 % 4]}\n" for i in range(48)))
    info, data = samples(path)
    assert (info.class_names, info.class_counts) == (("false", "true"), (24, 24))
    assert data.X[:4, 0].tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("word", ["inf", "Infinity", "1e400", "-1e400", "∞"])
def test_infinite_numbers_are_refused_or_noted(tmp_path: Path, word: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "x,y\n" + "".join(f"{word if i == 5 else i},{'ab'[i % 2]}\n" for i in range(40))
    )
    if word in ("∞", "Infinity"):  # text
        (note,) = data_notes(resolve(f"file:{path}", target="y"))
        assert note.startswith(f'x holds numbers besides "{word}", so it is taken as a category')
    else:
        with pytest.raises(Refused, match="holds infinite numbers in column 'x'"):
            resolve(f"file:{path}", target="y")


@pytest.mark.parametrize("n", [2_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_notes_on_a_wide_table_are_short(tmp_path: Path, n: int) -> None:
    path = tmp_path / "t.csv"
    rows = [",".join([*(f"{i}.{j % 97}" for j in range(n)), "ab"[i % 2]]) for i in range(12)]
    path.write_text("\n".join([",".join([*(f"g{j}" for j in range(n)), "y"]), *rows]))
    info = resolve(f"file:{path}", target="y")
    notes = Notes()
    notes.facts_of({"d": info}, ["d"])
    (line,) = notes.lines()
    assert line.startswith(f"d: columns are interpreted as {n} continuous: g0, g1, g2")
    assert len(line) < 200
