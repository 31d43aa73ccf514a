"""What must hold of the pods that the chart renders."""

import re

LEAST_USER = 10000  # users of the node's own have lower numbers


class Faults:
    def __init__(self):
        self.lines = []

    def expect(self, holds, where, what):
        if not holds:
            self.lines.append(f"{where}: {what}")


def pods(found):
    """(object, pod's labels, pod's spec) of what runs."""
    for each in found:
        if each["kind"] == "Pod":
            yield each, each["metadata"]["labels"], each["spec"]
        elif each["kind"] in ("Deployment", "Job"):
            template = each["spec"]["template"]
            yield each, template["metadata"]["labels"], template["spec"]


def containers(spec):
    return spec.get("initContainers", []) + spec["containers"]


def check_probes(faults, where, spec):
    for container in spec["containers"]:
        ports = {port["containerPort"] for port in container.get("ports", [])}
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            if container["name"] != "castor" or not ports:
                continue
            probe = container.get(kind, {}).get("grpc", {})
            faults.expect(probe.get("port") in ports, where, f"{kind}: no port {probe.get('port')}")
            faults.expect(probe.get("service") in ("readiness", "liveness"), where,
                          f"{kind}: no service {probe.get('service')} in server/lifecycle/health.cc")


def check_restricted(faults, where, spec):
    """The Pod Security Standard `restricted`, and what we ask for beyond it."""
    pod = spec.get("securityContext", {})
    faults.expect(pod.get("runAsNonRoot") is True, where, "may run as root")
    faults.expect(pod.get("runAsUser", 0) >= LEAST_USER, where, "a user of the node")
    faults.expect(pod.get("seccompProfile", {}).get("type") == "RuntimeDefault", where, "no seccomp")
    faults.expect(spec.get("automountServiceAccountToken") is False, where, "has a token")
    faults.expect(spec.get("enableServiceLinks") is False, where, "has service links")
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        faults.expect(not spec.get(field), where, field)
    allowed = {"configMap", "emptyDir", "persistentVolumeClaim", "secret", "image", "projected"}
    for volume in spec.get("volumes", []):
        kinds = set(volume) - {"name"}
        faults.expect(len(kinds) == 1 and kinds <= allowed, where, f"volume {volume}")
        if "emptyDir" in volume:
            faults.expect("sizeLimit" in volume["emptyDir"], where, f"unbounded {volume['name']}")
    for container in containers(spec):
        inside = f"{where}: {container['name']}"
        context = container.get("securityContext", {})
        faults.expect(context.get("allowPrivilegeEscalation") is False, inside, "may escalate")
        faults.expect(context.get("readOnlyRootFilesystem") is True, inside, "writable root")
        faults.expect(context.get("capabilities") == {"drop": ["ALL"]}, inside, "capabilities")
        faults.expect(not context.get("privileged"), inside, "privileged")


def check_containers(faults, where, spec):
    volumes = {volume["name"] for volume in spec.get("volumes", [])}
    used = set()
    for container in containers(spec):
        inside = f"{where}: {container['name']}"
        image = container["image"]
        faults.expect(re.search(r"@sha256:[0-9a-f]{64}$|:[^/:]+$", image) and
                      not image.endswith(":latest"), inside, f"image {image}")
        limits = container.get("resources", {}).get("limits", {})
        requests = container.get("resources", {}).get("requests", {})
        faults.expect("memory" in limits, inside, "no memory limit")
        faults.expect("cpu" in requests and "memory" in requests, inside, "no requests")
        paths = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
        faults.expect(len(paths) == len(set(paths)), inside, f"mounts meet: {paths}")
        for mount in container.get("volumeMounts", []):
            used.add(mount["name"])
            faults.expect(mount["name"] in volumes, inside, f"no volume {mount['name']}")
            faults.expect("subPath" not in mount, inside, "a subPath is never renewed")
    faults.expect(used == volumes, where, f"unused volumes: {volumes - used}")
    names = [volume["name"] for volume in spec.get("volumes", [])]
    faults.expect(len(names) == len(set(names)), where, f"volumes meet: {names}")


def check_times(faults, where, deployment):
    """Nobody is cut off: the grace period is longer than the drain, which outlasts every call."""
    pod = deployment["spec"]["template"]["spec"]
    flags = dict(arg.removeprefix("--").split("=", 1)
                 for arg in pod["containers"][0]["args"] if "=" in arg)
    seconds = {name: int(flags[name].removesuffix("s")) for name in (
        "drain-delay", "drain-deadline", "max-deadline")}
    grace = pod["terminationGracePeriodSeconds"]
    faults.expect(grace > seconds["drain-delay"] + seconds["drain-deadline"] + 2, where,
                  f"grace period of {grace} s: {seconds}")
    faults.expect(seconds["drain-deadline"] >= seconds["max-deadline"], where, "the drain cuts off")
    progress = deployment["spec"]["progressDeadlineSeconds"]
    probe = pod["containers"][0]["startupProbe"]
    start = probe["periodSeconds"] * probe["failureThreshold"]
    faults.expect(progress > grace + start + deployment["spec"]["minReadySeconds"], where,
                  "the rollout gives up while a pod may still start")
