"""The playground in headless Chromium, for the tests that click through it; they are skipped if it is not installed."""

import shutil
import threading
import time
from contextlib import contextmanager

import pytest

pytest.importorskip("selenium", reason="selenium is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed (the extra serve)")
import uvicorn
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

from unmask.serving.app import create_app
from unmask.serving.playground import playground_routes, public_paths

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    *("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync"),
    *("disable-background-networking", "disable-component-update", "disable-dev-shm-usage"),
)
TEXT = "the dog sees the cat near the sea"
UNLABELED = "return [...document.querySelectorAll('input, select, textarea')].filter(one => !one.labels.length).length"
"""The number of fields without a label."""

if not (BROWSER and DRIVER):
    pytest.skip("chromium and chromedriver are not installed", allow_module_level=True)


@contextmanager
def served(service, keys=None):
    """Serve the models and the playground, and yield the address."""
    app = create_app(service, keys=keys, pages=playground_routes(service), public=public_paths())
    server = uvicorn.Server(uvicorn.Config(app, port=0, ws="none", lifespan="off", log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()


def start_chromium(folder):
    """Return the driver of a browser that keeps its files in a folder."""
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"user-data-dir={folder}"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(DRIVER))


class Page:
    """The page in the browser, as a user sees it."""

    def __init__(self, driver, address):
        self.driver, self.address, self.opened = driver, address, 0
        self.resize(1000, 900)

    def open(self, hash=""):
        """Open the page anew, and wait for the results if the hash contains a text."""
        self.opened += 1  # another address is loaded by the same process, as one with another hash alone would not be
        self.driver.get(f"{self.address}?{self.opened}{hash}")
        self.wait(lambda: self.all("main .note, main form, main .error"))
        if "=" in hash:
            self.wait_for_results()

    def resize(self, width, height):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def one(self, selector):
        return self.driver.find_element("css selector", selector)

    def texts(self, selector):
        return [element.text for element in self.all(selector)]

    def wait(self, condition, seconds=60):
        ignored = [StaleElementReferenceException]  # of an element that is replaced meanwhile
        waiting = WebDriverWait(self.driver, seconds, poll_frequency=0.05, ignored_exceptions=ignored)
        return waiting.until(lambda driver: condition())

    def wait_for_results(self):
        self.wait(lambda: self.all("#results:not([aria-busy=true]) > *"))

    def submit(self, **fields):
        for name, text in fields.items():
            # at once: each key that ChromeDriver types takes the browser as long as a click
            write = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
            self.driver.execute_script(write, self.one(f"#{name}"), text)
        self.one("button.primary").click()
        self.wait_for_results()

    def script(self, code):
        return self.driver.execute_script(code)

    @property
    def focused(self):
        return self.driver.switch_to.active_element
