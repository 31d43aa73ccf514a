// The transport's limits. Those that the options leave open are derived from the process's limits.
#pragma once

#include <cstdint>

#include "server/options/options.h"

namespace castor::server {

// No request needs more metadata, and this gRPC's parser has had trouble with large headers.
inline constexpr int64_t kMaxMetadataBytes = 8 << 10;

// Descriptors of one connection: gRPC's and ours (connections.h).
inline constexpr int64_t kDescriptorsPerConnection = 2;

// Raises the soft limit on descriptors to the hard one, as a server may; returns it.
int64_t RaiseDescriptorLimit();

// `options` with max_connections, max_connections_per_host, max_new_connections, max_calls,
// max_transport_bytes and, where there is a health port, max_health_connections set. `descriptors`
// is the process's limit, `open_descriptors` how many are open, `memory_bytes` its memory limit.
ServerOptions WithTransportLimits(ServerOptions options, int64_t descriptors,
                                  int64_t open_descriptors, int64_t memory_bytes);

// The same, for this process as it is now.
ServerOptions WithTransportLimits(ServerOptions options);

}  // namespace castor::server
