"""Renders the chart with named sets of values, as the other scripts here use it."""

import os
import pathlib
import re
import subprocess

import yaml

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CHART = ROOT / "deploy/kubernetes/castor"
EXAMPLES = ROOT / "deploy/kubernetes/examples"
JOBS = EXAMPLES / "jobs"  # objects as they are, beside the chart's
KSERVE = ROOT / "deploy/kserve"
HELM = os.environ.get("HELM", "helm")
OLDEST = "1.29"  # of Kubernetes, as in Chart.yaml


def value_sets():
    """Names of the sets: `default`, and one for each example."""
    return ["default"] + sorted(path.stem for path in EXAMPLES.glob("*.yaml"))


def oldest_kubernetes(name):
    """The first Kubernetes that has what a set asks for, from a comment in its file."""
    if name == "default":
        return OLDEST
    found = re.search(r"^# kubernetes: (1\.\d+)$", (EXAMPLES / f"{name}.yaml").read_text(), re.M)
    return found.group(1) if found else OLDEST


def helm(*arguments):
    """Runs helm; its exit code, standard output, and standard error without notes about links."""
    ended = subprocess.run([HELM, *map(str, arguments)], capture_output=True, text=True, check=False)
    errors = [line for line in ended.stderr.splitlines() if "found symbolic link in path" not in line]
    return ended.returncode, ended.stdout, "\n".join(errors)


def render(name, *arguments):
    """What helm makes of a set, as text. Raises RuntimeError with what helm says."""
    files = [] if name == "default" else ["-f", EXAMPLES / f"{name}.yaml"]
    version = max(oldest_kubernetes(name), "1.33", key=lambda text: int(text.split(".")[1]))
    code, text, errors = helm("template", "castor", CHART, "--namespace", "apps", "--kube-version",
                              version + ".0", *files, *arguments)
    if code != 0:
        raise RuntimeError(errors)
    return text


def objects(text):
    return [each for each in yaml.safe_load_all(text) if each]


def label(each):
    return f"{each['kind']} {each['metadata']['name']}"
