"""CSV files as spreadsheets write them: other separators, decimal commas, marks of encoding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets import fetch, load, resolve

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
    with pytest.raises(Refused, match=rf"{name}.*: {said}, so it is not UTF-8; save it as UTF-8"):
        resolve(f"file:{path}", target="y", ignore=["x"])


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
