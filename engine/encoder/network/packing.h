// Packing: the places of a batch's items after their tokens are concatenated. Includes no tensor
// library: the code that runs a batch fills the index block in host memory, and copies it to a GPU
// in one piece.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/encoder/network/batch.h"
#include "engine/encoder/text/prepare.h"

namespace castor::encoder {

// Adjacent rows of a batch with one task: those up to `end`, from the end of the run before.
struct TaskRun {
  int64_t end = 0;
  int32_t task = -1;  // as in BatchItem
};

// The tasks of some of a batch's rows, which begin at `first`. No runs: no row has a task.
struct TaskRows {
  std::span<const TaskRun> runs = {};
  int64_t first = 0;

  TaskRows From(int64_t row) const { return {runs, first + row}; }
};

struct Packing {
  std::vector<int32_t> cu_seqlens;      // [sequences + 1], over the whole batch
  std::vector<int64_t> first_token;     // per item: its first row among the batch's tokens
  std::vector<int64_t> first_sequence;  // per item: its first sequence among the batch's
  std::vector<int64_t> first_span;      // per item: its first span among the batch's
  std::vector<TaskRun> tasks;           // of all rows; empty: none has one
  std::vector<float> key_bias;          // [tokens], -Inf for hidden tokens; empty: none is hidden
  int64_t spans = 0;                    // of all items
  int64_t span_rows = 0;                // of all spans

  int64_t tokens() const { return cu_seqlens.back(); }
  int64_t sequences() const { return static_cast<int64_t>(cu_seqlens.size()) - 1; }

  // The index block, int64: ids [tokens], type_ids [tokens], positions [tokens], offsets
  // [sequences + 1] (cu_seqlens once more, for pooling on the device), the spans' first rows
  // [spans] and their lengths [spans]. Ids of items that bring embeddings are 0.
  int64_t index_elements() const { return 3 * tokens() + sequences() + 1 + 2 * spans; }
};

// Requires at least one item, and at least one token in every sequence.
Packing Pack(const Batch& batch);

// Writes `packing.index_elements()` values. Positions count from `rules.first_position` in each
// sequence.
void WriteIndices(const Batch& batch, const Packing& packing, const InputRules& rules,
                  int64_t* out);

}  // namespace castor::encoder
