"""Runs the chart's check of a model's files, as its init container does, on files that it must take
and on files that it must refuse."""

import pathlib
import subprocess
import sys
import tempfile

SCRIPT = (pathlib.Path(__file__).resolve().parents[3] /
          "deploy/kubernetes/castor/files/check-model.sh").read_text(encoding="utf-8")
FILES = {"config.json": "{}", "1_Pooling/config.json": "{1}", "a name.txt": "x"}


def main():
    with tempfile.TemporaryDirectory() as folder:
        model, manifest = pathlib.Path(folder, "model"), pathlib.Path(folder, "SHA256SUMS")
        failures = []

        def expect(what, accepted, path=model, says=""):
            done = subprocess.run(["sh", "-c", SCRIPT, "check-model", path, manifest],
                                  capture_output=True, text=True, check=False)
            said = done.stdout + done.stderr
            if (done.returncode == 0) != accepted or says not in said:
                failures.append(f"check_model_test: {what}: exit code {done.returncode}\n{said}")

        def make(command="find . -type f -exec sha256sum {} +"):
            for name, text in FILES.items():
                (model / name).parent.mkdir(parents=True, exist_ok=True)
                (model / name).write_text(text, encoding="utf-8")
            manifest.write_text(subprocess.run(["sh", "-c", command], cwd=model, check=True, text=True,
                                               capture_output=True).stdout, encoding="utf-8")

        make()
        expect("as it should be", True)
        make("find . -type f -printf '%P\\0' | xargs -0 sha256sum")
        expect("as it should be, without ./", True)
        (model / ".castor_fetch.json").write_text("{}", encoding="utf-8")
        expect("what castor fetch writes of its own", True)
        (model / ".castor_fetch.json").unlink()
        (model / "config.json").write_text("{} ", encoding="utf-8")
        expect("a changed file", False, says="config.json: FAILED")
        (model / "config.json").unlink()
        expect("a missing file", False, says="config.json")
        make()
        (model / "modules.json").write_text("[]", encoding="utf-8")
        expect("a file too many", False, says="modules.json\nare not in the manifest")
        expect("one file of them", True, model / "config.json")
        expect("one file that is not named", False, model / "modules.json", "modules.json\n")
        (model / "modules.json").unlink()
        (model / "link").symlink_to("config.json")
        expect("a link too many", False, says="link")
        expect("no such model", False, model / "none")
        manifest.write_text("", encoding="utf-8")
        expect("an empty manifest", False)
    if failures:
        sys.exit("".join(failures))
    print("check_model_test: 11 models")


if __name__ == "__main__":
    main()
