// Requests for the tests of Resolve, and expectations on it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/attention/resolve.h"
#include "engine/base/error.h"

namespace castor::attention {

inline constexpr int64_t kMaxSequences = 100;
inline constexpr int64_t kHuge = int64_t{1} << 62;

// Never read: the checks only count bytes.
inline std::span<const std::byte> Bytes(int64_t count) {
  static const std::vector<std::byte> memory(1 << 20);
  EXPECT_LE(count, static_cast<int64_t>(memory.size()));
  return std::span(memory).first(count);
}

inline TensorInput Tensor(std::vector<int64_t> shape, DType dtype = DType::kFloat32) {
  TensorInput tensor;
  tensor.dtype = dtype;
  tensor.pieces = {Bytes(*NumBytes(dtype, shape))};
  tensor.shape = std::move(shape);
  return tensor;
}

// Declares a shape that does not fit its data.
inline TensorInput Hollow(std::vector<int64_t> shape) {
  TensorInput tensor;
  tensor.shape = std::move(shape);
  return tensor;
}

inline AttentionRequest Packed(int64_t tokens, int64_t heads, int64_t dim) {
  AttentionRequest request;
  request.query = request.key = request.value = Tensor({tokens, heads, dim});
  return request;
}

inline bool AnySpec(const Spec&) { return true; }
inline absl::Status NoRun(const Spec&, std::span<const Problem>, RunControl&) {
  return absl::OkStatus();
}

inline constexpr Variant kVanillaOnly[] = {{KernelName::kVanilla, "test", &AnySpec, &NoRun}};

inline absl::StatusOr<Resolved> Resolve(const AttentionRequest& request) {
  return Resolve(request, kVanillaOnly, NoCastLayer, kMaxSequences);
}

inline void ExpectRefused(const AttentionRequest& request, std::string_view field) {
  const absl::StatusOr<Resolved> resolved = Resolve(request);
  ASSERT_FALSE(resolved.ok()) << "expected a refusal at " << field;
  EXPECT_EQ(ReasonOf(resolved.status()), Reason::kInvalidField) << resolved.status();
  EXPECT_EQ(FieldOf(resolved.status()), field) << resolved.status();
}

template <typename Change>
void ExpectRefusedAfter(Change change, std::string_view field) {
  AttentionRequest request = Packed(6, 2, 4);
  change(request);
  ExpectRefused(request, field);
}

}  // namespace castor::attention
