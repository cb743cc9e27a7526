"""The page of a report in a real browser: phone, desktop, paper, and in the dark."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_core_python.selenium import Axe
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from simulations.report import main
from tests.conftest import Runner

pytestmark = pytest.mark.slow

WIDE = "return document.documentElement.scrollWidth"


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    """A real browser, without a network."""
    programs = [shutil.which("chromium"), shutil.which("chromedriver")]
    if None in programs:
        pytest.skip("no browser: install chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = str(programs[0])
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options, webdriver.ChromeService(str(programs[1])))
    driver.set_script_timeout(100)  # of axe-core, where others use the machine, too
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def folders(folders: list[Path], undisturbed: Runner) -> list[Path]:
    """Three runs, one with failures, one on other data."""
    return [*folders, undisturbed("drift=none").folder]


@pytest.fixture(scope="module")
def page(folders: list[Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the report of all is."""
    path = tmp_path_factory.mktemp("report") / "page.html"
    assert main([*map(str, folders), "--output", str(path)]) == 0
    return path.as_uri()


@pytest.fixture(autouse=True)
def opened(browser: webdriver.Chrome, page: str) -> Iterator[None]:
    """Open the page, and see that nothing was complained of."""
    browser.get(page)
    yield
    assert browser.get_log("browser") == []


def show(
    browser: webdriver.Chrome, width: int, media: str = "", scheme: str = ""
) -> None:
    """Give the browser the screen of a phone or of a desktop, paper, or the dark."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1}
    metrics = size | {"mobile": width < 800}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    wanted = {"media": media, "features": features}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", wanted)


def all_of(browser: webdriver.Chrome, selector: str) -> list[WebElement]:
    return browser.find_elements(By.CSS_SELECTOR, selector)


def test_phone_has_all_of_it_without_overflow(browser):
    show(browser, 390)
    assert browser.execute_script(WIDE) <= 390
    pictures = [each for each in all_of(browser, "figure svg") if each.is_displayed()]
    # accuracy, two rivers, and four other measurements
    assert len(pictures) == 7
    for picture in pictures:
        assert 250 < picture.size["width"] <= 390
        assert picture.size["height"] > 60
    # A link to a run unfolds it.
    browser.execute_script("location.hash = 'stream-1-fielding'")
    wait = WebDriverWait(browser, 20)
    wait.until(lambda _: browser.execute_script("return window.scrollY") > 500)
    check_accessibility(browser)


def test_desktop_sorts_and_shows_one_stream_at_a_time(browser):
    show(browser, 1440)
    assert browser.execute_script(WIDE) <= 1440
    check_sorting(browser)
    check_tabs(browser)


def check_tabs(browser: webdriver.Chrome) -> None:
    """Show one stream after the other, and all of them on paper."""
    show(browser, 1000, scheme="dark")
    one, two = all_of(browser, "[role=tabpanel]")
    tabs = all_of(browser, "[role=tablist] > [role=tab]")
    assert [tab.text for tab in tabs] == ["drift=regroup", "drift=none"]
    assert (one.is_displayed(), two.is_displayed()) == (True, False)
    tabs[0].send_keys(Keys.ARROW_RIGHT)
    assert browser.switch_to.active_element == tabs[1]
    assert (one.is_displayed(), two.is_displayed()) == (False, True)
    only = {"type": "rule", "values": ["color-contrast"]}
    assert Axe().run(browser, options={"runOnly": only})["violations"] == []
    tabs[0].click()
    assert (one.is_displayed(), two.is_displayed()) == (True, False)
    show(browser, 700, media="print", scheme="dark")
    assert (one.is_displayed(), two.is_displayed()) == (True, True)
    assert not tabs[0].is_displayed()
    charts = all_of(browser, "section > figure .chart")
    assert all(each.is_displayed() for each in charts)
    assert not any(each.is_displayed() for each in all_of(browser, ".live"))
    assert browser.execute_script(WIDE) <= 700


def check_sorting(browser: webdriver.Chrome) -> None:
    """Click twice on a heading: descending, then ascending."""
    folded = browser.find_element(By.CSS_SELECTOR, "#stream-1 .folded")
    folded.find_element(By.TAG_NAME, "summary").click()
    table = all_of(browser, "#stream-1 table")[0]
    *_, head = table.find_elements(By.CSS_SELECTOR, "thead th")
    found = []
    for _ in range(2):
        head.find_element(By.TAG_NAME, "button").click()
        cells = table.find_elements(By.CSS_SELECTOR, "tbody td:last-child")
        found.append([float(cell.text) for cell in cells])
    assert found[0] == sorted(found[0], reverse=True)
    assert found[1] == sorted(found[0])
    assert head.get_attribute("aria-sort") == "ascending"


def check_accessibility(browser: webdriver.Chrome) -> None:
    """Let axe-core look for barriers: contrast, names, headings, order, targets."""
    found = Axe().run(browser, options={"resultTypes": ["violations"]})
    said = [
        f"{each['help']}: {node['html'][:200]}"
        for each in found["violations"]
        for node in each["nodes"]
    ]
    assert said == []
    passed = {each["id"] for each in found["passes"]}
    assert {"color-contrast", "document-title", "svg-img-alt", "heading-order"} < passed
