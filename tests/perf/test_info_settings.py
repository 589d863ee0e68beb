#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""test_info_settings.py BIN_DIR SETTINGS_H

Goal: weft-info --settings lists every WEFT_ variable with its value and where
it came from, shows no secret, and points at values and names that weft refuses.
Method: run it in made-up environments; the names come from the table itself.
"""
import json
import os
import re
import subprocess
import sys

INFO = sys.argv[1] + "/weft-info"
NAMES = ["WEFT_" + name for name in
         re.findall(r"^    X\((\w+),", open(sys.argv[2]).read(), re.M)]


def run(arguments, **variables):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
    return subprocess.run([INFO] + arguments, env={**clean, **variables},
                          capture_output=True, text=True, timeout=30)


def must(right, what):
    if not right:
        print("FAILED: %s" % (what,))
        sys.exit(1)


def settings(**variables):
    end = run(["--settings", "--json", "-"], **variables)
    return end.returncode, json.loads(end.stdout)


must(len(NAMES) > 10, NAMES)
end = run(["--settings"])
must(end.returncode == 0 and all(name in end.stdout for name in NAMES), end)
must("10000" in end.stdout and "environment " not in end.stdout, end)

code, facts = settings(WEFT_WARN_MS="77", WEFT_SECRET="hush hush hush hush")
rows = {row["name"]: row for row in facts["settings"]}
must(code == 0 and sorted(rows) == sorted(NAMES), sorted(rows))
must(rows["WEFT_WARN_MS"]["value"] == "77" and
     rows["WEFT_WARN_MS"]["from"] == "environment" and
     rows["WEFT_WARN_MS"]["default"] == "10000", rows["WEFT_WARN_MS"])
must(rows["WEFT_TIMEOUT_MS"]["from"] == "default", rows["WEFT_TIMEOUT_MS"])
must(rows["WEFT_RANK"]["value"] is None, rows["WEFT_RANK"])
must("hush" not in json.dumps(facts), "the secret is shown")
must("hush" not in run(["--settings"], WEFT_SECRET="hush hush hush hush").stdout, "secret")

code, facts = settings(WEFT_LOG="loud", WEFT_PORT="0", WEFT_TIMOUT_MS="3")
rows = {row["name"]: row for row in facts["settings"]}
must(code == 1 and facts["unknown"] == ["WEFT_TIMOUT_MS"], facts["unknown"])
must("WEFT_LOG=loud: allowed is" in rows["WEFT_LOG"]["error"], rows)
must("from 1 to 65535" in rows["WEFT_PORT"]["error"], rows)
must(rows["WEFT_WARN_MS"]["error"] is None, rows)
end = run(["--settings"], WEFT_TIMOUT_MS="3")
must(end.returncode == 1 and "WEFT_TIMOUT_MS: weft does not know" in end.stdout,
     end)

# Words, each the only one that is wrong.
for name, value in (("WEFT_LEVELS", ","), ("WEFT_LEVELS", "NUMA"),
                    ("WEFT_LEVELS", "a,,b"), ("WEFT_LEVELS", "a," + 59 * "b"),
                    ("WEFT_ALGO", "all_reduce:foo"), ("WEFT_ROUTE", "foo"),
                    ("WEFT_SINGLE_COPY", "foo"), ("WEFT_SUM_FLAT", "yes")):
    code, facts = settings(**{name: value})
    wrong = {row["name"]: row["error"] for row in facts["settings"]
             if row["error"]}
    must(code == 1 and list(wrong) == [name] and
         wrong[name].startswith("%s=%s" % (name, value)), (value, wrong))
for value in ("2/numa", "a,b,a", "off"):
    must(settings(WEFT_LEVELS=value)[0] == 0, value)

# What comes of one is seen, in a job and of one that does not run.
JOB = [sys.argv[1] + "/weft-run", "-n", "4", INFO, "--routes"]
NO_JOB = [INFO, "--routes", "-n", "4"]
# Of b's three ranks the last two are a node of the host's tree.
ADDED = {"2": [(2, 2)], "off": [], "a,b,b,b": [(3, 2)], "a,b,a,b": []}
for levels, groups, words in ((levels, groups, words)
                              for levels, groups in (("2", [(2, 2)]),
                                                     ("off", []),
                                                     ("a,b,b,b", [(2, 3)]),
                                                     ("a,b,a,b", [(2, 2)]))
                              for words in (JOB, NO_JOB)):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
    clean.update(WEFT_LEVELS=levels, WEFT_MACHINES="off")
    text, facts = (subprocess.run(words + more, env=clean, capture_output=True,
                                  text=True, timeout=30).stdout
                   for more in ([], ["--json", "-"]))
    must([(level["groups"], level["most_ranks"])
          for level in json.loads(facts)["nest"]] == groups, facts)
    sums = [(level["groups"], level["most_ranks"])
            for level in json.loads(facts)["sums"]]
    must(sums == ADDED[levels], facts)
    said = re.findall(r"^sums +(.*)$", text, re.M)
    must(bool(said) == (levels != "off") and
         [line.startswith("no group") for line in said] ==
         ([not sums] if said else []), text)
    must(re.findall(r"^nest +(\d+) groups of up to (\d+) ranks$", text, re.M) ==
         [(str(a), str(b)) for a, b in groups], text)

end = run(NO_JOB[1:], WEFT_LEVELS="a,b,a")
must(end.returncode == 1 and "one word of up to 58 letters for each of the 4" in
     " ".join(end.stderr.split()), end)

end = run(["--help"])
must(end.returncode == 0 and "examples:" in end.stdout, end)
end = run(["--version"])
must(end.returncode == 0 and end.stdout.startswith("weft-info "), end)
end = run(["--magic"])
must(end.returncode == 2 and end.stderr.startswith("weft-info: --magic: "), end)
end = run(["--json"])
must(end.returncode == 2 and "allowed is a file" in end.stderr, end)
end = run(["--json", "/no/such/folder/x"])
must(end.returncode == 1 and "No such file" in end.stderr, end)
print("%d settings" % len(NAMES))
