# SPDX-License-Identifier: BSD-3-Clause
"""What a report says: its facts, and where node is installed what its script
draws of them, but where a sanitizer watches (WEFT_TEST_FEW)."""
import html.parser
import json
import os
import re
import shutil
import subprocess
import xml.dom.minidom

DOM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "page_dom.js")
NODE = shutil.which("node")
FEW = "WEFT_TEST_FEW" in os.environ
LOADING = {"src", "href", "onload", "onerror", "xlink:href", "style"}


class Drawn(html.parser.HTMLParser):
    """Tables by their id, as rows of cells; all text; classes of boxes."""
    def __init__(self):
        super().__init__()
        self.boxes = []
        self.text, self.cells, self.table, self.names = "", {}, None, []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        assert tag not in {"link", "img", "iframe", "object", "script"}, tag
        assert not LOADING & set(attributes), attrs
        self.names.append(tag)
        if tag == "rect":
            self.boxes.append(attributes.get("class"))
        if tag == "table":
            self.table = self.cells.setdefault(attributes["id"], [])
        if tag == "tr":
            self.table.append([])
        if tag in {"td", "th"}:
            self.table[-1].append("")
        self.inside = tag

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside in {"td", "th"}:
            self.table[-1][-1] += data
        self.text += data


def find_paths(script):
    """facts.a.b, as far as it is written so."""
    return sorted(set(re.findall(r"\bfacts((?:\.\w+)+)", script)))


def check_paths(script, data):
    """Each is in the data, up to a null or a list."""
    paths = find_paths(script)
    assert len(paths) > 20, paths
    for path in paths:
        at = data
        for name in path[1:].split("."):
            if not isinstance(at, dict):
                break
            assert name in at, path
            at = at[name]


def read_page(path, draws=not FEW):
    """(data, Drawn or None): checked to be complete in itself. What a sanitizer
    watches wrote the data; its page draws them by the same script."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    xml.dom.minidom.parseString(text.encode())
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", text, re.S)
    assert [re.sub(r'.*id="(.*?)".*', r"\1", one[0]) for one in scripts] == [
        "weft-report", ""], scripts
    assert "<" not in scripts[0][1] and ">" not in scripts[0][1]
    data = json.loads(scripts[0][1])
    check_paths(scripts[1][1], data)
    if NODE is None or not draws:
        return data, None
    done = subprocess.run([NODE, DOM, path], capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    xml.dom.minidom.parseString(done.stdout.encode())
    drawn = Drawn()
    drawn.feed(done.stdout)
    drawn.close()
    return data, drawn
