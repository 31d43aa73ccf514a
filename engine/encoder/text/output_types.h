// The types that rows are given in, as sentence_transformers.quantization.quantize_embeddings
// defines them. Rows become float32 first, whatever batch they were in, and then these.
//
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/dtype.h"
#include "engine/engine.h"
#include "engine/request.h"

namespace castor::encoder {

// What the rows of this output are given as.
OutputType TypeOf(const EncodeRequest& request, EncodeOutput output);

// kInt8 and kUInt8: numbers within ranges.
bool NeedsRanges(OutputType type);

DType DTypeOf(OutputType type);

// Elements of an answer's row: of bits one for eight dimensions.
int64_t TypedWidth(OutputType type, int64_t dimensions);

// Bytes of a converted row; 0 of kFloat32, which is not converted.
int64_t TypedRowBytes(OutputType type, int64_t dimensions);

// The request's ranges, if it brings any: the lower bounds, then the upper ones. INVALID_FIELD and
// NON_FINITE_INPUT name what is wrong with them. Requires that the outputs were checked.
absl::StatusOr<std::vector<float>> ReadRanges(const EncodeRequest& request, const ModelInfo& info);

// The least and the greatest of each dimension of rows, at least one, to `ranges`, [2, dimensions].
void FindRanges(std::span<const float> rows, std::span<float> ranges);

// Of [rows, dimensions]. Requires `ranges` and finite rows where NeedsRanges.
void ConvertRows(OutputType type, std::span<const float> rows, int64_t dimensions,
                 std::span<const float> ranges, std::byte* out);

// What a request's output is: its kind, how long its rows are, whether each token has one. From
// what the model says about itself.
//
// Pure functions; any thread.

// What the request names, else the model's own; at least one. Views of either.
std::span<const EncodeOutput> OutputsOf(const EncodeRequest& request, const ModelInfo& info);

// Elements of a row that is not cut.
int64_t WidthOf(const ModelInfo& info, EncodeOutput output);

// Elements of a row of the answer: as the request says, else as the model does.
int64_t DimensionsOf(const EncodeRequest& request, const ModelInfo& info, EncodeOutput output);

// A row for each token, not for each sequence.
bool PerToken(const ModelInfo& info, EncodeOutput output);

bool Pools(std::span<const EncodeOutput> outputs);

// kPooled and kTokenEmbeddings: rows that can be cut and normalised.
bool HasVectors(EncodeOutput output);

// As on the wire: "POOLED".
std::string_view OutputName(EncodeOutput output);

// "SCORES, LOGITS": for messages.
std::string NamesOfOutputs(const ModelInfo& info);

}  // namespace castor::encoder
