// What all lanes of a run share, and none changes.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/client.h"
#include "client/load/base/clock.h"
#include "client/load/drive/current_token.h"
#include "client/load/target/protocol.h"
#include "client/load/workload/workload.h"

namespace castor::load {

class References;

struct Traffic {
  const Workload* workload = nullptr;
  const Protocol* protocol = nullptr;
  const References* references = nullptr;                // null: nothing is verified
  std::vector<std::vector<Payload>> payloads;            // by class
  std::vector<std::string> endpoints;                    // gRPC targets
  int connections = 8;                                   // of each lane to each endpoint
  std::optional<client::TlsOptions> tls = std::nullopt;  // nullopt: plaintext
  const CurrentToken* token = nullptr;  // of classes without one of their own; null: none
};

// A channel for a request that is sent alone, and once: without gRPC's retries.
std::shared_ptr<grpc::Channel> Connect(const std::string& target,
                                       const std::optional<client::TlsOptions>& tls);

}  // namespace castor::load
