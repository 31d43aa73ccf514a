"""Makes JSON schemas as kubeconform reads them.

make_schemas.py OUTPUT FOLDER...: OUTPUT/custom/KIND-GROUP-VERSION.json for each version of each
CustomResourceDefinition found in the folders. Unknown fields are refused where the definition lists
the known ones, since the API server would drop them silently. OUTPUT/vX.Y.Z holds what comes with
kubernetes-validate, with references between files that lead to files.
"""

import importlib.resources
import json
import pathlib
import shutil
import sys

import yaml

# A lone "=" in an enumeration is text, though YAML 1.1 has a type for it.
yaml.SafeLoader.add_constructor("tag:yaml.org,2002:value", yaml.SafeLoader.construct_yaml_str)


def strict(schema):
    """The schema as validators of JSON understand it, without room for unknown fields."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if made.pop("x-kubernetes-int-or-string", False):
        made.pop("type", None)
        made["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if made.pop("nullable", False) and isinstance(made.get("type"), str):
        made["type"] = [made["type"], "null"]
    open_ended = made.get("x-kubernetes-preserve-unknown-fields", False)
    if isinstance(made.get("properties"), dict) and not open_ended:
        made.setdefault("additionalProperties", False)
    return made


def definitions(folders):
    for folder in folders:
        files = sorted(pathlib.Path(folder).glob("*.yaml"))
        if not files:
            sys.exit(f"make_schemas: no definitions in {folder}")
        for file in files:
            for document in yaml.safe_load_all(file.read_text()):
                if document and document.get("kind") == "CustomResourceDefinition":
                    yield document["spec"]


def make_custom(output, folders):
    for spec in definitions(folders):
        for version in spec["versions"]:
            schema = version.get("schema", {}).get("openAPIV3Schema")
            if not schema:
                continue
            made = strict(schema)
            made["properties"]["metadata"] = {"type": "object"}
            kind = spec["names"]["kind"].lower()
            name = f"{kind}-{spec['group']}-{version['name']}.json"
            (output / name).write_text(json.dumps(made))


def make_native(output):
    package = importlib.resources.files("kubernetes_validate") / "kubernetes-json-schema"
    for folder in package.glob("v*-local-strict"):
        copies = output / folder.name.removesuffix("-local-strict")
        copies.mkdir()
        for file in folder.glob("*.json"):
            schema = json.loads(file.read_text().replace("/api/_definitions.json#",
                                                         "_definitions.json#"))
            schema.pop("$id", None)  # a web address, which references would be relative to
            (copies / file.name).write_text(json.dumps(schema))


def main():
    output = pathlib.Path(sys.argv[1])
    shutil.rmtree(output, ignore_errors=True)
    (output / "custom").mkdir(parents=True)
    make_custom(output / "custom", sys.argv[2:])
    make_native(output)


if __name__ == "__main__":
    main()
