// Staging: a request's tensors in the engine's own memory, where the device reads them.
//
// One buffer per request holds all inputs, each at a multiple of 64 bytes; a second one the output.
// The caller's bytes are copied exactly once, on the caller's thread, under no lock.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/base/host_memory.h"
#include "engine/jobs/job.h"
#include "engine/jobs/models.h"

namespace castor {

// Stages a checked attention request and makes it a job that is ready to be queued. Sets neither
// what admission knows of it nor the completion. NON_FINITE_INPUT when the request asks for that
// check and fails it; INVALID_FIELD when a tensor's file no longer holds all of it; OUT_OF_MEMORY.
absl::StatusOr<std::unique_ptr<Job>> StageAttention(const AttentionRequest& request,
                                                    attention::Resolved resolved, HostPool& pool);

// An upper bound of an encode request's share of the budgets. Requires that it passed CheckInput.
Cost EstimateEncodeCost(const EncodeRequest& request, const ModelInfo& info, int64_t tokens);

// Makes a job of an encode request. Texts are copied, so that they outlive Submit; nothing else is
// done yet. Sets what StageAttention sets. Requires a model that encodes.
std::unique_ptr<Job> OpenEncode(EncodeRequest request, ModelPtr model, Kernel kernel);

// Tokenizes some of the job's texts, or cuts its tokens or embeddings to the model's length. True:
// the job is fully prepared; false: call again. Errors as for encoder::Model::PrepareSome.
absl::StatusOr<bool> PrepareEncode(const encoder::Slice& slice, Job* job);

// Stages the embeddings of a job that is prepared, allocates the output, and corrects the
// reservation to the request's actual cost. Reads the caller's embeddings: call it inside Submit,
// except for texts. Errors as for StageAttention.
absl::Status StageEncode(HostPool& pool, Job* job);

}  // namespace castor
