// Shared memory for tensors and answers between this process and a server on the same machine, so
// that they do not pass through the connection. The server must have been started with
// --shared-memory.
//
//   auto memory = SharedMemory::Create(bytes);
//   client.RegisterSharedMemory(*memory);
//   std::memcpy(memory->data() + offset, values.data(), size);
//   *request.mutable_query() = memory->MakeTensor(offset, v1::FLOAT32, {tokens, heads, dim});
//   *request.mutable_output() = memory->Ref(output_offset, output_size);
//   const auto response = client.Attend(request);      // the output lies at output_offset
//   client.UnregisterSharedMemory(memory->name());
//
// The server reads the tensors during the call and writes the output before it answers. Requests in
// flight at the same time need separate outputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "castor/v1/tensor.pb.h"

namespace castor::client {

// A shared-memory object that this process created and mapped, with all of its memory allocated.
// Movable. Threads may write to different bytes of it; everything else is for one thread at a time.
class SharedMemory {
 public:
  // Creates an object of zeros under a new key that begins with `key_prefix`. A server that knows
  // its callers takes only keys with the caller's prefix (GetServerInfo:
  // limits.shared_memory_key_prefix). RESOURCE_EXHAUSTED when the system has no room.
  static absl::StatusOr<SharedMemory> Create(size_t size, std::string_view key_prefix = "/");

  SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  // Unmaps it and removes its name. A server that has registered it keeps its memory.
  ~SharedMemory();

  const std::string& key() const { return key_; }      // of shm_open: "/castor-..."
  std::string name() const { return key_.substr(1); }  // its name on the server
  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }  // bytes

  // A reference, for messages, to the bytes [offset, offset + size), which must lie within the
  // object.
  v1::SharedMemoryRef Ref(size_t offset, size_t size) const;

  // The tensor whose elements begin at `offset`.
  v1::Tensor MakeTensor(size_t offset, v1::DataType dtype, std::span<const int64_t> shape) const;
  v1::Tensor MakeTensor(size_t offset, v1::DataType dtype,
                        std::initializer_list<int64_t> shape) const {
    return MakeTensor(offset, dtype, std::span<const int64_t>(shape.begin(), shape.size()));
  }

 private:
  SharedMemory() = default;

  std::string key_;  // empty: moved from
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace castor::client
