"""Says what is inside the image: an SPDX 2.3 document, dpkg's entries as scanners read them, and
the licences of what is shipped.

The manifest has a line for each library: where it is in the image, a tab, where it came from.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess

# Compiled in, so that no shared library shows them.
HEADER_ONLY = ["libcli11-dev", "libtomlplusplus-dev", "nlohmann-json3-dev", "libboost-dev",
               "rapidjson-dev"]
LICENCES = re.compile("(LICEN[CS]E|COPYING|NOTICE|UNLICENSE)", re.IGNORECASE)  # names' beginnings


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--manifest", type=pathlib.Path, required=True)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--target", type=pathlib.Path, required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--epoch", type=int, required=True)
    return parser.parse_args()


def output_of(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def debian_package(path):
    """The binary package that a file belongs to; None if to none."""
    for name in (path, path.removeprefix("/usr"), "/usr" + path):
        found = output_of("dpkg-query", "-S", name)
        if found:
            return found.split(":", 1)[0].split(",")[0]
    return None


def debian_entry(name):
    fields = output_of(
        "dpkg-query", "-W", "-f", "${Version}\t${Architecture}\t${source:Package}\n", name)
    version, architecture, source = fields.splitlines()[0].split("\t")
    system = dict(
        line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text().splitlines()
        if "=" in line)
    distribution = system.get("ID", "debian").strip('"')
    return {
        "name": name, "version": version, "architecture": architecture, "source": source,
        "purl": f"pkg:deb/{distribution}/{name}@{version}?arch={architecture}",
        "licence": "NOASSERTION"}


def wheel_of(path):
    """The wheel that installed a file, by the RECORDs in its site-packages; None if none did."""
    match = re.match(r"(.*/site-packages)/(.*)", path)
    if not match:
        return None
    site, inner = pathlib.Path(match[1]), str(pathlib.PurePath(match[2]))
    inner = str((site / inner).resolve().relative_to(site.resolve()))
    for record in sorted(site.glob("*.dist-info/RECORD")):
        if re.search(rf"^{re.escape(inner)},", record.read_text(), re.MULTILINE):
            return record.parent
    return None


def wheel_entry(info):
    metadata = (info / "METADATA").read_text()
    field = lambda key: next(iter(re.findall(rf"^{key}: (.*)$", metadata, re.MULTILINE)), None)
    name, version = field("Name"), field("Version")
    return {
        "name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}",
        "licence": "NOASSERTION"}


def crates(source):
    """What Cargo.lock names, with the folder of its source; other systems' crates have none."""
    text = (source / "engine/hf/Cargo.lock").read_text()
    home = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo"))
    for block in text.split("[[package]]")[1:]:
        if "source = " not in block:
            continue  # ours
        name = re.search(r'^name = "(.*)"', block, re.MULTILINE)[1]
        version = re.search(r'^version = "(.*)"', block, re.MULTILINE)[1]
        folder = next(home.glob(f"registry/src/*/{name}-{version}"), None)
        told = folder and re.search(r'^license = "(.*)"', (folder / "Cargo.toml").read_text(), re.M)
        yield {"name": name, "version": version, "purl": f"pkg:cargo/{name}@{version}",
               "licence": re.sub(" */ *", " OR ", told[1]) if told else "NOASSERTION", "folder": folder}


def spdx_id(entry):
    kind = entry["purl"].split("/")[0].removeprefix("pkg:")
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", f"{kind}-{entry['name']}-{entry['version']}")


def spdx(version, commit, epoch, entries):
    created = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc)
    castor = {
        "SPDXID": "SPDXRef-castor", "name": "castor", "versionInfo": f"{version}+{commit}",
        "downloadLocation": "NOASSERTION", "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION", "filesAnalyzed": False,
        "primaryPackagePurpose": "APPLICATION"}
    packages = [castor]
    relations = [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
                  "relatedSpdxElement": castor["SPDXID"]}]
    for entry in entries:
        packages.append({
            "SPDXID": spdx_id(entry), "name": entry["name"], "versionInfo": entry["version"],
            "downloadLocation": "NOASSERTION", "licenseConcluded": "NOASSERTION",
            "licenseDeclared": entry["licence"], "copyrightText": "NOASSERTION",
            "filesAnalyzed": False,
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                              "referenceLocator": entry["purl"]}]})
        relations.append({"spdxElementId": castor["SPDXID"], "relationshipType": "CONTAINS",
                          "relatedSpdxElement": spdx_id(entry)})
    return {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"castor-{version}", "packages": packages, "relationships": relations,
        "documentNamespace": f"https://spdx.org/spdxdocs/castor-{version}-{commit}",
        "creationInfo": {"created": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
                         "creators": ["Tool: castor-deploy-image"]}}


def main():
    options = arguments()
    version = re.search(r"project\(castor\s+VERSION\s+([0-9.]+)",
                        (options.source / "CMakeLists.txt").read_text(), re.IGNORECASE)[1]
    system, wheels = set(HEADER_ONLY), set()
    for line in options.manifest.read_text().splitlines():
        _, origin = line.split("\t")
        if info := wheel_of(origin):
            wheels.add(info)
        elif package := debian_package(origin):
            system.add(package)
        else:
            raise SystemExit(f"sbom: {origin} belongs to no package: its licence is not known")
    packages = [debian_entry(name) for name in sorted(system)]
    entries = packages + [wheel_entry(info) for info in sorted(wheels)]
    rust = sorted(crates(options.source), key=lambda entry: (entry["name"], entry["version"]))
    if not any(entry["folder"] for entry in rust):
        raise SystemExit("sbom: Cargo's registry has no source of a crate: set CARGO_HOME")
    entries += rust

    share = options.target / "opt/castor/share"
    share.mkdir(parents=True)
    document = spdx(version, options.commit, options.epoch, entries)
    (share / "sbom.spdx.json").write_text(json.dumps(document, indent=1) + "\n")

    # Scanners know the packages of an image without dpkg from here.
    status = options.target / "var/lib/dpkg/status.d"
    status.mkdir(parents=True)
    for entry in packages:
        (status / entry["name"]).write_text(
            f"Package: {entry['name']}\nStatus: install ok installed\n"
            f"Architecture: {entry['architecture']}\nSource: {entry['source']}\n"
            f"Version: {entry['version']}\n")
        licence = pathlib.Path("/usr/share/doc") / entry["name"] / "copyright"
        to = options.target / "usr/share/doc" / entry["name"] / "copyright"
        to.parent.mkdir(parents=True)
        to.write_bytes(licence.read_bytes())
        named = re.findall(r"/usr/share/common-licenses/[\w.-]*\w", licence.read_text())
        for path in map(pathlib.Path, set(named)):
            to = options.target / path.relative_to("/")
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(path.read_bytes())
    texts = [(info, [*info.glob("*"), *info.glob("licenses/**/*")]) for info in sorted(wheels)]
    texts += [(entry["folder"], entry["folder"].glob("*")) for entry in rust if entry["folder"]]
    for folder, paths in texts:
        for licence in sorted(paths):
            inside = "licenses" in licence.parts
            if licence.is_file() and (inside or LICENCES.match(licence.name)):
                to = options.target / "usr/share/doc" / folder.name / licence.name
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(licence.read_bytes())
    print(f"sbom: {len(packages)} packages, {len(wheels)} wheels, "
          f"{len(rust)} crates")


main()
