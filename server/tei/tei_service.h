// The services of tei.v1, on the same port as castor.v1: README.md.
#pragma once

#include <string>

#include "server/services/call.h"
#include "server/tei/models.h"
#include "server/tei/protocol.h"
#include "server/transport/message_call.h"

namespace castor::server::tei {

// TEI's Info about a model.
void Describe(const EngineOptions& options, const ModelInfo& model, proto::InfoResponse* info);

class TeiService final : public MessageService {
 public:
  // `models` outlives this.
  TeiService(const ServiceContext& services, const Models& models);

 private:
  template <typename Request, typename Response>
  void Add(const char* path, const char* stream_path);
  void AddInfo();

  const ServiceContext& services_;
  const Models& models_;
};

}  // namespace castor::server::tei
