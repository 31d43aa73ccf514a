// gRPC's own log lines, which it would write to standard error in its own format.
#pragma once

namespace castor::server {

// Sends them to ours, as debug lines: what gRPC calls an error is mostly a client's doing, or is
// reported by us in better words. Call once, before gRPC is used.
void SendGrpcLogToOurs();

}  // namespace castor::server
