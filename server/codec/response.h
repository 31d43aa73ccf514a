// Shared by all answers with tensors: the reports, and the tensors that follow the small fields.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "castor/v1/kernel.pb.h"
#include "castor/v1/report.pb.h"
#include "castor/v1/tensor.pb.h"
#include "engine/request.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"

namespace castor::server {

void FillParameters(const Clustered& from, v1::Clustered* out);
void FillParameters(const ImprovedClustered& from, v1::ImprovedClustered* out);

void FillKernelReport(const KernelReport& report, v1::KernelReport* out);
void FillTiming(const Timing& timing, double total_us, v1::Timing* out);
void FillBatch(const BatchReport& batch, v1::BatchReport* out);
void FillMemory(const MemoryReport& memory, v1::MemoryReport* out);

// The fields that AttendResponse and EncodeResponse have in common.
template <typename Response>
void FillReports(const ExecutionReport& report, double total_us, Response* out) {
  FillKernelReport(report.kernel, out->mutable_kernel());
  FillTiming(report.timing, total_us, out->mutable_timing());
  FillBatch(report.batch, out->mutable_batch());
  FillMemory(report.memory, out->mutable_memory());
}

// Fills in the dtype and shape of `tensor`.
void FillTensor(const TensorResult& tensor, v1::Tensor* out);

// The same memory as a slice, which owns it.
grpc::Slice SliceOf(TensorResult tensor);
grpc::Slice SliceOf(std::string bytes);

// The same answer, which owns `share` until gRPC has sent or dropped the last of its bytes: until
// then they count in the tenant's part of the engine's budget. The share shrinks to the answer's
// bytes here. A null share: nothing is counted.
grpc::ByteBuffer Charged(const grpc::ByteBuffer& answer, std::shared_ptr<AnswerShare> share);

// Appends the tag and length that precede a field of bytes or a message.
void AppendTagAndLength(int number, size_t length, std::string* out);

// A field of type Tensor; or of a message in which there are a tensor, if it has a shape, and
// others.
struct TensorField {
  int number;  // of the tensor
  TensorResult tensor;
  int message = 0;          // of the message; 0: the tensor is a field by itself
  std::string others = {};  // the message's other fields
};

// The bytes of `message`, followed by the fields, which are moved from. Each tensor's own memory is
// a slice, and so are the small fields before it.
grpc::ByteBuffer WithTensors(const google::protobuf::MessageLite& message,
                             std::span<TensorField> fields);

}  // namespace castor::server
