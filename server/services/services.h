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

v1::Model ToProto(const ModelInfo& model);

// Everything but version, commit, uptime and the server's own limits.
v1::ServerInfo Describe(const Engine& engine);

class AttentionService final : public MessageService {
 public:
  explicit AttentionService(const ServiceContext& services);
};

class EncoderService final : public MessageService {
 public:
  explicit EncoderService(const ServiceContext& services);

 private:
  const std::vector<ModelInfo> models_;
};

// What is loaded. Loading at run time is off in this server.
class ModelService final : public MessageService {
 public:
  explicit ModelService(const ServiceContext& services);
};

// What a client may want to know before its first request.
class ServerService final : public MessageService {
 public:
  // `metrics_address` is read at each call, and must outlive this.
  ServerService(const ServiceContext& services, int64_t max_message_bytes,
                const std::string& metrics_address);

 private:
  const v1::ServerInfo info_;  // without the uptime
  const TimePoint started_;
};

// Which regions requests may refer to. The server owns the registry.
class SharedMemoryService final : public MessageService {
 public:
  explicit SharedMemoryService(const ServiceContext& services);
};

}  // namespace castor::server
