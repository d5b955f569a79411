#!/usr/bin/python3
"""Opens pages of `zeroplan report` in headless Chromium, from a file, without a network, and looks at what is drawn:

    check_pages.py ZEROPLAN [SHOTS]

Each page at 1280 and 400 pixels, light and dark, and printed: no script error, every chart drawn with a mark for each row of its
data, no text clipped or over another, nothing wider than the page, headings in order, headers of tables and texts for those who
do not see; and without scripts, under a policy that forbids them, every table complete. Pictures go to the folder SHOTS.
Needs Debian's chromium, chromium-driver and python3-selenium.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

PAGES = {
    "fits": "llama2-13b --hw dgx-a100 --nodes 4 --zero 3",
    "does_not_fit": "gpt2-xl --hw v100-32gb --gpus 8 --zero 0 --micro-batch 64",
    "tensor_parallel": "gpt3-175b --hw dgx-h100 --nodes 16 --tp 8 --zero 1 --grad-accum 8 --tokens 300B --price 2",
    "offload": "llama2-7b --hw dgx-a100 --zero 2 --offload optimizer --recompute full",
    "states_only": "params=7.5B --hw v100-32gb --gpus 64 --zero 1",
    "compare": None,
}
COMMANDS = {"compare": "compare gpt2-xl --hw dgx2 -o html"}

LOOK = """
const found = [];
const say = (text) => found.push(text);
const root = document.documentElement;
if (root.scrollWidth > root.clientWidth) say(`the page is ${root.scrollWidth} wide, of ${root.clientWidth}`);
let level = 0;
document.querySelectorAll('h1, h2, h3').forEach((h) => {
  const own = Number(h.tagName[1]);
  if (own > level + 1) say(`heading "${h.textContent}" skips a level`);
  level = own;
});
document.querySelectorAll('table').forEach((table) => {
  const columns = table.querySelectorAll('thead th[scope=col]').length;
  table.querySelectorAll('tbody tr').forEach((row) => {
    if (row.children.length !== columns) say(`a row of ${row.children.length} cells under ${columns} headings`);
    if (!row.querySelector('th[scope=row]')) say('a row without a header');
  });
});
const marks = [];
document.querySelectorAll('figure.has-chart').forEach((figure) => {
  const title = figure.querySelector('figcaption').textContent;
  const svg = figure.querySelector('.chart svg');
  if (!figure.classList.contains('drawn') || !svg) { say(`${title}: not drawn`); return; }
  if (!svg.getAttribute('aria-label')) say(`${title}: no text for those who do not see it`);
  const spec = JSON.parse(figure.querySelector('script').textContent);
  const rows = spec.data[0].values.length;
  const shapes = svg.querySelectorAll('.mark-rect.role-mark path').length + svg.querySelectorAll('.mark-area path').length;
  marks.push([title, rows, shapes, svg.querySelectorAll('.mark-area path').length]);
  const frame = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll('text')].filter((t) => t.textContent.trim() && t.getBoundingClientRect().width > 0);
  const boxes = texts.map((t) => [t.getBoundingClientRect(), t.textContent]);
  boxes.forEach(([box, text], i) => {
    if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
      say(`${title}: "${text}" is clipped`);
    boxes.slice(i + 1).forEach(([other, text2]) => {
      const across = Math.min(box.right, other.right) - Math.max(box.left, other.left);
      const down = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
      if (across > 1 && down > 3) say(`${title}: "${text}" lies over "${text2}"`);
    });
  });
});
return JSON.stringify({found, marks});
"""
TABLES = "return JSON.stringify([...document.querySelectorAll('table')].map((t) => t.innerText.length))"


def driver_of(folder):
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
    driver.execute_cdp_cmd("Network.enable", {})
    driver.execute_cdp_cmd("Network.emulateNetworkConditions",
                           {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0})
    return driver


def wait_until_drawn(driver):
    driver.set_script_timeout(60)
    driver.execute_async_script("""
        const done = arguments[0], until = Date.now() + 30000;
        (function look() {
          const open = document.querySelectorAll('figure.has-chart:not(.drawn)').length;
          if (open === 0 || Date.now() > until) done(open); else setTimeout(look, 50);
        })();""")


def look(driver, url, width, scheme, name, shots):
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                           {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                           {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    driver.get(url)
    wait_until_drawn(driver)
    problems = [entry["message"] for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    seen = json.loads(driver.execute_script(LOOK))
    problems += seen["found"]
    for title, rows, shapes, areas in seen["marks"]:
        if areas == 0 and shapes < rows:
            problems.append(f"{title}: {shapes} shapes for {rows} rows")
        if areas == 0 and rows == 0 or areas > 0 and rows < 2:
            problems.append(f"{title}: nothing is in it")
    if shots:
        height = driver.execute_script("return document.documentElement.scrollHeight")
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                               {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
        driver.save_screenshot(str(shots / f"{name}_{width}_{scheme}.png"))
    return problems, len(seen["marks"])


def main():
    program, shots = sys.argv[1], pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    if shots:
        shots.mkdir(parents=True, exist_ok=True)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        driver = driver_of(folder + "/profile")
        for name, plan in PAGES.items():
            page = pathlib.Path(folder) / f"{name}.html"
            words = COMMANDS.get(name, f"report {plan}").split()
            status = subprocess.run([program, *words, "--out", str(page)], check=False).returncode
            problems = [] if status in (0, 1, 5) else [f"exit code {status}"]
            url, charts = page.as_uri(), 0
            for width in (1280, 400):
                for scheme in ("light", "dark"):
                    found, charts = look(driver, url, width, scheme, name, shots)
                    problems += [f"{width} {scheme}: {problem}" for problem in found]
            printed = driver.execute_cdp_cmd("Page.printToPDF", {})
            if len(printed["data"]) < 10_000:
                problems.append("printing gives nothing")
            with_scripts = json.loads(driver.execute_script(TABLES))
            driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
            driver.get(url)
            driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
            if json.loads(driver.execute_script(TABLES)) != with_scripts:
                problems.append("tables differ without scripts")
            for problem in problems:
                print(f"{name}: {problem}")
            failed += len(problems)
            print(f"{name}: {page.stat().st_size} bytes, {charts} charts, {len(with_scripts)} tables, "
                  f"{len(problems)} problems")
        driver.quit()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
