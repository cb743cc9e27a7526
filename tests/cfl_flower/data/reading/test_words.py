"""What devices say of their data, and what they agree on by it."""

import json
import re

import pytest

from cfl_flower.data.reading.scaling import Input
from cfl_flower.data.reading.words import (
    LONGEST_NAME,
    MOST_NAMES,
    Words,
    agree,
    parse_words,
    strangers,
)
from cfl_flower.errors import ConfigError

AGE = Input(column="age")


def words(columns: dict[str, list[str]], *classes: str, shape: int = 2) -> Words:
    inputs = [(name, text) for name, own in columns.items() for text in own or [None]]
    return Words(shape=[shape], classes=list(classes), inputs=inputs)


def test_neither_the_order_of_columns_nor_that_of_categories_matters():
    one = words({"age": [], "city": ["Ulm", "Bern"]}, "yes")
    two = words({"city": ["Basel"], "age": []}, "no", "yes")
    found = agree({"a": one, "b": two})
    cities = [Input(column="city", category=name) for name in ("Basel", "Bern", "Ulm")]
    assert found["agreed"] == [AGE, *cities]
    assert (found["shape"], found["names"], found["classes"]) == ([4], ["no", "yes"], 2)
    assert agree({"b": two, "a": one})["agreed"] == [*cities, AGE]


@pytest.mark.parametrize(
    ("columns", "classes", "line"),
    [
        ({"age": []}, ["no"], "column city: a has texts, b has no such column"),
        ({"age": [], "city": []}, ["no"], "city: a has texts, b has numbers"),
        ({"age": [], "city": ["bern"]}, ["no"], "'Bern' and 'bern' say the same"),
        ({"age": [], "city": ["Ulm"]}, ["No"], "'No' and 'no' say the same"),
        ({}, ["no"], "age: a has numbers, b has no such column"),
    ],
)
def test_what_sites_do_not_have_alike_is_one_line(columns, classes, line):
    one = words({"age": [], "city": ["Bern"]}, "no")
    with pytest.raises(ConfigError, match=line) as error:
        agree({"a": one, "b": words(columns, *classes)})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("classes", "lines"),
    [
        ([["no", "yes"], ["yes"], ["0", "1"]], ["client 2 has .* no other .*: 0, 1"]),
        ([["no", "yes"], ["ja", "nein"]], ["client 0 .*: no, yes", "client 1 .*: ja"]),
        ([["1", "2"], ["1.0", "3"]], []),
        ([["no", "yes"]], []),
    ],
)
def test_who_shares_no_class_with_anybody_is_told(classes, lines):
    said = {client: words({"age": []}, *own) for client, own in enumerate(classes)}
    found = strangers(said)
    assert len(found) == len(lines)
    for line, told in zip(lines, found, strict=True):
        assert re.search(line, told)


def test_arrays_must_have_one_shape():
    with pytest.raises(ConfigError, match=r"shape \[2\], b has shape \[3\]"):
        agree({"a": words({}, "0", "1"), "b": words({}, "0", shape=3)})


def test_words_come_back_as_they_were_said():
    many = {f"column {place}": [] for place in range(MOST_NAMES - 1)}
    said = words({**many, "city": ["x" * LONGEST_NAME]}, *"0123", "n\u00e9")
    assert parse_words(json.dumps(said)) == said


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"inputs": [["a", f"{n}"] for n in range(MOST_NAMES + 1)]}, "inputs: .*10000"),
        ({"classes": [f"{n}" for n in range(10 * MOST_NAMES)]}, "classes: .*10000"),
        ({"classes": []}, "classes: .*at least 1"),
        ({"classes": "no"}, "classes: .*array"),
        ({"classes": ["x" * (LONGEST_NAME + 1)]}, "classes.0: .*1000"),
        ({"inputs": [["x" * (LONGEST_NAME + 1), None]]}, "inputs.0.0: .*1000"),
        ({"inputs": [["a", "x" * (LONGEST_NAME + 1)]]}, "inputs.0.1: .*1000"),
        ({"classes": [7]}, "classes.0: .*string"),
        ({"classes": [["no"]]}, "classes.0: .*string"),
        ({"inputs": [["age", True]]}, "inputs.0.1: .*string"),
        ({"inputs": [["age", None, None]]}, "inputs.0: .*at most 2"),
        ({"inputs": {"age": None}}, "inputs: .*array"),
        ({"inputs": [["age", None]] * 2}, "names an input or a class twice"),
        ({"inputs": [["age", None], ["age", "x"]]}, "names an input or a class twice"),
        ({"classes": ["no", "no"]}, "names an input or a class twice"),
        ({"classes": ["no", "No"]}, "'No' and 'no' say the same"),
        ({"shape": [0]}, "shape.0: .*greater than 0"),
        ({"shape": [1] * 100}, "shape: .*at most"),
        ({"shape": [1e300]}, "shape.0: "),
    ],
)
def test_words_that_no_data_make_are_one_line(changed, line):
    said = {**words({"age": []}, "no"), **changed}
    with pytest.raises(ConfigError, match=line) as error:
        parse_words(json.dumps(said))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    "text", ["", "7", "[" * 10**6, '{"classes": ' * 10**5, '"\\ud800"', " " * 2**25]
)
def test_a_text_that_is_no_words_is_one_line(text):
    with pytest.raises(ConfigError, match="its words are none"):
        parse_words(text)
