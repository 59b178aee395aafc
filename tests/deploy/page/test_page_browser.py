"""The page in a real browser: Chromium without a window."""

import http.server
import threading

import pytest

from gantry_deploy.session.states import SessionState
from gantry_deploy.teleop.operator import Axis, TeleopEvent
from gantry_fixtures.browsers import CHROMIUM, DRIVER, MISSING, headless_chromium

selenium = pytest.importorskip("selenium", reason="the package selenium (extra 'dev') is not installed")

from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason=MISSING),
]


@pytest.fixture(scope="module")
def browser():
    made = headless_chromium()
    yield made
    made.quit()


class Screen:
    """The page as a person sees it."""

    def __init__(self, browser, until):
        self.browser, self.until = browser, until

    def text(self, element_id):
        return self.browser.find_element(By.ID, element_id).text

    def shows(self, element_id, text):
        self.until(lambda: text in self.text(element_id))

    def button(self, event):
        return self.browser.find_element(By.CSS_SELECTOR, f"[data-event={event}]")

    def pad(self, name):
        return self.browser.find_element(By.CSS_SELECTOR, f"[data-pad='{name}']")

    def key(self, key):
        ActionChains(self.browser).send_keys(key).perform()


@pytest.fixture
def screen(browser, page, until):
    """A page that is open in a tab of its own."""
    browser.switch_to.new_window("tab")
    browser.get(page.url)
    made = Screen(browser, until)
    made.shows("headline", "Policy acts")
    made.shows("estop-state", "reached")
    yield made
    said = [
        entry
        for entry in browser.get_log("browser")
        if "Security Policy" in entry["message"] or "Error" in entry["message"]
    ]
    assert said == []
    browser.close()
    browser.switch_to.window(browser.window_handles[0])


def test_page_shows_snapshots_as_they_change(screen, stage, browser):
    assert "#" not in browser.current_url.rstrip("#")
    assert screen.text("about") == "yam · yam-lift · page"
    stage.go(SessionState.CORRECTING, step=77, log=("<img src=x onerror=alert(1)>",), success_rate=0.4, attempts=2)
    screen.shows("headline", "You act")
    screen.shows("detail", "step 77")
    screen.shows("scores", "40 %")
    screen.shows("log", "<img src=x onerror=alert(1)>")
    assert screen.button("is_intervention").text.startswith("Give back")
    stage.go(SessionState.PAUSED, fault="joint 3 is hot", disagreement=3.0, advice="Step in: look.")
    screen.shows("alarms", "joint 3 is hot")
    screen.shows("advice", "Step in: look.")
    screen.shows("critic", "3.0")
    first = browser.find_element(By.CSS_SELECTOR, "#cameras img")
    screen.until(lambda: first.get_attribute("naturalWidth") == "16")
    browser.refresh()  # The token is kept in the tab.
    screen.shows("headline", "Paused")


def test_buttons_follow_the_state(screen, stage):
    assert screen.button("success").is_enabled()
    assert not screen.button("start_episode").is_enabled()
    stage.go(SessionState.READY)
    screen.until(lambda: screen.button("start_episode").is_enabled())
    assert not screen.button("success").is_enabled()
    screen.key("s")
    screen.button("start_episode").click()
    screen.until(lambda: stage.requests == [TeleopEvent.START])


def test_clicks_and_keys_reach_the_session(screen, stage):
    screen.button("success").click()
    screen.until(lambda: stage.requests == [TeleopEvent.SUCCESS])
    screen.key("p")
    screen.until(lambda: stage.requests[1:] == [TeleopEvent.PAUSE])
    screen.button("quit").click()
    screen.until(lambda: screen.button("quit").text.startswith("Press again"))
    assert len(stage.requests) == 2
    screen.button("quit").click()
    screen.until(lambda: stage.requests[2:] == [TeleopEvent.QUIT])


def test_refusals_are_shown(screen, stage):
    stage.refusal = "The scene is not ready: put the cube back."
    screen.button("failure").click()
    screen.shows("reason", "put the cube back")


def test_emergency_stop_while_snapshots_and_requests_hang(screen, stage):
    stage.blocks = stage.requests_block = True
    screen.button("success").click()
    screen.until(lambda: stage.requests == [TeleopEvent.SUCCESS])
    screen.shows("headline", "No news")
    screen.key(Keys.ESCAPE)
    assert stage.stopped.wait(30)
    screen.shows("estop-state", "use the robot's own stop")  # Taken, but nothing shows that the robot stands.
    assert not stage.free.is_set()
    stage.go(SessionState.STOPPED)
    stage.free.set()
    screen.shows("estop-state", "confirmed: the robot has been stopped")
    screen.shows("headline", "Stopped")


def test_emergency_stop_by_its_button_when_the_page_itself_hangs(screen, stage, page):
    """The page's own port takes no connection any more; that of the stop does."""
    page._page.close()
    screen.shows("headline", "No connection")
    assert not screen.button("success").is_enabled()
    screen.browser.find_element(By.ID, "estop").click()
    assert stage.stopped.wait(30)
    screen.shows("estop-state", "taken")


def test_emergency_stop_that_is_not_taken_is_loud(screen, page):
    page._stop.close()
    page._page.close()
    screen.shows("estop-state", "NOT REACHED")
    screen.browser.find_element(By.ID, "estop").click()
    screen.shows("estop-state", "NOT CONFIRMED")


def test_motion_while_a_button_is_held(screen, stage):
    hold = ActionChains(screen.browser).click_and_hold(screen.pad("x+"))
    hold.perform()
    screen.until(lambda: stage.device.read(0.0).axes == {Axis.X: 0.5})
    ActionChains(screen.browser).release().perform()
    screen.until(lambda: not stage.device.read(0.0).engaged)
    ActionChains(screen.browser).key_down(" ").perform()
    screen.until(lambda: stage.device.read(0.0).engaged)
    assert stage.device.read(0.0).axes == {}
    ActionChains(screen.browser).key_up(" ").perform()
    screen.until(lambda: not stage.device.read(0.0).engaged)


def test_closed_tab_lets_go(screen, stage):
    ActionChains(screen.browser).click_and_hold(screen.pad("y+")).perform()
    screen.until(lambda: stage.device.read(0.0).engaged)
    screen.browser.close()
    screen.until(lambda: not stage.device.read(0.0).engaged)
    screen.browser.switch_to.window(screen.browser.window_handles[0])
    screen.browser.switch_to.new_window("tab")


def test_frozen_browser_lets_go(screen, stage):
    ActionChains(screen.browser).click_and_hold(screen.pad("y-")).perform()
    screen.until(lambda: stage.device.read(0.0).engaged)
    screen.browser.execute_script("setTimeout(() => { const end = Date.now() + 4000; while (Date.now() < end); }, 0)")
    screen.until(lambda: not stage.device.read(0.0).engaged)


def test_page_without_the_token_shows_nothing(browser, page, until, stage):
    browser.switch_to.new_window("tab")
    browser.get(page.address)
    screen = Screen(browser, until)
    screen.shows("detail", "link of this page is not valid")
    assert "yam" not in browser.page_source
    browser.close()
    browser.switch_to.window(browser.window_handles[0])


def test_pages_of_others_can_neither_stop_nor_frame(browser, page, until, stage):
    """A hostile page on another port of this machine that even knows the token."""
    token = page.url.partition("#")[2]
    script = f"""<iframe src="{page.url}"></iframe><script>
    const body = JSON.stringify({{token: "{token}"}});
    Promise.allSettled(["{page.address}", "http://127.0.0.1:{page.estop_port}"].map((host) =>
      fetch(host + "/estop", {{method: "POST", body}}))).then((all) =>
        document.title = all.map((one) => one.status).join());
    </script>"""

    class Hostile(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(script.encode())

        def log_message(self, *args): ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser.switch_to.new_window("tab")
        browser.get(f"http://127.0.0.1:{server.server_port}")
        until(lambda: browser.title == "rejected,rejected")
        browser.switch_to.frame(0)
        assert browser.find_elements(By.ID, "estop") == []
        browser.switch_to.default_content()
        browser.close()
        browser.switch_to.window(browser.window_handles[0])
        server.shutdown()
    assert stage.stops == 0
