// gRPC's own log lines, which it would write to standard error in its own format.
#pragma once

namespace castor::server {

// Sends them to our log as debug lines: most of what gRPC calls an error is caused by a client, or
// we report it with more context. Call once, before gRPC is used.
void SendGrpcLogToOurs();

}  // namespace castor::server
