// Converts what the engine says about itself to wire messages. Pure functions.
#pragma once

#include "castor/v1/model.pb.h"
#include "castor/v1/server.pb.h"
#include "engine/engine.h"

namespace castor::server {

v1::Model ToProto(const ModelInfo& model);

// Everything but version, commit, uptime and the server's own limits.
v1::ServerInfo Describe(const Engine& engine);

}  // namespace castor::server
