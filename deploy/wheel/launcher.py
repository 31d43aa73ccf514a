"""castor-server, on the LibTorch of the torch that is installed. deploy/wheel.sh makes this
package; castor-client uses it in castor.serve()."""

import importlib.util
import os
import sys
from importlib import metadata
from pathlib import Path

_TORCH = "@TORCH@"


def command() -> list[str]:
    """What starts castor-server. RuntimeError: the torch that it needs is not here."""
    here = Path(__file__).resolve().parent
    needs = f"castor-server {metadata.version('castor-server')} needs torch {_TORCH}"
    hint = f"pip install torch=={_TORCH}"
    try:
        found = metadata.version("torch")
    except metadata.PackageNotFoundError:
        raise RuntimeError(f"{needs}, which is not installed: {hint}") from None
    # LibTorch's C++ interface is another in every version. A build's own part is after a "+".
    if found.partition("+")[0] != _TORCH:
        raise RuntimeError(f"{needs}, and torch {found} is installed: {hint}")
    spec = importlib.util.find_spec("torch")  # does not import it
    if spec is None or spec.origin is None:
        raise RuntimeError(f"{needs}, whose folder is not found: {hint}")
    libraries = Path(spec.origin).resolve().parent / "lib"
    program = str(here / "bin/castor-server")
    if libraries == here.parent / "torch/lib":
        return [program]
    # In another site-packages, as of an environment that sees the system's.
    paths = [str(libraries), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return ["/usr/bin/env", f"LD_LIBRARY_PATH={':'.join(paths)}", program]


def main() -> None:
    try:
        program, *arguments = command()
    except RuntimeError as error:
        sys.exit(str(error))
    os.execv(program, [program, *arguments, *sys.argv[1:]])
