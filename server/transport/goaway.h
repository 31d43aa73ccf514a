// Asks the peers of a gRPC server to take their calls elsewhere, as HTTP/2 has it.
#pragma once

#include <grpcpp/server.h>

namespace castor::server {

// Sends GOAWAY on every connection, gracefully: a peer starts no new call on it from when it hears
// of that, those on their way until then are served, and a connection closes when its last call has
// ended. Returns false, and does nothing, where gRPC is another than the one this was written for.
//
// gRPC has no call for this in its interface. Its shutdown also sends GOAWAY, but resets the calls
// that arrive before the peer has heard of it: some are lost at every rolling update.
bool SendGoaways(grpc::Server& server);

}  // namespace castor::server
