"""Text files of rows: what the csv module writes is read back, and what it would not write is named by its line."""

import csv
import gzip
import io

import pytest
from hypothesis import given, strategies as st

from mpibow.convert.table_files import check_widths, rows_of
from mpibow.errors import RecordError
from tests.refusals import refuses

CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")) | st.text(
    st.sampled_from("\"',;\t|\n\r\x85\u2028\x0b #=a1"), max_size=5
)


@given(
    st.integers(2, 4).flatmap(lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), min_size=1)),
    st.sampled_from(",;\t|"),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    st.booleans(),
)
def test_what_is_written_is_read(tmp_path_factory, rows, separator, end, coding, packed):
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=separator, lineterminator=end, quoting=csv.QUOTE_ALL).writerows(rows)
    path = tmp_path_factory.getbasetemp() / f"table.csv{'.gz' * packed}"
    data = text.getvalue().encode(coding)
    path.write_bytes(gzip.compress(data) if packed else data)
    assert [cells for _, cells in rows_of(path)] == rows


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1), st.sampled_from(",;\t|"))
def test_with_few_quotes(tmp_path_factory, rows, separator):
    """The first line names the separator, as cells may have others; spaces at a cell's begin are not kept."""
    path = tmp_path_factory.getbasetemp() / "few.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(f"sep={separator}\r\na{separator}b\r\n")
        csv.writer(file, delimiter=separator, skipinitialspace=True).writerows(rows)
    assert [[cell.lstrip(" ") for cell in cells] for _, cells in rows_of(path)[1:]] == [
        [cell.lstrip(" ") for cell in row] for row in rows
    ]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('"Price, EUR";"Area, m2"\n1;2\n', [(1, ["Price, EUR", "Area, m2"]), (2, ["1", "2"])]),
        ('"size\n(m2)",b\n\n1,2\n', [(1, ["size\n(m2)", "b"]), (4, ["1", "2"])]),
        ("\n \na,b\r1,2\r", [(3, ["a", "b"]), (4, ["1", "2"])]),
        ('sep=|\na,b|"c\nd"\n1|2', [(2, ["a,b", "c\nd"]), (4, ["1", "2"])]),
        ('a, "b, c"\n1, "2"\n', [(1, ["a", "b, c"]), (2, ["1", "2"])]),
        ("name;x,y\nn;1\n", [(1, ["name", "x,y"]), (2, ["n", "1"])]),
        ("#,b\n1,2\n", [(1, ["#", "b"]), (2, ["1", "2"])]),
        ("a\x0bb\u2028c,d\n", [(1, ["a\x0bb\u2028c", "d"])]),
        ("one\ntwo\n", [(1, ["one"]), (2, ["two"])]),
        ("\n\n", []),
    ],
)
def test_rows_and_their_lines(tmp_path, text, rows):
    (tmp_path / "a.csv").write_text(text, encoding="utf-8", newline="")
    assert rows_of(tmp_path / "a.csv") == rows


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'a,b\n"1,2\n3,4\n', "line 2: unexpected end of data; is a quote missing or not doubled?"),
        (b'a,b\n\n"1"2",3\n', "line 3: ',' expected after '\"'; is a quote missing or not doubled?"),
        (b"a;b,c\n1;2,3\n", "',' and ';' separate as many cells; write sep=, as the first line of the file"),
        (b"a,b\n1\n", "line 2: has 1 cells, line 1 has 2"),
        (b"a,b\n1,2,\n", "line 2: has 3 cells, line 1 has 2"),
        (b'a,b\n"1\n",2\n# end\n', "line 4: has 1 cells, line 1 has 2; is line 4 a comment?"),
        (b"#by me, today, now\na,b\n", "line 2: has 2 cells, line 1 has 3; is line 1 a comment?"),
        (b"\n# a,b\n1,2\n", "line 2: is a comment, got '# a,b'; remove it, or its # if it names the columns"),
        (b"#made by me\na,b\n", "line 1: is a comment, got '#made by me'; remove it, or its # if it names the columns"),
        (
            b"a,b\n1,\xfc\n",
            "line 2: byte 0xfc is not text in UTF-8; convert the file, as iconv -f latin1 -t utf-8 'a.csv' does",
        ),
        ("a,b\n".encode("utf-16-le"), "line 1: has a NUL; is it text in UTF-8?"),
        (b"PK\3\4", "is an archive or a workbook; unpack it, or save the sheet as CSV"),
        (gzip.compress(b"a", mtime=0), "is an archive or a workbook; unpack it, or save the sheet as CSV"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path, data, message):
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    with refuses(f"{path}: {message}", RecordError):
        check_widths(path, rows_of(path))
