"""The page of a report: what it shows, and that everyone can read it."""

import csv
import json
import re
import shlex
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise, product
from pathlib import Path

import pytest

from cfl_flower.analysis.comparison import group_seeds
from cfl_flower.analysis.saved import find_runs, load_run
from cfl_flower.config.compose import compose_config
from cfl_flower.errors import NoValidResultError
from simulations.report import main, render
from simulations.reporting.sections import divide
from simulations.reporting.written import _escape
from simulations.run import main as run_main
from tests.conftest import sample
from tests.simulations.conftest import changed

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Collects the elements of a page, and whether all of them end."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def page(folders: list[Path]) -> Page:
    return Page(render([load_run(folder) for folder in folders]).html)


def test_every_element_ends_and_stands_in_a_titled_page(page):
    assert page.open == []
    assert page.all("html")[0]["lang"] == "en"
    assert "width=device-width" in str(page.all("meta")[1]["content"])
    headings = [name for name, _ in page.elements if re.fullmatch(r"h\d", name)]
    assert headings[0] == "h1"
    assert headings.count("h1") == 1
    steps = [int(name[1]) for name in headings]
    assert all(b - a <= 1 for a, b in pairwise(steps))


def test_every_picture_says_what_it_shows(page):
    pictures = [each for each in page.all("svg") if each.get("role")]
    # accuracy, two rivers, and four other measurements
    assert len(pictures) == 7
    assert all(each["role"] == "img" and each["aria-label"] for each in pictures)


def test_the_page_fetches_nothing_and_uses_each_id_once(page):
    links = [
        value
        for tag, attributes in page.elements
        for key, value in attributes.items()
        if key in ("src", "href", "xlink:href", "action") and tag != "a"
    ]
    assert all(str(link).startswith("#") for link in links)
    *data, program = page.all("script")
    assert program == {"type": "module"}
    assert all(each == {"type": "application/json"} for each in data)
    ids = [a["id"] for _, a in page.elements if a.get("id")]
    assert {a["href"] for a in page.all("a")} <= {f"#{each}" for each in ids}
    assert len(ids) == len(set(ids))


def test_failures_are_counted_first_and_in_every_table(folders):
    runs = [load_run(folder) for folder in folders]
    rows = runs[1].rounds
    of = [each["phase"] for row in rows for each in row["failures"]]
    trained, failed = sum(row["participants"] for row in rows), of.count("train")
    tested = len(runs[1].tests) + of.count("evaluate")
    assert failed and tested > len(runs[1].tests)
    line = (
        f"fielding raises=0.2: failed {failed} of {trained} trainings "
        f"({failed / trained:.0%}) "
        f"and {of.count('evaluate')} of {tested} tests "
        f"({of.count('evaluate') / tested:.0%})"
    )
    page = render(runs)
    text, _, _ = page.html.partition("<table>")
    assert line in text
    assert _escape(line) in page.latex
    assert f",{trained},{failed},{tested}," in page.csv
    (stream,) = divide(runs)
    scores = {row[0]: row for row in stream.tables[0].lines}
    place = stream.tables[0].headings.index("failed trainings")
    assert scores["fielding raises=0.2"][place] == f"{100 * failed / trained:.1f}"
    assert scores["fedavg raises=0"][place] == "0.0"
    sound = render(runs[:1])
    assert "failed" not in sound.html.partition("<table>")[2].partition("</table>")[0]
    assert "failed" not in sound.latex


def test_pictures_and_tables_come_as_files_too(folders, tmp_path, capsys):
    asked = [*map(str, folders), "--output", str(tmp_path / "new" / "page.html")]
    assert main([*asked, "--figures", str(tmp_path / "pictures")]) == 0
    assert "page.html" in capsys.readouterr().out
    with (tmp_path / "new" / "page.csv").open(newline="") as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    methods = ("fedavg raises=0", "fielding raises=0.2")
    assert "rival" not in rows[methods[0]]
    for folder, method in zip(folders, methods, strict=True):
        final = json.loads((folder / "summary.json").read_text())["final"]["accuracy"]
        assert float(rows[method]["final"]) == pytest.approx(final)
        assert rows[method]["folder"] == str(folder)
    latex = (tmp_path / "new" / "page.tex").read_text()
    assert latex.count(r"\begin{tabular}{l") == latex.count(r"\bottomrule") >= 3
    names = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert {"accuracy.pdf", "accuracy.svg", "fielding-raises-0-2-river.png"} <= names
    asked += ["--figures", str(tmp_path / "some"), "--methods"]
    asked += ["fielding raises=0.2=Ours (new)"]
    assert main(asked) == 0
    assert not list((tmp_path / "some").glob("fedavg*"))
    latex = (tmp_path / "new" / "page.tex").read_text()
    assert re.search(r"\nOurs \(new\) & [\d.]+ ", latex)
    assert r"\label{tab:comparison}" in latex


def test_what_was_never_reached_is_said_once(folders):
    run = load_run(folders[0])
    rounds = [{**row, "accuracy": 0.9 - 0.2 * row["round"]} for row in run.rounds]
    page = render([replace(run, rounds=rounds)])
    never = "never, of all methods: rounds to recover"
    assert never in page.html
    assert never in page.latex
    text = page.latex.replace(never, "").replace("never, of all methods: ", "")
    assert "never" not in text
    assert "& rounds to recover" not in text


def test_a_page_says_what_rivers_show(run_small):
    one = run_small("strategy=fielding", "drift=none", "partition.groups=1")
    page = render([load_run(one.folder)])
    together = "Which clients are in a cluster together"
    assert together not in page.html
    for groups, said in ((1, "have no true concepts"), (3, "has the colour of the")):
        asked = ["strategy=ifca", "clusters=3", "drift=none", "rounds=2"]
        run = run_small(*asked, f"partition.groups={groups}", folder=f"of {groups}")
        (note,) = re.findall(
            f"{together}.*?</p>", render([load_run(run.folder)]).html, re.DOTALL
        )
        assert said in note


@pytest.mark.parametrize(("done", "drifts"), [(2, []), (3, [3])])
def test_an_unfinished_run_says_so(done, drifts, folders, tmp_path):
    part = tmp_path / "part"
    shutil.copytree(folders[0], part)
    rows = (part / "rounds.jsonl").read_text().splitlines(keepends=True)
    (part / "summary.json").unlink()
    # Killed after the tests of a round were written, and within its line.
    (part / "rounds.jsonl").write_text("".join(rows[:done]) + '{"round": 9, "accu')
    run = load_run(part)
    assert not run.complete
    assert run.drifts == drifts
    assert {row["round"] for row in run.tests} == set(range(1, done + 1))
    words = " ".join(Page(render([run]).html).words)
    assert run.command_to_go_on in words
    assert f"{done} of 4 rounds" in words


def test_where_nothing_can_be_written_is_one_line(folders, tmp_path, capsys):
    (tmp_path / "file").touch()
    page = tmp_path / "page.html"
    for wrong, what in (
        (["--output", tmp_path], f"--output={tmp_path} is a folder; name a file in it"),
        (["--output", tmp_path / "file" / "page.html"], "cannot be written"),
        (["--output", "/proc/none/page.html"], "--output=/proc/none/page.html cannot"),
        (["--output", page, "--figures", tmp_path / "file"], "--figures="),
        (["--output", tmp_path / "page.csv"], "a name that ends in .html"),
    ):
        assert main([str(folders[0]), *map(str, wrong)]) == 2
        complaint = capsys.readouterr().err
        assert complaint.count("\n") == 1
        assert what in complaint
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


OWN = {".html": "<html></html>", ".csv": "a,b,label\n1,2,x\n", ".tex": "\\section{I}"}


@pytest.mark.parametrize("pair", sample(product(OWN, OWN.values()), OWN.items()))
def test_no_file_is_lost_that_is_no_report_s(pair, folders, tmp_path, capsys):
    ending, own = pair
    asked = [str(folders[0]), "--output", str(tmp_path / "lab.html")]
    other = tmp_path / f"lab{ending}"
    other.write_text(own)
    assert main([*asked, "--figures", str(tmp_path / "figures")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"use another name: {other} is no report's" in line
    assert [path.read_text() for path in tmp_path.iterdir()] == [own]
    other.write_text("")
    for _ in range(2):
        assert main(asked) == 0
        assert all(path.stat().st_size for path in tmp_path.glob("lab.*"))


def test_seeds_of_a_method_are_one_line_and_what_differs_has_another_name(folders):
    one, two = (load_run(folder) for folder in folders)
    found = group_seeds([one, two, changed(one, seed=1)])
    assert [*map(len, found.values())] == [2, 1]
    assert [*found] == ["fedavg raises=0", "fielding raises=0.2"]
    # Twice the same run is one; the longer of two counts.
    part = replace(one, rounds=one.rounds[:2])
    assert group_seeds([part, one, one]) == {"fedavg": [one]}
    # Their order does not depend on that of the folders, nor do their colours.
    three = (changed(one, name=name) for name in ("local", "fielding", "oracle"))
    local, two, oracle = three
    (stream,) = divide([oracle, two, local, one])
    labels = ["fedavg", "local", "fielding", "oracle"]
    assert [line.label for line in stream.lines] == labels
    # Their own colours are of those that are not grey.
    assert [line.number for line in stream.lines] == [1, 2, 0, 3]
    swept = [changed(one, x=n) for n in (5, 9)]
    assert list(group_seeds(swept)) == ["fedavg x=5", "fedavg x=9"]


def test_a_folder_stands_for_the_runs_below_it(folders, tmp_path):
    for place in ("a/one", "b"):
        shutil.copytree(folders[0], tmp_path / place)
    (tmp_path / "c").mkdir()
    shutil.copy(folders[0] / "config.yaml", tmp_path / "c")  # has not begun
    assert find_runs(tmp_path) == [tmp_path / "a" / "one", tmp_path / "b"]
    assert find_runs(tmp_path / "b") == [tmp_path / "b"]


def test_runs_on_different_data_are_in_sections_of_their_own(folders, undisturbed):
    other = undisturbed("drift=none").folder
    report = render([load_run(folder) for folder in (*folders, other)])
    page = Page(report.html)
    assert page.open == []
    runs = [load_run(folder) for folder in (other, folders[0])]
    report = render(runs)
    assert render(runs[::-1]).html == report.html
    assert "final accuracy, in %, by drift" in report.html
    latex = report.latex.partition(r"final accuracy, in \%, by drift")[2]
    assert "strategy & drift=regroup & drift=none" in latex
    last = f"{100 * load_run(other).rounds[-1]['accuracy']:.1f}"
    assert re.search(r"fedavg & [\d.]+ & - ", latex)
    assert f"fielding & - & {last} " in latex
    sections = [str(a["id"]) for tag, a in page.elements if tag == "section"]
    assert sections == ["stream-1", "stream-2"]
    assert [a["href"] for a in page.all("a")][:2] == ["#stream-1", "#stream-2"]
    words = [word for word in page.words if word.strip()]
    assert {"drift=regroup", "drift=none"} < set(words[: words.index("Tables")])
    assert "under drift regroup and no drift on digits" in " ".join(page.words)


def test_the_pasted_command_trains_the_same_run_again(folders, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["run"])  # the command leaves its words there
    shutil.copytree(folders[0], tmp_path / "old run")
    run = load_run(tmp_path / "old run")
    words = shlex.split(run.command)
    assert words[:3] == ["python", "-m", "simulations.run"]
    place = f"output_dir={tmp_path / 'again'}"
    config = compose_config([*words[3:], place])
    assert config.resolved | {"output_dir": run.resolved["output_dir"]} == run.resolved
    assert run_main([*words[3:], "engine=inprocess", place]) == 0
    again = load_run(tmp_path / "again")
    kept = [{k: v for k, v in row.items() if k != "seconds"} for row in again.rounds]
    old = [{k: v for k, v in row.items() if k != "seconds"} for row in run.rounds]
    assert kept == old
    # What goes on with it names its folder.
    on = compose_config(shlex.split(run.command_to_go_on)[3:])
    assert (on.output_dir, on.resume) == (str(run.folder), True)


def test_a_failed_run_is_shown_with_its_reason(folders, run_small, tmp_path, capsys):
    with pytest.raises(NoValidResultError):
        run_small("strategy=local", "faults.raises=1", folder="early")
    runs = [load_run(folder) for folder in (*folders, tmp_path / "early")]
    page = Page(render(runs).html)
    words = " ".join(" ".join(page.words).split())
    assert re.search(r"Failed after 0 of 4 rounds: .*none of 12 clients", words)
    alone = render(runs[2:])
    assert "none of 12 clients" in alone.html
    assert alone.pictures == []
    path = tmp_path / "page.html"
    assert main([str(tmp_path / "early"), f"--output={path}"]) == 2
    error = capsys.readouterr().err
    assert "has no finished round: round 1: none of 12 clients" in error
    assert not path.exists()


def test_seeds_with_different_data_are_refused_with_the_reason(
    folders, tmp_path, capsys
):
    page = tmp_path / "page.html"
    other = tmp_path / "other"
    shutil.copytree(folders[1], other)
    summary = json.loads((other / "summary.json").read_text())
    # As if its clients had held something else.
    (other / "summary.json").write_text(json.dumps(summary | {"data": "0" * 32}))
    assert main([str(folders[0]), str(other), "--output", str(page)]) == 2
    complaint = capsys.readouterr().err
    assert complaint.count("\n") == 1
    assert "seed 0 but different data" in complaint
    assert not page.exists()


def test_drift_after_the_last_round_is_said(folders, run_small):
    run = load_run(folders[0])
    (stream,) = divide([run])
    assert stream.subtitle.endswith("in each of 4 rounds")
    short = run_small("drift.rounds=[9]")
    (stream,) = divide([load_run(short.folder)])
    assert stream.subtitle.endswith("the drift starts after the last, in round 9")
