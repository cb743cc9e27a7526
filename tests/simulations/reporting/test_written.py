"""Tables for LaTeX: what is kept of them, and what is bold."""

from dataclasses import replace
from statistics import fmean

import pytest

from cfl_flower.analysis.leads import Seeds
from cfl_flower.analysis.method_tables import Table, new_table
from simulations.reporting.written import to_latex

ROWS = {
    "fedavg": ("50.0 ± 1.0", "4"),
    "ifca": ("70.1 ± 4.0", "2"),
    "ours": ("71.0 ± 1.0", "never"),
    "oracle": ("90.0 ± 0.0", "1"),
}
NUMBERS: dict[str, dict[str, Seeds]] = {
    "final": {
        "fedavg": {0: 49.0, 1: 50.0, 2: 51.0},
        "ifca": {0: 66.1, 1: 70.1, 2: 74.1},
        "ours": {0: 70.0, 1: 71.0, 2: 72.0},
        "oracle": {0: 90.0, 1: 90.0, 2: 90.0},
    },
    "rounds to recover": {
        "fedavg": {0: 4.0},
        "ifca": {0: 2.0},
        "ours": {0: None},
        "oracle": {0: 1.0},
    },
}


def made(title: str = "50% of A_1") -> Table:
    return replace(new_table(title, NUMBERS, ROWS, "a note"), numbers=NUMBERS)


def test_the_best_is_bold_and_what_three_seeds_do_not_tell_from_it_has_a_mark():
    text = to_latex([made()], {})
    assert r"fedavg & 50.0 $\pm$ 1.0 & 4 \\" in text
    assert r"ifca & 70.1 $\pm$ 4.0$^=$ & \textbf{2} \\" in text
    assert r"ours & \textbf{71.0 $\pm$ 1.0} & never \\" in text
    assert r"oracle & 90.0 $\pm$ 0.0 & 1 \\" in text
    assert r"\caption{50\% of A\_1}" in text
    assert r"\centering" in text
    assert text.count(r"\par\footnotesize Bold: the best. =: not told apart") == 1
    assert r"\par\footnotesize a note" in text
    # Negative numbers are numbers; a mean over other seeds is no rival's.
    low = new_table("", ["forgetting"], {"a": ["-9.0"], "b": ["12.0"], "c": ["-"]})
    lost = {"a": {0: -0.09}, "b": {0: 0.12}, "c": {0: None}}
    assert r"\textbf{-9.0}" in to_latex(
        [replace(low, numbers={"forgetting": lost})], {}
    )
    lost["b"] = {1: 0.12}
    assert "textbf" not in to_latex([replace(low, numbers={"forgetting": lost})], {})
    # Two seeds tell nothing: the best alone.
    two = {name: {0: 1.0 * len(name), 1: 2.0 * len(name)} for name in ROWS}
    text = to_latex([replace(made(), numbers={"final": two})], {})
    assert text.count("textbf") == 1
    assert "$^=$" not in text


@pytest.mark.parametrize("points", [0.0, 0.4, 3.0, 14.0])
@pytest.mark.parametrize("spread", [0.0, 5.0])
def test_one_method_is_bold_whatever_seeds_tell(points, spread):
    """All but those that are equal to its digits."""
    values = {
        "a": {0: 70.0, 1: 72.0, 2: 74.0},
        "b": {0: 70.0 + points + spread, 1: 72.0 + points, 2: 74.0 + points - spread},
        "c": {0: 50.0 - points, 1: 51.0, 2: 52.0},
    }
    cells = {name: [f"{fmean(seeds.values()):.1f}"] for name, seeds in values.items()}
    table = new_table("three", ["final"], cells)
    text = to_latex([replace(table, numbers={"final": values})], {})
    assert text.count("textbf") == (1 if points else 2)
    bold = [line for line in text.splitlines() if "textbf" in line]
    assert not any("$^=$" in line for line in bold)
    told = points > 0 and spread == 0
    assert ("a & 72.0$^=$" in text) == (points > 0 and not told)


def test_methods_and_their_names_are_the_users():
    names = {"ours": "Ours (50%)", "fedavg": "FedAvg"}
    text = to_latex([made(), made("more")], names)
    first, second = text.split(r"\end{table}")[:2]
    assert first.startswith("\\begin{table}\n\\centering\n\\caption{50")
    assert r"\label{tab:comparison}" in first
    assert "\\midrule\nOurs (50\\%) & \\textbf{71.0" in first
    assert first.index("Ours") < first.index("FedAvg")
    assert "ifca" not in text
    assert r"\caption{more}" in second
    assert r"\label{tab:comparison-2}" in second


def test_names_of_any_kind_are_text_in_latex():
    names = {"ours": "[2, 3] <a|b>", "ifca": "*star ~^\\ é"}
    text = to_latex([made()], names)
    assert r"{[}2, 3] \textless{}a\textbar{}b\textgreater{} &" in text
    assert r"{*}star \textasciitilde{}\textasciicircum{}\textbackslash{} é &" in text
