// The log lines of gRPC and protobuf, which they would write to standard error in their own
// formats.
#pragma once

namespace castor::server {

// Sends them to our log as debug lines: most of what they call an error is caused by a client, or
// we report it with more context. Call once, before they are used.
void SendGrpcLogToOurs();

}  // namespace castor::server
