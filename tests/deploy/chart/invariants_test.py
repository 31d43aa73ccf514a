"""Checks what must hold of every rendered set of values, beyond what schemas say.

invariants_test.py [--server CASTOR_SERVER]: with the program, that every flag exists and parses, and
that the metrics named for scaling, in rules and in dashboards are on its /metrics page.
"""

import argparse
import re
import sys

import yaml

import pod_checks
import program
import rendering

# A server without tracing has none of these.
DISRUPTABLE = {"Deployment", "PodDisruptionBudget"}


def check_selectors(faults, found):
    running = [(labels, spec) for _, labels, spec in pod_checks.pods(found)]
    servers = [spec for each, _, spec in pod_checks.pods(found) if each["kind"] == "Deployment"]

    def matching(wanted):
        return [spec for labels, spec in running if wanted.items() <= labels.items()]

    for each in found:
        where = rendering.label(each)
        selector = each.get("spec", {}).get("selector") or each["spec"].get("podSelector") \
            if "spec" in each else None
        if each["kind"] in DISRUPTABLE | {"NetworkPolicy", "InferencePool"}:
            selector = selector["matchLabels"]
        elif each["kind"] != "Service":
            continue
        faults.expect(matching(selector) == servers, where, f"selects others: {selector}")
        ports = {key for spec in servers for container in spec["containers"]
                 for port in container.get("ports", [])
                 for key in (port["name"], port["containerPort"])}
        if each["kind"] == "Service":
            for port in each["spec"]["ports"]:
                faults.expect(port["targetPort"] in ports, where, f"no port {port['targetPort']}")
            if each["spec"].get("clusterIP") == "None":
                numbers = {container_port["containerPort"] for spec in servers
                           for container_port in spec["containers"][0]["ports"]}
                faults.expect(all(port["port"] in numbers for port in each["spec"]["ports"]), where,
                              "a headless Service translates no ports")
        if each["kind"] == "InferencePool":
            for port in each["spec"]["targetPorts"]:
                faults.expect(port["number"] in ports, where, f"no port {port['number']}")
        if each["kind"] == "NetworkPolicy":
            faults.expect(set(each["spec"]["policyTypes"]) == {"Ingress", "Egress"}, where, "is open")
            for rule in each["spec"]["ingress"]:
                faults.expect(rule.get("from"), where, "a rule lets everybody in")
                for port in rule["ports"]:
                    faults.expect(port["port"] in ports, where, f"no port {port['port']}")


def check_references(faults, found):
    """Whatever names another object of the chart names one that is there."""
    have = {(each["kind"], each["metadata"]["name"]) for each in found}
    for each in found:
        where = rendering.label(each)
        if each["kind"] in ("HorizontalPodAutoscaler", "ScaledObject"):
            target = each["spec"]["scaleTargetRef"]
            faults.expect((target["kind"], target["name"]) in have, where, "scales nothing")
        if each["kind"] == "GRPCRoute":
            for rule in each["spec"]["rules"]:
                for backend in rule["backendRefs"]:
                    kind = backend.get("kind", "Service")
                    faults.expect((kind, backend["name"]) in have, where, f"no {backend}")
        if each["kind"] == "ServiceMonitor":
            wanted = each["spec"]["selector"]["matchLabels"].items()
            matched = [other for other in found if other["kind"] == "Service"
                       and wanted <= other["metadata"]["labels"].items()]
            faults.expect(len(matched) == 1, where, f"selects {len(matched)} Services")
            for endpoint in each["spec"]["endpoints"]:
                names = [port["name"] for other in matched for port in other["spec"]["ports"]]
                faults.expect(endpoint["port"] in names, where, f"no port {endpoint['port']}")
        for template in [spec for _, _, spec in pod_checks.pods([each])]:
            for claim in template.get("resourceClaims", []):
                faults.expect(("ResourceClaimTemplate", claim["resourceClaimTemplateName"]) in have,
                              where, "no template of its claim")


def metric_names(each):
    """Castor's metrics that an object names."""
    if each["kind"] == "HorizontalPodAutoscaler":
        return {metric["pods"]["metric"]["name"] for metric in each["spec"]["metrics"]}
    if each["kind"] in ("ScaledObject", "PrometheusRule"):
        text = yaml.safe_dump(each["spec"])
    elif each["kind"] == "ConfigMap" and "-dashboard-" in each["metadata"]["name"]:
        text = " ".join(each["data"].values())
    else:
        return set()
    # castor:name is a recording rule, which promtool checks in deploy/monitoring.
    return set(re.findall(r"(?<![:\w/.-])castor_[a-z_]+(?!:)\b", text))


def check(name, found, faults, server):
    """All of it, for one set of values."""
    for each, _, spec in pod_checks.pods(found):
        where = f"{name}: {rendering.label(each)}"
        pod_checks.check_restricted(faults, where, spec)
        pod_checks.check_containers(faults, where, spec)
        pod_checks.check_probes(faults, where, spec)
        if each["kind"] == "Deployment":
            pod_checks.check_times(faults, where, each)
            if server:
                for arg in spec["containers"][0]["args"]:
                    flag = arg.split("=")[0]
                    faults.expect(flag in server.flags, where, f"castor-server has no {flag}")
    check_selectors(faults, found)
    check_references(faults, found)
    if server:
        for each in found:
            for metric in metric_names(each) - server.metrics:
                faults.expect(False, f"{name}: {rendering.label(each)}", f"no metric {metric}")


# What a mistake in a template would look like, and that it is found: (set, text, in its place).
MISTAKES = [
    ("default", "port: 50052, service: readiness", "port: 50053, service: readiness"),
    ("default", "service: liveness", "service: alive"),
    ("default", "castor:0.1.0", "castor:latest"),
    ("default", "castor:0.1.0", "castor"),
    ("default", "runAsNonRoot: true", "runAsNonRoot: false"),
    ("default", "runAsUser: 10001", "runAsUser: 0"),
    ("default", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false"),
    ("default", "automountServiceAccountToken: false\n      e", "automountServiceAccountToken: true\n      e"),
    ("default", "emptyDir: {sizeLimit: 64Mi}", "emptyDir: {}"),
    ("default", "{name: tmp, mountPath: /tmp}", "{name: temp, mountPath: /tmp}"),
    ("default", "terminationGracePeriodSeconds: 80", "terminationGracePeriodSeconds: 30"),
    ("default", "progressDeadlineSeconds: 775", "progressDeadlineSeconds: 600"),
    ("default", "targetPort: grpc", "targetPort: rpc"),
    ("default", "component: server", "component: servers"),
    ("default", "policyTypes: [Ingress, Egress]", "policyTypes: [Ingress]"),
    ("default", "ports: [{port: grpc, protocol: TCP}]", "ports: [{port: rpc, protocol: TCP}]"),
    ("tls-tokens", "port: metrics\n", "port: http\n"),
    ("tls-tokens", "component: metrics\n  namespaceSelector", "component: x\n  namespaceSelector"),
    ("keda", "name: castor}\n", "name: beaver}\n"),
    ("inference-pool", "kind: InferencePool, name: castor", "kind: InferencePool, name: pool"),
    ("inference-pool", "{number: 50051}", "{number: 50050}"),
    ("gpu-dra", "resourceClaimTemplateName: castor-gpu", "resourceClaimTemplateName: castor"),
]


def check_mistakes():
    """Each mistake is a fault; otherwise a check above checks nothing."""
    texts = {}
    for name, text, instead in MISTAKES:
        rendered = texts.setdefault(name, rendering.render(name))
        if text not in rendered:
            sys.exit(f"invariants_test: MISTAKES is out of date: no {text!r} in {name}")
        faults = pod_checks.Faults()
        check(name, rendering.objects(rendered.replace(text, instead, 1)), faults, None)
        if not faults.lines:
            sys.exit(f"invariants_test: nothing finds {instead!r} for {text!r} in {name}")


def check_jobs(faults):
    """The examples' jobs: as strict as the chart's pods, and each share of the work is somebody's."""
    for file in sorted(rendering.JOBS.glob("*.yaml")):
        for each, labels, spec in pod_checks.pods(rendering.objects(file.read_text())):
            where = f"jobs/{file.name}"
            pod_checks.check_restricted(faults, where, spec)
            faults.expect(labels.get("castor-client") == "true", where, "may not reach the server")
            shares = {entry["name"]: entry["value"] for entry in spec["containers"][0]["env"]}
            faults.expect(shares.get("JOB_COMPLETIONS") == str(each["spec"]["completions"]), where,
                          "JOB_COMPLETIONS is not the number of completions")
            faults.expect(each["spec"]["completionMode"] == "Indexed", where, "workers have no index")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server")
    flags = parser.parse_args()
    faults = pod_checks.Faults()
    server = None
    if flags.server:
        deployment = next(each for each in rendering.objects(rendering.render("default"))
                          if each["kind"] == "Deployment")
        pod = deployment["spec"]["template"]["spec"]
        server = program.Program(flags.server, pod["containers"][0]["args"])
    names = rendering.value_sets()
    count = 0
    for name in names:
        found = rendering.objects(rendering.render(name))
        check(name, found, faults, server)
        count += len(found)
    check_jobs(faults)
    check_mistakes()
    if faults.lines:
        print("\n".join(sorted(set(faults.lines))))
        sys.exit(1)
    print(f"invariants_test: {count} objects of {len(names)} sets of values"
          f"{', with the server' if server else ''}")


if __name__ == "__main__":
    main()
