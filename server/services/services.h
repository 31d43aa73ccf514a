// The services of castor.v1. The server calls them on gRPC's threads. None has state that changes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "castor/v1/model.pb.h"
#include "castor/v1/server.pb.h"
#include "engine/engine.h"
#include "server/services/call.h"
#include "server/transport/message_call.h"

namespace castor::server {

// Fills `out` rather than returns it: a protobuf that moves into another arena is copied inside a
// noexcept function, so that a failed allocation would end the process.
void Describe(const ModelInfo& model, v1::Model* out);

// Everything but version, commit, uptime and the server's own limits.
v1::ServerInfo Describe(const Engine& engine);

class AttentionService final : public MessageService {
 public:
  explicit AttentionService(const ServiceContext& services);
};

class EncoderService final : public MessageService {
 public:
  explicit EncoderService(const ServiceContext& services);
};

// The models that are loaded or may be, and their loading where the server's options allow it.
class ModelService final : public MessageService {
 public:
  explicit ModelService(const ServiceContext& services);
};

// The server's version, devices, kernels and limits.
class ServerService final : public MessageService {
 public:
  // `metrics_address` is read at each call, and must outlive this.
  ServerService(const ServiceContext& services, int64_t max_message_bytes,
                const std::string& metrics_address);

 private:
  const v1::ServerInfo info_;  // without the uptime
  const TimePoint started_;
};

// Registers the shared-memory regions of requests. The server owns the registry.
class SharedMemoryService final : public MessageService {
 public:
  explicit SharedMemoryService(const ServiceContext& services);
};

}  // namespace castor::server
