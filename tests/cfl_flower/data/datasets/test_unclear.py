"""What is wrong with a file is said in the words of who made it, with a remedy."""

import gzip

import pytest

from cfl_flower.data.datasets.tables import Csv
from cfl_flower.errors import ConfigError

ROWS = "".join(f"{row / 7:.2f},{row % 5},{row % 3}\n" for row in range(60))
TEXT = f"a,b,label\n{ROWS}"


@pytest.mark.parametrize(
    ("content", "own", "words"),
    [
        (f"{TEXT}1,2,3,4\n", {}, "Expected 3 fields in line 62, saw 4"),
        (f"# my data\n{TEXT}", {}, "Length of header"),
        ("", {}, "No columns"),
        (gzip.compress(TEXT.encode()), {}, "save it again as UTF-8 text"),
        (TEXT.replace(",", "  "), {"separator": "  "}, "dataset.separator"),
        (TEXT.replace(",", "||"), {"separator": "||"}, "dataset.separator"),
        (
            TEXT.replace(",", ";").replace("0.43", "-1.474"),
            {"separator": ";", "decimal": "comma"},
            "row 4 has a=-1.474, which has a mark between thousands, or a point",
        ),
        ("a,label\n1,x\n2,x\n", {}, "one class only: x; add samples of another"),
        (
            TEXT.replace("a,b", "a,code").replace(",4,", ",V27,"),
            {},
            "row 5 has code=V27, .* if these are codes, write a letter before each",
        ),
    ],
)
def test_a_table_that_cannot_be_read_says_why(content, own, words, tmp_path, recwarn):
    data = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "data.csv").write_bytes(data)
    with pytest.raises(ConfigError, match=words) as error:
        Csv(**own).load(str(tmp_path))
    assert "\n" not in str(error.value)
    assert not recwarn
