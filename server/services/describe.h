// What the engine says about itself, in the words of the wire. Pure functions.
#pragma once

#include "castor/v1/model.pb.h"
#include "castor/v1/server.pb.h"
#include "engine/engine.h"

namespace castor::server {

v1::Model ToProto(const ModelInfo& model);

// Everything but version, commit and uptime, and the limits that are the server's own.
v1::ServerInfo Describe(const Engine& engine);

}  // namespace castor::server
