#include "engine/encoder/network/packing.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>

namespace castor::encoder {
namespace {

// The positions of one sequence. `ids`: empty if the sequence comes as embeddings.
void WritePositions(std::span<const int64_t> ids, const InputRules& rules,
                    std::span<int64_t> positions) {
  int64_t next = rules.first_position;
  if (ids.empty() || !rules.padding.has_value()) {
    for (int64_t& position : positions) position = next++;
    return;
  }
  for (size_t t = 0; t < ids.size(); ++t) {
    positions[t] = ids[t] == *rules.padding ? rules.first_position - 1 : next++;
  }
}

}  // namespace

Packing Pack(const Batch& batch) {
  Packing packing;
  packing.cu_seqlens.push_back(0);
  for (const BatchItem& item : batch.items) {
    if (item.repeats) {
      packing.first_token.push_back(packing.first_token.back());
      packing.first_sequence.push_back(packing.first_sequence.back());
      packing.first_span.push_back(packing.first_span.back());
      continue;
    }
    const int32_t first = packing.cu_seqlens.back();
    packing.first_token.push_back(first);
    packing.first_sequence.push_back(packing.sequences());
    packing.first_span.push_back(packing.spans);
    packing.spans += static_cast<int64_t>(item.spans.size());
    for (const RowRange& rows : item.spans) packing.span_rows += rows.end - rows.begin;
    for (size_t s = 1; s < item.cu_seqlens.size(); ++s) {
      packing.cu_seqlens.push_back(first + item.cu_seqlens[s]);
    }
    std::vector<TaskRun>& tasks = packing.tasks;
    if (tasks.empty() || tasks.back().task != item.task) tasks.push_back({.task = item.task});
    tasks.back().end = packing.tokens();
  }
  if (packing.tasks.size() == 1 && packing.tasks.front().task < 0) packing.tasks.clear();
  for (size_t i = 0; i < batch.items.size(); ++i) {
    if (batch.items[i].hidden.empty()) continue;
    packing.key_bias.resize(static_cast<size_t>(packing.tokens()));
    for (const int64_t token : batch.items[i].hidden) {
      packing.key_bias[packing.first_token[i] + token] = -std::numeric_limits<float>::infinity();
    }
  }
  return packing;
}

void WriteIndices(const Batch& batch, const Packing& packing, const InputRules& rules,
                  int64_t* out) {
  const int64_t tokens = packing.tokens();
  int64_t* const ids = out;
  int64_t* const type_ids = out + tokens;
  int64_t* const positions = out + 2 * tokens;
  std::fill_n(ids, 2 * tokens, 0);
  for (size_t i = 0; i < batch.items.size(); ++i) {
    const BatchItem& item = batch.items[i];
    if (item.repeats) continue;
    std::copy(item.ids.begin(), item.ids.end(), ids + packing.first_token[i]);
    std::copy(item.type_ids.begin(), item.type_ids.end(), type_ids + packing.first_token[i]);
    for (size_t s = 0; s + 1 < item.cu_seqlens.size(); ++s) {
      const auto first = static_cast<size_t>(item.cu_seqlens[s]);
      const size_t count = static_cast<size_t>(item.cu_seqlens[s + 1]) - first;
      WritePositions(item.ids.empty() ? item.ids : item.ids.subspan(first, count), rules,
                     {positions + packing.first_token[i] + first, count});
    }
  }
  int64_t* const firsts =
      std::copy(packing.cu_seqlens.begin(), packing.cu_seqlens.end(), out + 3 * tokens);
  int64_t* const lengths = firsts + packing.spans;
  for (size_t i = 0; i < batch.items.size(); ++i) {
    int64_t at = packing.first_span[i];
    for (const RowRange& rows : batch.items[i].spans) {
      firsts[at] = packing.first_token[i] + rows.begin;
      lengths[at++] = rows.end - rows.begin;
    }
  }
}

}  // namespace castor::encoder
