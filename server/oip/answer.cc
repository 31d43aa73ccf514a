#include "server/oip/answer.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "google/rpc/error_details.pb.h"
#include "inference/grpc_service.pb.h"
#include "server/codec/rerank_codec.h"
#include "server/codec/response.h"
#include "server/services/message.h"
#include "server/shared_memory.h"

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

// Each request has exactly one answer.
void SetFinal(inference::ModelInferResponse* message) {
  (*message->mutable_parameters())["triton_final_response"].set_bool_param(true);
}

// Collects the requested outputs.
class Outputs {
 public:
  Outputs(const RequestedOutputs& requested, std::string_view id, const ExecutionReport& report)
      : requested_(requested) {
    message_.set_model_name(requested.model->name);
    message_.set_model_version(std::string(kVersion));
    message_.set_id(std::string(id));
    SetFinal(&message_);
    // KServe has no double parameters, so these are texts and int64s.
    auto& parameters = *message_.mutable_parameters();
    parameters["attention"].set_string_param(
        std::string(castor::NameOf(castor::NameOf(report.kernel.kernel))));
    parameters["batch_requests"].set_int64_param(report.batch.requests);
    if (report.batch.cached) parameters["cached"].set_bool_param(true);
    parameters["queue_us"].set_int64_param(std::llround(report.timing.queue_us));
    parameters["compute_us"].set_int64_param(std::llround(report.timing.compute_us));
  }

  void Add(std::string_view name, TensorResult tensor) {
    if (Entry* const entry = New(name, DatatypeOf(tensor.dtype), tensor.shape)) {
      entry->tensor = std::move(tensor);
    }
  }

  template <typename T>
  void Add(std::string_view name, std::string_view datatype, std::vector<int64_t> shape,
           const std::vector<T>& values) {
    if (Entry* const entry = New(name, datatype, shape)) {
      entry->bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    }
  }

  absl::StatusOr<grpc::ByteBuffer> Finish(Metrics& metrics) {
    auto next = entries_.begin();
    for (const RequestedOutputs::Output& output : requested_.outputs) {
      const auto found = std::ranges::find(entries_, output.name, &Entry::name);
      if (found == entries_.end()) continue;
      if (output.range.has_value()) {
        const size_t size = found->elements().size();
        absl::Status written = Write(output, *found);
        if (!written.ok()) return written;
        metrics.SharedMemoryWritten(size);
        found->bytes.clear();
        found->tensor.reset();
      }
      std::rotate(next, found, found + 1);
      ++next;
    }
    for (Entry& entry : entries_) *message_.add_outputs() = std::move(entry.header);
    std::vector<grpc::Slice> slices;
    std::string small = message_.SerializeAsString();
    for (Entry& entry : entries_) {
      const size_t size = entry.elements().size();
      AppendTagAndLength(inference::ModelInferResponse::kRawOutputContentsFieldNumber, size,
                         &small);
      small += entry.bytes;
      if (!entry.tensor.has_value() || size == 0) continue;
      slices.push_back(SliceOf(std::exchange(small, {})));
      slices.push_back(SliceOf(*std::move(entry.tensor)));
    }
    if (!small.empty()) slices.push_back(SliceOf(std::move(small)));
    return grpc::ByteBuffer(slices.data(), slices.size());
  }

 private:
  struct Entry {
    std::string_view name;
    inference::ModelInferResponse::InferOutputTensor header;
    std::string bytes = {};
    std::optional<TensorResult> tensor = std::nullopt;

    std::span<const std::byte> elements() const {
      return tensor.has_value() ? tensor->data.bytes() : std::as_bytes(std::span(bytes));
    }
  };

  static absl::Status Write(const RequestedOutputs::Output& output, const Entry& entry) {
    FileRange range = output.range->file;
    const auto size = std::ssize(entry.elements());
    if (size > range.size) {
      return InvalidField(output.name, "takes " + std::to_string(size) +
                                           " bytes, but its range in shared memory has " +
                                           std::to_string(range.size));
    }
    range.size = size;
    return WriteRange(range, entry.elements(), output.name);
  }

  // A new output; null if it was not requested. `name` is a literal.
  Entry* New(std::string_view name, std::string_view datatype, const std::vector<int64_t>& shape) {
    if (!requested_.outputs.empty() && !requested_.Includes(name)) return nullptr;
    Entry& entry = entries_.emplace_back();
    entry.name = name;
    entry.header.set_name(std::string(name));
    entry.header.set_datatype(std::string(datatype));
    entry.header.mutable_shape()->Assign(shape.begin(), shape.end());
    return &entry;
  }

  const RequestedOutputs& requested_;
  InArena<inference::ModelInferResponse> arena_;
  inference::ModelInferResponse& message_ = *arena_;
  std::vector<Entry> entries_;
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

// The documents' indices and logits, best first.
void AddRanking(const TensorResult& logits, int64_t documents, Outputs* outputs) {
  const std::span values(logits.data.as<float>(), static_cast<size_t>(documents));
  const std::vector<int32_t> order = RankByLogit(values);
  std::vector<float> sorted;
  for (const int32_t i : order) sorted.push_back(values[i]);
  outputs->Add("index", "INT32", {documents, 1}, order);
  outputs->Add("logit", "FP32", {documents, 1}, sorted);
}

void AddSparse(const SparseRows& rows, Outputs* outputs) {
  const auto entries = std::ssize(rows.indices);
  outputs->Add("sparse_indices", "INT32", {entries}, rows.indices);
  outputs->Add("sparse_values", "FP32", {entries}, rows.values);
  outputs->Add("sparse_lengths", "INT64", {std::ssize(rows.lengths)}, rows.lengths);
}

}  // namespace

absl::StatusOr<grpc::ByteBuffer> Answer(const RequestedOutputs& requested, std::string_view id,
                                        AttentionResult result, Metrics& metrics) {
  Outputs outputs(requested, id, result.report);
  outputs.Add("output", std::move(result.output));
  if (result.log_sum_exp.has_value()) outputs.Add("log_sum_exp", *std::move(result.log_sum_exp));
  return outputs.Finish(metrics);
}

absl::StatusOr<grpc::ByteBuffer> Answer(const RequestedOutputs& requested, std::string_view id,
                                        EncodeResult result, Metrics& metrics) {
  Outputs outputs(requested, id, result.report);
  const std::vector<int32_t> counts(result.token_counts.begin(), result.token_counts.end());
  const std::vector<int64_t>* lengths = &result.outputs.front().lengths;
  if (requested.rerank) {
    AddRanking(result.outputs.front().values, std::ssize(counts), &outputs);
  }
  for (OutputRows& rows : result.outputs) {
    if (rows.output == EncodeOutput::kTokenEmbeddings) lengths = &rows.lengths;
    if (rows.sparse.has_value()) {
      AddSparse(*rows.sparse, &outputs);
    } else if (!requested.rerank || requested.Includes(NameOf(rows.output))) {
      outputs.Add(NameOf(rows.output), std::move(rows.values));
    }
  }
  outputs.Add("token_count", "INT32", {std::ssize(counts)}, counts);
  outputs.Add("lengths", "INT64", {std::ssize(*lengths)}, *lengths);
  return outputs.Finish(metrics);
}

grpc::ByteBuffer StreamAnswer(const grpc::ByteBuffer& answer) {
  std::string head;
  AppendTagAndLength(inference::ModelStreamInferResponse::kInferResponseFieldNumber,
                     answer.Length(), &head);
  std::vector<grpc::Slice> slices;
  if (!answer.Dump(&slices).ok()) slices.clear();
  slices.insert(slices.begin(), grpc::Slice(head));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

grpc::ByteBuffer StreamError(const RequestedOutputs& requested, std::string_view id,
                             const google::rpc::Status& error) {
  google::rpc::ErrorInfo info;
  if (error.details_size() > 0) error.details(0).UnpackTo(&info);
  InArena<inference::ModelStreamInferResponse> message;
  message->set_error_message("[" + info.reason() + "] " + error.message());
  inference::ModelInferResponse* const answer = message->mutable_infer_response();
  answer->set_id(std::string(id));
  if (requested.model != nullptr) answer->set_model_name(requested.model->name);
  SetFinal(answer);
  return SerializeMessage(*message);
}

}  // namespace castor::server::oip
