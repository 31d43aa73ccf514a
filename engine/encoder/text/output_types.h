// The types of output rows, as sentence_transformers.quantization.quantize_embeddings defines them.
// Rows are float32 first, whatever batch they were in, and are converted then.
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

// The type of the rows of this output.
OutputType TypeOf(const EncodeRequest& request, EncodeOutput output);

// Whether values are scaled by ranges: kInt8 and kUInt8.
bool NeedsRanges(OutputType type);

DType DTypeOf(OutputType type);

// Elements of an answer's row: an element holds the bits of eight dimensions.
int64_t TypedWidth(OutputType type, int64_t dimensions);

// Bytes of a converted row; 0 for kFloat32, which is not converted.
int64_t TypedRowBytes(OutputType type, int64_t dimensions);

// The request's ranges, if it brings any: lower bounds, then upper bounds. Bad ranges are
// INVALID_FIELD or NON_FINITE_INPUT. Requires that the outputs were checked.
absl::StatusOr<std::vector<float>> ReadRanges(const EncodeRequest& request, const ModelInfo& info);

// Writes the least and the greatest value of each dimension to `ranges`, [2, dimensions]. Requires
// at least one row.
void FindRanges(std::span<const float> rows, std::span<float> ranges);

// Converts `rows`, [rows, dimensions]. If NeedsRanges, requires `ranges` and finite rows.
void ConvertRows(OutputType type, std::span<const float> rows, int64_t dimensions,
                 std::span<const float> ranges, std::byte* out);

// ---- the kind and shape of a request's outputs

// The outputs that the request names, else the model's default; at least one. A view of either.
std::span<const EncodeOutput> OutputsOf(const EncodeRequest& request, const ModelInfo& info);

// Elements of a row before dimensions are cut off.
int64_t WidthOf(const ModelInfo& info, EncodeOutput output);

// Elements of an answer's row: the request's dimensions, else the model's.
int64_t DimensionsOf(const EncodeRequest& request, const ModelInfo& info, EncodeOutput output);

// Whether each token has a row, and not each sequence.
bool PerToken(const ModelInfo& info, EncodeOutput output);

bool Pools(std::span<const EncodeOutput> outputs);

// Whether rows can be cut and normalised: kPooled and kTokenEmbeddings.
bool HasVectors(EncodeOutput output);

// As on the wire: "POOLED".
std::string_view OutputName(EncodeOutput output);

// "SCORES, LOGITS": for messages.
std::string NamesOfOutputs(const ModelInfo& info);

}  // namespace castor::encoder
