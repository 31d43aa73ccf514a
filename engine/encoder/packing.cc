#include "engine/encoder/packing.h"

#include <algorithm>

namespace castor::encoder {

Packing Pack(const Batch& batch) {
  Packing packing;
  packing.cu_seqlens.push_back(0);
  for (const BatchItem& item : batch.items) {
    const int32_t first = packing.cu_seqlens.back();
    packing.first_token.push_back(first);
    packing.first_sequence.push_back(packing.sequences());
    for (size_t s = 1; s < item.cu_seqlens.size(); ++s) {
      packing.cu_seqlens.push_back(first + item.cu_seqlens[s]);
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
    std::copy(item.ids.begin(), item.ids.end(), ids + packing.first_token[i]);
    std::copy(item.type_ids.begin(), item.type_ids.end(), type_ids + packing.first_token[i]);
  }
  for (int64_t s = 0; s < packing.sequences(); ++s) {
    for (int64_t t = packing.cu_seqlens[s]; t < packing.cu_seqlens[s + 1]; ++t) {
      positions[t] = rules.first_position + t - packing.cu_seqlens[s];
    }
  }
  std::copy(packing.cu_seqlens.begin(), packing.cu_seqlens.end(), out + 3 * tokens);
}

}  // namespace castor::encoder
