#include "server/oip/oip_service.h"

#include <algorithm>
#include <limits>
#include <string>

#include "engine/base/error.h"
#include "inference/grpc_service.pb.h"
#include "server/oip/infer_request.h"
#include "server/services/engine_call.h"
#include "server/services/engine_stream.h"
#include "server/services/typed_call.h"
#include "server/version.h"

namespace castor::server::oip {
namespace {

// The protocol's extensions that are served.
constexpr std::string_view kExtensions[] = {"model_configuration", "binary_tensor_data",
                                            "parameters", "statistics"};
constexpr std::string_view kSharedMemoryExtension = "system_shared_memory";

// Clients write keys with or without a leading slash.
std::string KeyOf(const std::string& key) {
  return "/" + key.substr(std::min(key.find_first_not_of('/'), key.size()));
}

absl::Status Register(const ServiceContext& services, const Caller& caller,
                      const inference::SystemSharedMemoryRegisterRequest& request) {
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  SharedMemory& regions = services.shared_memory;
  if (absl::Status s = regions.CheckOn(); !s.ok()) return s;
  if (request.offset() > kMost) return InvalidField("offset", "is too large");
  if (request.byte_size() > kMost) return InvalidField("byte_size", "is too large");
  const std::string key = KeyOf(request.key());
  if (absl::Status s = regions.CheckKey(caller.tenant, key); !s.ok()) return s;
  auto region = SharedRegion::Open({.name = request.name(),
                                    .key = key,
                                    .offset = static_cast<int64_t>(request.offset()),
                                    .size = static_cast<int64_t>(request.byte_size())});
  if (!region.ok()) return region.status();
  const absl::Status added = regions.Add(caller.tenant, *std::move(region));
  if (ReasonOf(added) == Reason::kRegionExists) {
    absl::Status taken = absl::AlreadyExistsError(added.message());
    added.ForEachPayload(
        [&](absl::string_view url, const absl::Cord& payload) { taken.SetPayload(url, payload); });
    return taken;
  }
  if (!added.ok()) return added;
  services.metrics.RegionAdded();
  return absl::OkStatus();
}

template <typename Request>
const std::string& NameIn(const Request& request) {
  return request.model_name().empty() ? request.repository_name() : request.model_name();
}

// The empty name means all regions. A name that is not registered is no error in this protocol.
absl::Status Unregister(const ServiceContext& services, const Caller& caller,
                        const std::string& name) {
  SharedMemory& regions = services.shared_memory;
  for (const RegionInfo& info : regions.List(caller.tenant)) {
    if (!name.empty() && info.name != name) continue;
    if (regions.Remove(caller.tenant, info.name).ok()) services.metrics.RegionRemoved();
  }
  return absl::OkStatus();
}

absl::Status Status(const ServiceContext& services, const Caller& caller, const std::string& name,
                    inference::SystemSharedMemoryStatusResponse* answer) {
  for (const RegionInfo& info : services.shared_memory.List(caller.tenant)) {
    if (!name.empty() && info.name != name) continue;
    auto& region = (*answer->mutable_regions())[info.name];
    region.set_name(info.name);
    region.set_key(info.key);
    region.set_offset(static_cast<uint64_t>(info.offset));
    region.set_byte_size(static_cast<uint64_t>(info.size));
  }
  if (name.empty() || !answer->regions().empty()) return absl::OkStatus();
  return MakeError(Reason::kRegionNotFound, "Unable to find shared memory region: '" + name + "'");
}

}  // namespace

template <typename Request, typename Response, typename Handler>
void OipService::AddSmall(const ServiceContext& services, const char* path, Handler handler) {
  AddMethod(path, TypedMethod<Request, Response>(services, handler));
}

void OipService::AddServerMethods(const ServiceContext& services) {
  AddSmall<inference::ServerLiveRequest, inference::ServerLiveResponse>(
      services, "/inference.GRPCInferenceService/ServerLive",
      [](const Caller&, const auto&, inference::ServerLiveResponse* out) {
        out->set_live(true);
        return absl::OkStatus();
      });
  AddSmall<inference::ServerReadyRequest, inference::ServerReadyResponse>(
      services, "/inference.GRPCInferenceService/ServerReady",
      [&services](const Caller&, const auto&, inference::ServerReadyResponse* out) {
        out->set_ready(services.engine.healthy());
        return absl::OkStatus();
      });
  AddSmall<inference::ServerMetadataRequest, inference::ServerMetadataResponse>(
      services, "/inference.GRPCInferenceService/ServerMetadata",
      [&services](const Caller&, const auto&, inference::ServerMetadataResponse* out) {
        out->set_name("castor");
        out->set_version(std::string(Version()));
        for (const std::string_view name : kExtensions) out->add_extensions(std::string(name));
        if (services.shared_memory.CheckOn().ok()) {
          out->add_extensions(std::string(kSharedMemoryExtension));
        }
        return absl::OkStatus();
      });
}

void OipService::AddModelMethods(const ServiceContext& services) {
  AddSmall<inference::ModelReadyRequest, inference::ModelReadyResponse>(
      services, "/inference.GRPCInferenceService/ModelReady",
      [this, &services](const Caller&, const inference::ModelReadyRequest& in,
                        inference::ModelReadyResponse* out) {
        const auto model = catalogue_.Find(in.name(), in.version());
        out->set_ready(model.ok() && services.engine.healthy());
        return absl::OkStatus();
      });
  AddSmall<inference::ModelMetadataRequest, inference::ModelMetadataResponse>(
      services, "/inference.GRPCInferenceService/ModelMetadata",
      [this](const Caller&, const inference::ModelMetadataRequest& in,
             inference::ModelMetadataResponse* out) {
        const auto model = catalogue_.Find(in.name(), in.version());
        if (model.ok()) (*model)->Fill(out);
        return model.status();
      });
  AddSmall<inference::ModelConfigRequest, inference::ModelConfigResponse>(
      services, "/inference.GRPCInferenceService/ModelConfig",
      [this](const Caller&, const inference::ModelConfigRequest& in,
             inference::ModelConfigResponse* out) {
        const auto model = catalogue_.Find(in.name(), in.version());
        if (model.ok()) (*model)->Fill(out->mutable_config());
        return model.status();
      });
  AddSmall<inference::ModelStatisticsRequest, inference::ModelStatisticsResponse>(
      services, "/inference.GRPCInferenceService/ModelStatistics",
      [this](const Caller&, const inference::ModelStatisticsRequest& in,
             inference::ModelStatisticsResponse* out) {
        const auto add = [&](const Model& model) {
          inference::ModelStatistics* const stats = out->add_model_stats();
          stats->set_name(model.name);
          stats->set_version(std::string(kVersion));
          model.counters->Fill(stats);
        };
        if (in.name().empty()) {
          for (const ModelPtr& model : *catalogue_.models()) add(*model);
          return absl::OkStatus();
        }
        const auto model = catalogue_.Find(in.name(), in.version());
        if (model.ok()) add(**model);
        return model.status();
      });
  AddSmall<inference::RepositoryIndexRequest, inference::RepositoryIndexResponse>(
      services, "/inference.GRPCInferenceService/RepositoryIndex",
      [this](const Caller&, const inference::RepositoryIndexRequest& in,
             inference::RepositoryIndexResponse* out) {
        for (const IndexRow& index : catalogue_.Index()) {
          if (in.ready() && index.state != kReady) continue;
          auto* const row = out->add_models();
          row->set_name(index.name);
          row->set_version(std::string(kVersion));
          row->set_state(std::string(index.state));
          row->set_reason(index.reason);
        }
        return absl::OkStatus();
      });
  // The protocol loads a loaded model again.
  AddMethod(
      "/inference.GRPCInferenceService/RepositoryModelLoad",
      DeferredMethod<inference::RepositoryModelLoadRequest, inference::RepositoryModelLoadResponse>(
          services,
          [&services](const Caller&, const inference::RepositoryModelLoadRequest& in,
                      ModelCompletion done) {
            if (!in.parameters().empty()) {
              return std::move(done)(InvalidField(
                  "parameters", "none are taken: a model is loaded as its folder has it"));
            }
            services.engine.LoadModel(NameIn(in), "", /*replace=*/true, std::move(done));
          },
          [](const auto&, auto*) { return absl::OkStatus(); }));
  AddMethod("/inference.GRPCInferenceService/RepositoryModelUnload",
            DeferredMethod<inference::RepositoryModelUnloadRequest,
                           inference::RepositoryModelUnloadResponse>(
                services,
                [&services](const Caller&, const inference::RepositoryModelUnloadRequest& in,
                            ModelCompletion done) {
                  services.engine.UnloadModel(NameIn(in), std::move(done));
                },
                [](const auto&, auto*) { return absl::OkStatus(); }));
}

void OipService::AddSharedMemoryMethods(const ServiceContext& services) {
  AddSmall<inference::SystemSharedMemoryStatusRequest, inference::SystemSharedMemoryStatusResponse>(
      services, "/inference.GRPCInferenceService/SystemSharedMemoryStatus",
      [&services](const Caller& caller, const inference::SystemSharedMemoryStatusRequest& in,
                  inference::SystemSharedMemoryStatusResponse* out) {
        return Status(services, caller, in.name(), out);
      });
  AddSmall<inference::SystemSharedMemoryRegisterRequest,
           inference::SystemSharedMemoryRegisterResponse>(
      services, "/inference.GRPCInferenceService/SystemSharedMemoryRegister",
      [&services](const Caller& caller, const inference::SystemSharedMemoryRegisterRequest& in,
                  auto*) { return Register(services, caller, in); });
  AddSmall<inference::SystemSharedMemoryUnregisterRequest,
           inference::SystemSharedMemoryUnregisterResponse>(
      services, "/inference.GRPCInferenceService/SystemSharedMemoryUnregister",
      [&services](const Caller& caller, const inference::SystemSharedMemoryUnregisterRequest& in,
                  auto*) { return Unregister(services, caller, in.name()); });
  // Clients call these two without knowing whether the server has CUDA shared memory.
  const auto none = [](const Caller&, const auto&, auto*) { return absl::OkStatus(); };
  AddSmall<inference::CudaSharedMemoryStatusRequest, inference::CudaSharedMemoryStatusResponse>(
      services, "/inference.GRPCInferenceService/CudaSharedMemoryStatus", none);
  AddSmall<inference::CudaSharedMemoryUnregisterRequest,
           inference::CudaSharedMemoryUnregisterResponse>(
      services, "/inference.GRPCInferenceService/CudaSharedMemoryUnregister", none);
}

OipService::OipService(const ServiceContext& services, const Catalogue& catalogue)
    : MessageService(services.authorizer), catalogue_(catalogue) {
  AddServerMethods(services);
  AddModelMethods(services);
  AddSharedMemoryMethods(services);
  AddMethod("/inference.GRPCInferenceService/ModelInfer",
            EngineMethod<InferRequest>(services, Method::kModelInfer, catalogue_));
  // By this metadata a caller asks that the first error end the stream, with its code.
  AddMethod("/inference.GRPCInferenceService/ModelStreamInfer",
            [in_answers = EngineStreamMethod<StreamedRequestWithErrors>(
                 services, Method::kModelInfer, catalogue_),
             as_end = EngineStreamMethod<StreamedRequest>(
                 services, Method::kModelInfer, catalogue_)](IncomingCall incoming) -> Reactor* {
              const bool ends = GrpcCall(incoming.context).header("triton_grpc_error") == "true";
              if (ends) return as_end(std::move(incoming));
              return in_answers(std::move(incoming));
            });
}

}  // namespace castor::server::oip
