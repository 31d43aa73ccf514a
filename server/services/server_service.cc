#include <chrono>
#include <string>

#include "server/services/services.h"
#include "server/services/typed_call.h"
#include "server/version.h"

namespace castor::server {
namespace {

v1::ServerInfo Info(const ServiceContext& services, int64_t max_message_bytes) {
  v1::ServerInfo info = Describe(services.engine);
  v1::Limits* limits = info.mutable_limits();
  limits->set_max_message_bytes(max_message_bytes);
  limits->set_max_shared_memory_regions(services.shared_memory.max_regions());
  info.set_version(std::string(Version()));
  info.set_git_commit(std::string(GitCommit()));
  return info;
}

}  // namespace

ServerService::ServerService(const ServiceContext& services, int64_t max_message_bytes,
                             const std::string& metrics_address)
    : MessageService(services.authorizer),
      info_(Info(services, max_message_bytes)),
      started_(std::chrono::steady_clock::now()) {
  AddMethod("/castor.v1.ServerService/GetServerInfo",
            TypedMethod<v1::GetServerInfoRequest, v1::ServerInfo>(
                services,
                [this, &services, &metrics_address](
                    const Caller& caller, const v1::GetServerInfoRequest&, v1::ServerInfo* answer) {
                  *answer = info_;
                  for (const ModelInfo& model : *services.engine.models()) {
                    answer->add_models(model.name);
                  }
                  answer->mutable_limits()->set_shared_memory_key_prefix(
                      services.shared_memory.KeyPrefix(caller.tenant));
                  const std::chrono::duration<double> uptime =
                      std::chrono::steady_clock::now() - started_;
                  answer->set_uptime_seconds(uptime.count());
                  answer->set_metrics_address(metrics_address);
                  return absl::OkStatus();
                }));
}

}  // namespace castor::server
