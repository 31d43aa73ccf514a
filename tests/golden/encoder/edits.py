"""Edits of a model directory, as variations.json has them (make_variations.py)."""

import json


def place(document, pointer):
    """The container and the key that a JSON pointer names."""
    *path, last = pointer[1:].split("/")
    for step in path:
        document = document[int(step) if isinstance(document, list) else step]
    return document, int(last) if isinstance(document, list) else last


def apply(folder, edit):
    """False where there is nothing to take away."""
    path = folder / edit["file"]
    if "text" in edit:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(edit["text"])
    elif "replace" in edit:
        before, found, after = path.read_text().rpartition(edit["replace"][0])
        assert found, edit
        path.write_text(before + edit["replace"][1] + after)
    elif edit.get("delete"):
        path.unlink()
    elif "rename" in edit:
        (folder / edit["rename"]).parent.mkdir(parents=True, exist_ok=True)
        path.rename(folder / edit["rename"])
    else:
        document = json.loads(path.read_text())
        container, key = place(document, edit["pointer"])
        if "value" in edit:
            container[key] = edit["value"]
        elif isinstance(container, list):
            del container[key]
        elif key not in container:
            return False
        else:
            del container[key]
        path.write_text(json.dumps(document, ensure_ascii=False))
    return True


def told(edits):
    """In short."""
    return ", ".join(
        edit["file"] + edit.get("pointer", "") + " " + json.dumps(
            {key: value for key, value in edit.items() if key not in ("file", "pointer")},
            ensure_ascii=False)[:80] for edit in edits)
