// Maps the wire's enumerations to the engine's and back, with one table for each.
#pragma once

#include <cstdint>
#include <optional>

#include "castor/v1/encoder.pb.h"
#include "castor/v1/kernel.pb.h"
#include "castor/v1/model.pb.h"
#include "castor/v1/report.pb.h"
#include "castor/v1/tensor.pb.h"
#include "engine/engine.h"
#include "engine/kernel_table.h"
#include "engine/request.h"

namespace castor::server {

template <typename Wire, typename Ours>
struct EnumRow {
  Wire wire;
  Ours ours;
};

inline constexpr EnumRow<v1::DataType, DType> kDTypes[] = {
    {v1::FLOAT32, DType::kFloat32},   {v1::FLOAT16, DType::kFloat16},
    {v1::BFLOAT16, DType::kBFloat16}, {v1::INT32, DType::kInt32},
    {v1::INT64, DType::kInt64},       {v1::INT8, DType::kInt8},
    {v1::UINT8, DType::kUInt8},
};

// The wire numbers kernels in the order of the engine's table, from 1.
struct KernelNames {
  EnumRow<v1::KernelName, KernelName> rows[kKernelCount];
};
inline constexpr KernelNames kKernelNameRows = [] {
  KernelNames names{};
  for (size_t i = 0; i < kKernelCount; ++i) {
    names.rows[i] = {static_cast<v1::KernelName>(i + 1), kKernels[i].name};
  }
  return names;
}();
inline constexpr const auto& kKernelNames = kKernelNameRows.rows;
static_assert(v1::KernelName_MAX == kKernelCount, "kernel.proto and the table list the same");

inline constexpr EnumRow<v1::Spans_Unit, Spans::Unit> kSpanUnits[] = {
    {v1::Spans::CHARACTERS, Spans::Unit::kCharacters},
    {v1::Spans::BYTES, Spans::Unit::kBytes},
    {v1::Spans::TOKENS, Spans::Unit::kTokens},
};

inline constexpr EnumRow<v1::QueryClustering, Clustered::Clustering> kQueryClusterings[] = {
    {v1::HASH, Clustered::Clustering::kHash},
    {v1::QUERY_SPACE, Clustered::Clustering::kQuerySpace},
};

inline constexpr EnumRow<v1::ImprovedClustered_RestMass, ImprovedClustered::RestMass>
    kRestMasses[] = {
        {v1::ImprovedClustered::CENTROID, ImprovedClustered::RestMass::kCentroid},
        {v1::ImprovedClustered::QUERY, ImprovedClustered::RestMass::kQuery},
};

inline constexpr EnumRow<v1::Cast_Clustering, Cast::Clustering> kClusterings[] = {
    {v1::Cast::TOP_K, Cast::Clustering::kTopK},
    {v1::Cast::SINGLE_ASSIGNMENT_TOP_K, Cast::Clustering::kSingleAssignmentTopK},
};

inline constexpr EnumRow<v1::Cast_AttentionFunction, Cast::AttentionFunction>
    kAttentionFunctions[] = {
        {v1::Cast::SOFTMAX, Cast::AttentionFunction::kSoftmax},
        {v1::Cast::LAPLACE, Cast::AttentionFunction::kLaplace},
};

inline constexpr EnumRow<v1::Cast_GateTemperature, Cast::GateTemperature> kGateTemperatures[] = {
    {v1::Cast::SOFTPLUS1, Cast::GateTemperature::kSoftplus1},
    {v1::Cast::NONE, Cast::GateTemperature::kNone},
};

inline constexpr EnumRow<v1::Cast_HeadClustering, Cast::HeadClustering> kHeadClusterings[] = {
    {v1::Cast::SHARED, Cast::HeadClustering::kShared},
    {v1::Cast::PER_HEAD, Cast::HeadClustering::kPerHead},
};

inline constexpr EnumRow<v1::ModelState, ModelState> kModelStates[] = {
    {v1::UNLOADED, ModelState::kUnloaded},   {v1::WAITING, ModelState::kWaiting},
    {v1::LOADING, ModelState::kLoading},     {v1::READY, ModelState::kReady},
    {v1::UNLOADING, ModelState::kUnloading}, {v1::FAILED, ModelState::kFailed},
};

inline constexpr EnumRow<v1::Priority, Priority> kPriorities[] = {
    {v1::LOW, Priority::kLow},
    {v1::NORMAL, Priority::kNormal},
    {v1::HIGH, Priority::kHigh},
};

inline constexpr EnumRow<v1::EncodeOutput, EncodeOutput> kEncodeOutputs[] = {
    {v1::TOKEN_EMBEDDINGS, EncodeOutput::kTokenEmbeddings},
    {v1::POOLED, EncodeOutput::kPooled},
    {v1::LOGITS, EncodeOutput::kLogits},
    {v1::SCORES, EncodeOutput::kScores},
    {v1::SPARSE, EncodeOutput::kSparse},
};

inline constexpr EnumRow<v1::EncodeRequest_OutputType, OutputType> kOutputTypes[] = {
    {v1::EncodeRequest::FLOAT32, OutputType::kFloat32},
    {v1::EncodeRequest::FLOAT16, OutputType::kFloat16},
    {v1::EncodeRequest::BFLOAT16, OutputType::kBFloat16},
    {v1::EncodeRequest::INT8, OutputType::kInt8},
    {v1::EncodeRequest::UINT8, OutputType::kUInt8},
    {v1::EncodeRequest::BINARY, OutputType::kBinary},
    {v1::EncodeRequest::UBINARY, OutputType::kUBinary},
};

inline constexpr EnumRow<v1::Pooling, Pooling> kPoolings[] = {
    {v1::MEAN, Pooling::kMean},
    {v1::CLS, Pooling::kCls},
    {v1::LAST_TOKEN, Pooling::kLastToken},
    {v1::MAXIMUM, Pooling::kMaximum},
    {v1::WEIGHTED_MEAN, Pooling::kWeightedMean},
    {v1::MEAN_SQRT_LENGTH, Pooling::kMeanSqrtLength},
    {v1::SEVERAL, Pooling::kSeveral},
};

inline constexpr EnumRow<v1::TruncationSide, Side> kTruncationSides[] = {
    {v1::LEFT, Side::kLeft},
    {v1::RIGHT, Side::kRight},
};

// The engine's value for a number on the wire; nullopt for zero and for numbers outside the table.
template <typename Wire, typename Ours, size_t kRows>
std::optional<Ours> FromWire(const EnumRow<Wire, Ours> (&table)[kRows], int32_t number) {
  for (const auto& row : table) {
    if (row.wire == number) return row.ours;
  }
  return std::nullopt;
}

// The wire's value for one of the engine's, all of which are in the table.
template <typename Wire, typename Ours, size_t kRows>
Wire ToWire(const EnumRow<Wire, Ours> (&table)[kRows], Ours ours) {
  for (const auto& row : table) {
    if (row.ours == ours) return row.wire;
  }
  return Wire{};
}

}  // namespace castor::server
