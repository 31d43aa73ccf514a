#include "server/codec/response.h"

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"
#include "server/codec/enums.h"

namespace castor::server {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;

// Both messages have these fields.
template <typename Parameters>
void FillClustering(const Clustered& from, Parameters* out) {
  out->set_clusters(from.clusters);
  out->set_iterations(from.iterations);
  if (from.clustering == Clustered::Clustering::kHash) {
    out->set_bits(from.bits);
    out->set_hash_bias(from.hash_bias);
  }
  out->set_seed(from.seed);
  out->set_clustering(ToWire(kQueryClusterings, from.clustering));
}

void FillParameters(const Vanilla& from, v1::KernelReport* out) {
  out->mutable_vanilla()->set_causal(from.causal);
}

// A KernelReport or a RejectedKernel.
template <typename Report>
void FillParameters(const Clustered& from, Report* out) {
  server::FillParameters(from, out->mutable_clustered());
}

template <typename Report>
void FillParameters(const ImprovedClustered& from, Report* out) {
  server::FillParameters(from, out->mutable_improved_clustered());
}

void FillParameters(const Cast& from, v1::KernelReport* out) {
  v1::Cast* to = out->mutable_cast();
  to->set_clustering(ToWire(kClusterings, from.clustering));
  to->set_cluster_size(from.cluster_size);
  to->set_attention_function(ToWire(kAttentionFunctions, from.attention_function));
  to->set_gate_temperature(ToWire(kGateTemperatures, from.gate_temperature));
  to->set_head_clustering(ToWire(kHeadClusterings, from.head_clustering));
}

void WriteTagAndLength(uint32_t field_number, size_t length, CodedOutputStream* out) {
  out->WriteTag(WireFormatLite::MakeTag(static_cast<int>(field_number),
                                        WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
  out->WriteVarint64(length);
}

// A slice of the bytes that `data` returns for `owner`; it owns `owner`.
template <typename Owner, typename Data>
grpc::Slice SliceOwning(Owner owner, Data data) {
  auto* const kept = new Owner(std::move(owner));
  const auto bytes = data(*kept);
  return grpc::Slice(
      const_cast<void*>(static_cast<const void*>(bytes.data())), bytes.size(),
      [](void* it) { delete static_cast<Owner*>(it); }, kept);
}

// The size of a field with a tag of one byte.
size_t SizeWithTag(size_t length) { return 1 + CodedOutputStream::VarintSize64(length) + length; }

}  // namespace

void FillParameters(const Clustered& from, v1::Clustered* out) { FillClustering(from, out); }

void FillParameters(const ImprovedClustered& from, v1::ImprovedClustered* out) {
  FillClustering(from, out);
  out->set_topk(from.topk);
  out->set_rest_mass(ToWire(kRestMasses, from.rest_mass));
  if (from.rest_mass == ImprovedClustered::RestMass::kQuery) out->set_rest_groups(from.rest_groups);
}

void FillKernelReport(const KernelReport& report, v1::KernelReport* out) {
  out->set_device(report.device);
  out->set_backend(report.backend);
  out->set_predicted_us(report.predicted_us);
  out->set_measured_us(report.measured_us);
  for (const RejectedKernel& rejected : report.rejected) {
    v1::RejectedKernel* row = out->add_rejected();
    row->set_name(ToWire(kKernelNames, NameOf(rejected.kernel)));
    row->set_measured_us(rejected.measured_us);
    row->set_relative_error(rejected.relative_error);
    if (const auto* improved = std::get_if<ImprovedClustered>(&rejected.kernel)) {
      FillParameters(*improved, row);
    } else if (const auto* clustered = std::get_if<Clustered>(&rejected.kernel)) {
      FillParameters(*clustered, row);
    }
  }
  std::visit(
      [&](const auto& kernel) {
        if constexpr (!std::is_same_v<decltype(kernel), const Automatic&>) {
          out->set_name(ToWire(kKernelNames, NameOf(report.kernel)));
          FillParameters(kernel, out);
        }
      },
      report.kernel);
}

void FillTiming(const Timing& timing, double total_us, v1::Timing* out) {
  out->set_decode_us(timing.decode_us);
  out->set_queue_us(timing.queue_us);
  out->set_copy_in_us(timing.copy_in_us);
  out->set_compute_us(timing.compute_us);
  out->set_copy_out_us(timing.copy_out_us);
  out->set_total_us(total_us);
}

void FillBatch(const BatchReport& batch, v1::BatchReport* out) {
  out->set_requests(batch.requests);
  out->set_tokens(batch.tokens);
  out->set_padded_tokens(batch.padded_tokens);
  out->set_cached(batch.cached);
}

void FillMemory(const MemoryReport& memory, v1::MemoryReport* out) {
  out->set_workspace_bytes(memory.workspace_bytes);
  out->set_peak_bytes(memory.peak_bytes);
}

void FillTensor(const TensorResult& tensor, v1::Tensor* out) {
  out->set_dtype(ToWire(kDTypes, tensor.dtype));
  out->mutable_shape()->Assign(tensor.shape.begin(), tensor.shape.end());
}

grpc::Slice SliceOf(TensorResult tensor) {
  return SliceOwning(std::move(tensor), [](const TensorResult& it) { return it.data.bytes(); });
}

grpc::Slice SliceOf(std::string bytes) {
  return SliceOwning(std::move(bytes), [](const std::string& it) { return std::span(it); });
}

grpc::ByteBuffer Charged(const grpc::ByteBuffer& answer, std::shared_ptr<AnswerShare> share) {
  std::vector<grpc::Slice> slices;
  if (share == nullptr || !answer.Dump(&slices).ok() || slices.empty()) return answer;
  share->ResizeTo(static_cast<int64_t>(answer.Length()));
  slices.back() = SliceOwning(std::pair(std::move(share), slices.back()), [](const auto& it) {
    return std::span(it.second.begin(), it.second.size());
  });
  return grpc::ByteBuffer(slices.data(), slices.size());
}

void AppendTagAndLength(int number, size_t length, std::string* out) {
  google::protobuf::io::StringOutputStream stream(out);
  CodedOutputStream coded(&stream);
  WriteTagAndLength(static_cast<uint32_t>(number), length, &coded);
}

grpc::ByteBuffer WithTensors(const google::protobuf::MessageLite& message,
                             std::span<TensorField> fields) {
  std::vector<grpc::Slice> slices;
  std::string small = message.SerializeAsString();
  for (TensorField& field : fields) {
    const size_t raw_size = field.tensor.data.size();
    v1::Tensor header;
    FillTensor(field.tensor, &header);
    const size_t size = header.ByteSizeLong() + SizeWithTag(raw_size);
    const bool has_tensor = !field.tensor.shape.empty();
    {
      google::protobuf::io::StringOutputStream stream(&small);
      CodedOutputStream out(&stream);
      if (field.message != 0) {
        const size_t tensor_size = has_tensor ? SizeWithTag(size) : 0;
        WriteTagAndLength(field.message, field.others.size() + tensor_size, &out);
        out.WriteString(field.others);
      }
      if (!has_tensor) continue;
      WriteTagAndLength(field.number, size, &out);
      header.SerializeToCodedStream(&out);
      WriteTagAndLength(v1::Tensor::kRawFieldNumber, raw_size, &out);
    }
    if (raw_size == 0) continue;
    slices.push_back(SliceOf(std::exchange(small, {})));
    slices.push_back(SliceOf(std::move(field.tensor)));
  }
  if (!small.empty()) slices.push_back(SliceOf(std::move(small)));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace castor::server
