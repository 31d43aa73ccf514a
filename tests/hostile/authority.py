"""Certificates and tokens for the servers under attack, made by openssl(1) in a folder of its own."""

import hashlib
import os
import ssl
import subprocess


def openssl(folder: str, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


class Authority:
    """A certificate authority in a folder: ca.pem, and what it issues."""

    def __init__(self, folder: str, name: str = "ca"):
        self.folder, self.name = folder, name
        openssl(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                "-nodes", "-days", "2", "-subj", f"/CN=test {name}", "-keyout", f"{name}.key",
                "-out", f"{name}.pem")

    @property
    def path(self) -> str:
        return os.path.join(self.folder, self.name + ".pem")

    def issue(self, name: str, alternatives: str = "DNS:localhost,IP:127.0.0.1") -> tuple[str, str]:
        """Paths of a certificate and its key, for servers and clients."""
        with open(os.path.join(self.folder, f"{name}.ext"), "w") as extensions:
            extensions.write(f"subjectAltName={alternatives}\n")
        openssl(self.folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        openssl(self.folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{self.name}.pem", "-CAkey",
                f"{self.name}.key", "-CAcreateserial", "-days", "1", "-extfile", f"{name}.ext",
                "-out", f"{name}.pem")
        return tuple(os.path.join(self.folder, f"{name}.{kind}") for kind in ("pem", "key"))


def caller_entry(name: str, token: str, allow: str = '["*"]', expires: str = '"never"') -> str:
    """What `castor-server token` prints for a caller."""
    digest = hashlib.sha256(token.encode()).hexdigest()
    return (f'[[caller]]\nname = "{name}"\nsha256 = "{digest}"\n'
            f"allow = {allow}\nexpires = {expires}\n\n")


def callers_file(*entries: str) -> str:
    return "".join(entries) + "[end]\n"


def client_context(ca: str) -> ssl.SSLContext:
    """TLS as a gRPC client speaks it."""
    context = ssl.create_default_context(cafile=ca)
    context.set_alpn_protocols(["h2"])
    return context
