// What tests of tei.v1 over a socket share: a server with models of the golden folder, stubs, and
// the metadata that choose a model and a tenant.
#pragma once

#include <gmock/gmock.h>
#include <grpcpp/support/sync_stream.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tei/v1/tei.grpc.pb.h"
#include "tests/integration/golden_models.h"
#include "tests/integration/observed/health_client.h"
#include "tests/integration/server_fixture.h"
#include "tests/support/sanitizer.h"

namespace castor::testing {

namespace tei = ::tei::v1;

class ServerTeiTest : public ServerTest {
 protected:
  // Models by the names of their folders.
  void Start(const std::vector<std::string>& models, server::ServerOptions server = TestOptions(),
             EngineOptions engine = {}) {
    StartReal(GoldenModels(models, "heads/"), std::move(server), std::move(engine));
    Connect();
  }

  void Connect() {
    info_ = tei::Info::NewStub(channel_);
    embed_ = tei::Embed::NewStub(channel_);
    predict_ = tei::Predict::NewStub(channel_);
    rerank_ = tei::Rerank::NewStub(channel_);
    tokenize_ = tei::Tokenize::NewStub(channel_);
  }

  template <typename Stub, typename Request, typename Response>
  Response Ask(Stub& stub,
               grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
               const std::type_identity_t<Request>& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + Patience(std::chrono::seconds(60)));
    if (!model_.empty()) context.AddMetadata("castor-model", model_);
    if (!tenant_.empty()) context.AddMetadata("castor-tenant", tenant_);
    Response response;
    status_ = (stub.*method)(&context, request, &response);
    headers_.clear();
    for (const auto& [name, value] : context.GetServerInitialMetadata()) {
      headers_[std::string(name.data(), name.size())] = std::string(value.data(), value.size());
    }
    return response;
  }

  tei::EmbedResponse Embed(const tei::EmbedRequest& request) {
    return Ask(*embed_, &tei::Embed::Stub::Embed, request);
  }
  tei::PredictResponse Pair(const tei::PredictPairRequest& request) {
    return Ask(*predict_, &tei::Predict::Stub::PredictPair, request);
  }
  tei::RerankResponse Rerank(const tei::RerankRequest& request) {
    return Ask(*rerank_, &tei::Rerank::Stub::Rerank, request);
  }

  static std::string Code(const grpc::Status& status) {
    return std::to_string(status.error_code()) + " " + status.error_message();
  }

  HealthStatus Health(const std::string& name) { return CheckHealth(channel_, name); }

  std::unique_ptr<tei::Info::Stub> info_;
  std::unique_ptr<tei::Embed::Stub> embed_;
  std::unique_ptr<tei::Predict::Stub> predict_;
  std::unique_ptr<tei::Rerank::Stub> rerank_;
  std::unique_ptr<tei::Tokenize::Stub> tokenize_;
  std::string model_;   // of the metadata castor-model; empty: none
  std::string tenant_;  // likewise, castor-tenant
  grpc::Status status_;
  std::map<std::string, std::string> headers_;
};

inline tei::EmbedRequest EmbedOf(const std::string& text) {
  tei::EmbedRequest request;
  request.set_inputs(text);
  return request;
}

inline tei::RerankRequest RerankOf(const std::string& query,
                                   const std::vector<std::string>& texts) {
  tei::RerankRequest request;
  request.set_query(query);
  request.mutable_texts()->Add(texts.begin(), texts.end());
  return request;
}

}  // namespace castor::testing
