// Staging: copies of a request's tensors in the engine's own memory, where the device reads them.
//
// One buffer per request holds all inputs, each at a multiple of 64 bytes; other buffers hold the
// outputs. The caller's bytes are copied exactly once, on the caller's thread, under no lock.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/host_memory.h"
#include "engine/requests/work.h"

namespace castor {

// One request's share of the budgets (ledger/budgets.h).
struct Cost {
  int64_t requests = 1;
  int64_t tokens = 0;
  int64_t bytes = 0;  // of staging memory

  Cost& operator+=(const Cost& other) {
    requests += other.requests;
    tokens += other.tokens;
    bytes += other.bytes;
    return *this;
  }
  friend Cost operator-(const Cost& a, const Cost& b) {
    return {a.requests - b.requests, a.tokens - b.tokens, a.bytes - b.bytes};
  }
};

// Stages the tensors of the request that `work` has resolved; it is then ready to run.
// NON_FINITE_INPUT if the request asks for that check and fails it; INVALID_FIELD if a tensor's
// file no longer holds all of it; OUT_OF_MEMORY.
absl::Status StageAttention(const AttentionRequest& request, HostPool& pool, AttentionWork* work);

// An upper bound on an encode request's share of the budgets. Requires that it passed CheckInput.
Cost EstimateEncodeCost(const EncodeWork& work);

// The work of an encode request before its admission. Copies nothing from the caller's memory.
// Requires a model that encodes.
EncodeWork OpenEncode(EncodeRequest request, ModelUse model, Kernel kernel);

// Copies the request's texts, so that they outlive Submit.
void CopyTexts(EncodeWork* work);

// Tokenizes some of the texts, detokenizes some of the tokens, or cuts the tokens or embeddings to
// the model's length. Returns true if all is prepared; else call it again. Errors as for
// encoder::Model::PrepareSome.
absl::StatusOr<bool> PrepareEncode(const encoder::Slice& slice, EncodeWork* work);

// Stages the embeddings of a prepared request and allocates its outputs; it is then ready to run.
// Returns the request's actual cost. Reads the caller's embeddings, so call it inside Submit,
// except for texts. Errors as for StageAttention.
absl::StatusOr<Cost> StageEncode(HostPool& pool, EncodeWork* work);

}  // namespace castor
