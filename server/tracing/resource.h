// What the spans say about the process that sends them.
#pragma once

#include <string>

#include "opentelemetry/proto/resource/v1/resource.pb.h"

namespace castor::server {

using Resource = opentelemetry::proto::resource::v1::Resource;

// service.name (castor, unless OTEL_SERVICE_NAME says otherwise), service.version,
// service.instance.id (random), host.name, k8s.pod.name, k8s.namespace.name and k8s.node.name where
// POD_NAME, POD_NAMESPACE and NODE_NAME are set, and what OTEL_RESOURCE_ATTRIBUTES adds or
// replaces. Reads the environment: before other threads change it.
Resource ResourceOfProcess();

// Takes "key=value,key=value", values percent-encoded, into `resource`. As OpenTelemetry demands, a
// text that is not so changes nothing: false. A bound on it is 8 KiB.
bool AddAttributes(const std::string& text, Resource* resource);

}  // namespace castor::server
