// The requests that the serving benchmarks send, the same for the bare engine and for the server.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "engine/request.h"

namespace castor::bench {

// A self-attention problem of one sequence that owns its tensors' memory.
struct AttentionProblem {
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  DType dtype = DType::kFloat32;
  std::vector<std::byte> query, key, value;  // [tokens, heads, head_dim] each

  AttentionProblem(int64_t tokens, int64_t heads, int64_t head_dim, DType dtype, uint64_t seed)
      : tokens(tokens), heads(heads), head_dim(head_dim), dtype(dtype) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (std::vector<std::byte>* tensor : {&query, &key, &value}) {
      tensor->resize(tokens * heads * head_dim * SizeOf(dtype));
      for (size_t i = 0; i < tensor->size(); i += SizeOf(dtype)) {
        const float element = normal(random);
        // bfloat16 is the upper half of a float, which comes last in memory.
        std::memcpy(tensor->data() + i, reinterpret_cast<const char*>(&element) + 4 - SizeOf(dtype),
                    SizeOf(dtype));
      }
    }
  }

  // The request views this problem's memory.
  AttentionRequest Request() const {
    const std::vector<int64_t> shape = {tokens, heads, head_dim};
    AttentionRequest request;
    request.query = {dtype, shape, {query}};
    request.key = {dtype, shape, {key}};
    request.value = {dtype, shape, {value}};
    return request;
  }
};

// `count` sequence lengths from `low` to `high`, uniform.
inline std::vector<int64_t> MixedLengths(int count, int64_t low, int64_t high, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int64_t> uniform(low, high);
  std::vector<int64_t> lengths(count);
  for (int64_t& length : lengths) length = uniform(random);
  return lengths;
}

}  // namespace castor::bench
