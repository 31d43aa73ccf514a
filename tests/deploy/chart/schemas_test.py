"""Validates what the chart renders, and deploy/kserve, against schemas of Kubernetes releases.

schemas_test.py [--kubeconform PROGRAM --schemas FOLDER]: by kubernetes-validate for its own schemas;
by kubeconform for the same ones and those of custom resources, which tools.sh makes. Both refuse
unknown fields.
"""

import argparse
import functools
import pathlib
import subprocess
import sys
import tempfile

import kubernetes_validate

import rendering

# What kubernetes-validate has no schemas of: kubeconform must know them.
CUSTOM_GROUPS = {"monitoring.coreos.com", "keda.sh", "gateway.networking.k8s.io",
                 "inference.networking.k8s.io", "serving.kserve.io"}


# Each release's definitions are a megabyte of JSON, and are read for every object.
kubernetes_validate.utils.schema_contents = functools.cache(kubernetes_validate.utils.schema_contents)


def minor(version):
    return int(version.split(".")[1])


def releases():
    """Each release from the oldest that the chart takes to the newest with a schema."""
    all_of_them = {kubernetes_validate.utils.major_minor(version)
                   for version in kubernetes_validate.utils.all_versions()}
    return sorted((version for version in all_of_them if minor(version) >= minor(rendering.OLDEST)),
                  key=minor)


def sources():
    """(name, text, oldest release) of everything to validate."""
    for name in rendering.value_sets():
        yield name, rendering.render(name), rendering.oldest_kubernetes(name)
    for file in sorted(rendering.KSERVE.glob("*.yaml")):
        yield f"kserve-{file.stem}", file.read_text(), rendering.OLDEST
    for file in sorted(rendering.JOBS.glob("*.yaml")):
        yield f"job-{file.stem}", file.read_text(), rendering.OLDEST


def by_kubernetes_validate(name, text, oldest, problems):
    count = 0
    for each in rendering.objects(text):
        if each["apiVersion"].split("/")[0] in CUSTOM_GROUPS:
            continue
        for version in releases():
            if minor(version) < minor(oldest):
                continue
            count += 1
            try:
                kubernetes_validate.validate(each, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                path = ".".join(map(str, error.path))
                problems.append(f"{name}, {version}: {rendering.label(each)}: {path}: {error.message}")
            except kubernetes_validate.SchemaNotFoundError as error:
                problems.append(f"{name}, {version}: {error.message}")
    return count


def by_kubeconform(everything, flags, problems):
    """One run for each release, with all that is for it: most of a run is reading definitions."""
    with tempfile.TemporaryDirectory() as folder:
        for version in releases():
            files = []
            for name, text, oldest in everything:
                if minor(version) >= minor(oldest):
                    files.append(pathlib.Path(folder) / f"{name}.yaml")
                    files[-1].write_text(text)
            ended = subprocess.run(
                [flags.kubeconform, "-strict", "-summary", "-kubernetes-version", f"{version}.0",
                 "-schema-location", flags.schemas +
                 "/{{.NormalizedKubernetesVersion}}/{{.ResourceKind}}{{.KindSuffix}}.json",
                 "-schema-location", flags.schemas +
                 "/custom/{{.ResourceKind}}-{{.Group}}-{{.ResourceAPIVersion}}.json", *files],
                capture_output=True, text=True, check=False)
            if ended.returncode != 0:
                problems.append(f"{version}: kubeconform: {ended.stdout}{ended.stderr}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconform", required=True)
    parser.add_argument("--schemas", required=True)
    flags = parser.parse_args()
    problems = []
    everything = list(sources())
    count = sum(by_kubernetes_validate(*source, problems) for source in everything)
    by_kubeconform(everything, flags, problems)
    # Validators that accept anything would find nothing.
    found = []
    by_kubernetes_validate("", "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {port: 1}}",
                           rendering.OLDEST, found)
    for wrong in ("{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {port: 1}}",
                  "{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, metadata: {name: x}, "
                  "spec: {scaleTargetRef: {name: x}, triggers: [], scale: 1}}"):
        by_kubeconform([("wrong", wrong, rendering.OLDEST)], flags, found)
    if len(found) != 3 * len(releases()):
        problems.append(f"unknown fields are not refused: {found}")
    if problems:
        sys.exit("\n".join(problems))
    print(f"schemas_test: {len(everything)} sources, {count} objects by kubernetes-validate, all by "
          f"kubeconform, for Kubernetes {releases()[0]} to {releases()[-1]}")


if __name__ == "__main__":
    main()
