#include "server/oip/answer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "inference/grpc_service.pb.h"
#include "server/codec/response.h"

namespace castor::server::oip {
namespace {

std::string_view DatatypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "FP32";
    case DType::kFloat16:
      return "FP16";
    case DType::kBFloat16:
      return "BF16";
    case DType::kInt32:
      return "INT32";
    case DType::kInt64:
      return "INT64";
    case DType::kInt8:
      return "INT8";
    case DType::kUInt8:
      return "UINT8";
  }
  return "";
}

// Collects the outputs that are wanted.
class Outputs {
 public:
  Outputs(const Wanted& wanted, std::string_view id, const ExecutionReport& report)
      : wanted_(wanted) {
    message_.set_model_name(wanted.model->name);
    message_.set_model_version(std::string(kVersion));
    message_.set_id(std::string(id));
    auto& parameters = *message_.mutable_parameters();
    parameters["attention"].set_string_param(
        std::string(castor::NameOf(castor::NameOf(report.kernel.kernel))));
    parameters["batch_requests"].set_int64_param(report.batch.requests);
    parameters["queue_us"].set_double_param(report.timing.queue_us);
    parameters["compute_us"].set_double_param(report.timing.compute_us);
  }

  void Add(std::string_view name, TensorResult tensor) {
    if (Entry* const entry = New(name, DatatypeOf(tensor.dtype), tensor.shape)) {
      entry->tensor = std::move(tensor);
    }
  }

  // The elements are elsewhere.
  void AddEmpty(std::string_view name, const TensorResult& tensor) {
    New(name, DatatypeOf(tensor.dtype), tensor.shape);
  }

  template <typename T>
  void Add(std::string_view name, std::string_view datatype, std::vector<int64_t> shape,
           const std::vector<T>& values) {
    if (Entry* const entry = New(name, datatype, shape)) {
      entry->bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    }
  }

  grpc::ByteBuffer Finish() {
    for (const std::string& name : wanted_.outputs) {
      const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
        return entry.tensor_name == name;
      });
      if (found != entries_.end()) std::rotate(next(), found, found + 1), ++placed_;
    }
    for (Entry& entry : entries_) *message_.add_outputs() = std::move(entry.header);
    std::vector<grpc::Slice> slices;
    std::string small = message_.SerializeAsString();
    for (Entry& entry : entries_) {
      const size_t size = entry.tensor.has_value() ? entry.tensor->data.size() : entry.bytes.size();
      AppendTagAndLength(inference::ModelInferResponse::kRawOutputContentsFieldNumber, size,
                         &small);
      small += entry.bytes;
      if (!entry.tensor.has_value() || size == 0) continue;
      slices.emplace_back(std::exchange(small, {}));
      slices.push_back(SliceOf(*std::move(entry.tensor)));
    }
    if (!small.empty()) slices.emplace_back(small);
    return grpc::ByteBuffer(slices.data(), slices.size());
  }

 private:
  struct Entry {
    std::string tensor_name;
    inference::ModelInferResponse::InferOutputTensor header;
    std::string bytes = {};
    std::optional<TensorResult> tensor = std::nullopt;
  };

  std::vector<Entry>::iterator next() { return entries_.begin() + placed_; }

  // Null if it is not wanted.
  Entry* New(std::string_view name, std::string_view datatype, const std::vector<int64_t>& shape) {
    if (!wanted_.Wants(name)) return nullptr;
    Entry& entry = entries_.emplace_back();
    entry.tensor_name = name;
    entry.header.set_name(entry.tensor_name);
    entry.header.set_datatype(std::string(datatype));
    entry.header.mutable_shape()->Assign(shape.begin(), shape.end());
    return &entry;
  }

  const Wanted& wanted_;
  inference::ModelInferResponse message_;
  std::vector<Entry> entries_;
  std::ptrdiff_t placed_ = 0;  // that are in the order asked for
};

std::string_view NameOf(EncodeOutput output) {
  switch (output) {
    case EncodeOutput::kPooled:
      return "embeddings";
    case EncodeOutput::kTokenEmbeddings:
      return "token_embeddings";
    case EncodeOutput::kScores:
      return "scores";
    default:
      return "logits";
  }
}

// Places in descending order of their logits, ties by place; NaN is last.
std::vector<int32_t> Ranking(const float* logits, size_t count) {
  std::vector<int32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  const auto rank = [&](int32_t i) {
    return std::isnan(logits[i]) ? -std::numeric_limits<float>::infinity() : logits[i];
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return rank(a) > rank(b); });
  return order;
}

}  // namespace

grpc::ByteBuffer Answer(const Wanted& wanted, std::string_view id, AttentionResult result,
                        const std::optional<OutputRange>& output) {
  Outputs outputs(wanted, id, result.report);
  if (output.has_value()) {
    outputs.AddEmpty("output", result.output);
  } else {
    outputs.Add("output", std::move(result.output));
  }
  if (result.log_sum_exp.has_value()) outputs.Add("log_sum_exp", *std::move(result.log_sum_exp));
  return outputs.Finish();
}

grpc::ByteBuffer Answer(const Wanted& wanted, std::string_view id, EncodeResult result) {
  Outputs outputs(wanted, id, result.report);
  const auto sequences = static_cast<int64_t>(result.token_counts.size());
  std::vector<int32_t> counts(result.token_counts.begin(), result.token_counts.end());
  if (wanted.rerank) {
    const float* const logits = result.output.data.as<float>();
    const std::vector<int32_t> order = Ranking(logits, counts.size());
    std::vector<float> sorted;
    for (const int32_t i : order) sorted.push_back(logits[i]);
    outputs.Add("index", "INT32", {sequences, 1}, order);
    outputs.Add("logit", "FP32", {sequences, 1}, sorted);
  }
  outputs.Add("token_count", "INT32", {sequences}, counts);
  outputs.Add("lengths", "INT64", {static_cast<int64_t>(result.lengths.size())}, result.lengths);
  if (result.sparse.has_value()) {
    const SparseRows& rows = *result.sparse;
    const auto entries = static_cast<int64_t>(rows.indices.size());
    outputs.Add("sparse_indices", "INT32", {entries}, rows.indices);
    outputs.Add("sparse_values", "FP32", {entries}, rows.values);
    outputs.Add("sparse_lengths", "INT64", {static_cast<int64_t>(rows.lengths.size())},
                rows.lengths);
  } else if (!wanted.rerank || !wanted.outputs.empty()) {
    outputs.Add(NameOf(wanted.output), std::move(result.output));
  }
  return outputs.Finish();
}

}  // namespace castor::server::oip
