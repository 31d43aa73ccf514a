// Servers with shared memory, and regions to put a request's tensors in.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "castor/v1/shared_memory.grpc.pb.h"
#include "engine/engine.h"
#include "tests/integration/server_fixture.h"
#include "tests/support/shared_object.h"

namespace castor::testing {

inline constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
inline constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

inline server::ServerOptions WithSharedMemory(int64_t max_regions = 64) {
  server::ServerOptions options = TestOptionsWithMetrics();
  options.shared_memory = true;
  options.max_shared_memory_regions = max_regions;
  return options;
}

class SharedMemoryTest : public ServerTest {
 protected:
  void StartServer(server::ServerOptions options = WithSharedMemory()) {
    ServerTest::StartServer(std::move(options));
    regions_ = v1::SharedMemoryService::NewStub(channel_);
  }

  void StartReal(EngineOptions options = {}) {
    regions_.reset();  // it holds the channel
    ServerTest::StartReal({{"tiny", CASTOR_TINY_MODEL}}, WithSharedMemory(), std::move(options));
    regions_ = v1::SharedMemoryService::NewStub(channel_);
  }

  grpc::Status Register(const std::string& name, const std::string& key, int64_t offset,
                        int64_t size) {
    v1::RegisterSharedMemoryRequest request;
    request.set_name(name);
    request.set_key(key);
    request.set_offset(offset);
    request.set_size(size);
    v1::RegisterSharedMemoryResponse response;
    grpc::ClientContext context;
    return regions_->RegisterSharedMemory(&context, request, &response);
  }

  grpc::Status Unregister(const std::string& name) {
    v1::UnregisterSharedMemoryRequest request;
    request.set_name(name);
    v1::UnregisterSharedMemoryResponse response;
    grpc::ClientContext context;
    return regions_->UnregisterSharedMemory(&context, request, &response);
  }

  grpc::Status List(v1::ListSharedMemoryResponse* response) {
    grpc::ClientContext context;
    return regions_->ListSharedMemory(&context, {}, response);
  }

  std::string AttendOutcome(const v1::AttendRequest& request) { return Outcome(Try(request)); }

  std::unique_ptr<v1::SharedMemoryService::Stub> regions_;
};

inline void SetRef(const std::string& region, int64_t offset, int64_t size,
                   v1::SharedMemoryRef* ref) {
  ref->set_region(region);
  ref->set_offset(offset);
  ref->set_size(size);
}

// An object registered as "r" from its byte 24 on. Tensors are placed in it one after another.
class Region {
 public:
  static constexpr int64_t kOffset = 24;

  explicit Region(int64_t size) : object_(kOffset + size) {}

  const SharedObject& object() const { return object_; }

  // Moves the tensor's elements into the region, after those already there.
  void Take(v1::Tensor* tensor) {
    const std::string raw = tensor->raw();
    object_.Write(kOffset + used_, raw);
    SetRef("r", used_, static_cast<int64_t>(raw.size()), tensor->mutable_shared_memory());
    used_ += static_cast<int64_t>(raw.size());
  }

  // Moves all tensors of the request and reserves a range for the output.
  void Take(v1::AttendRequest* request, int64_t output_bytes) {
    Take(request->mutable_query());
    Take(request->mutable_key());
    if (request->has_value()) Take(request->mutable_value());
    if (request->cast().has_gate()) Take(request->mutable_cast()->mutable_gate());
    if (request->cast().has_surrogate_tokens()) {
      Take(request->mutable_cast()->mutable_surrogate_tokens());
    }
    if (request->positions().has_relative_bias()) {
      Take(request->mutable_positions()->mutable_relative_bias());
    }
    if (request->has_key_bias()) Take(request->mutable_key_bias());
    SetRef("r", used_, output_bytes, request->mutable_output());
    used_ += output_bytes;
  }

  std::string Read(const v1::SharedMemoryRef& ref) const {
    return object_.Read(kOffset + ref.offset(), ref.size());
  }

 private:
  const SharedObject object_;
  int64_t used_ = 0;
};

}  // namespace castor::testing
