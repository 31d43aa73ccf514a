#include "client/load/send/answers.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <climits>
#include <type_traits>
#include <utility>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "client/cli/report.h"

namespace castor::load {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr uint64_t kMostTokens = uint64_t{1} << 40;  // of an answer; a sum beyond it is no count

// A length-delimited field, whole: CodedInputStream's own limits may lie beyond the answer.
bool ReadBytes(CodedInputStream& input, std::string_view* bytes) {
  uint32_t length = 0;
  const void* data = nullptr;
  int size = 0;
  if (!input.ReadVarint32(&length)) return false;
  if (length == 0) return true;
  if (!input.GetDirectBufferPointer(&data, &size) || length > static_cast<uint32_t>(size)) {
    return false;
  }
  *bytes = {static_cast<const char*>(data), length};
  return input.Skip(static_cast<int>(length));
}

CodedInputStream StreamOf(std::string_view bytes) {
  return CodedInputStream(reinterpret_cast<const uint8_t*>(bytes.data()),
                          static_cast<int>(bytes.size()));
}

template <typename Message>
bool ReadSubmessage(CodedInputStream& input, Message& message) {
  std::string_view bytes;
  if (!ReadBytes(input, &bytes)) return false;
  CodedInputStream part = StreamOf(bytes);
  return message.MergeFromCodedStream(&part) && part.ConsumedEntireMessage();
}

bool AddCount(CodedInputStream& input, int64_t& sum) {
  uint64_t count = 0;
  if (!input.ReadVarint64(&count) || count > kMostTokens - static_cast<uint64_t>(sum)) return false;
  sum += static_cast<int64_t>(count);
  return true;
}

// token_counts: packed, or one by one.
bool ReadCounts(CodedInputStream& input, uint32_t tag, int64_t& sum) {
  if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
    return AddCount(input, sum);
  }
  std::string_view bytes;
  if (!ReadBytes(input, &bytes)) return false;
  CodedInputStream part = StreamOf(bytes);
  while (part.CurrentPosition() < static_cast<int>(bytes.size())) {
    if (!AddCount(part, sum)) return false;
  }
  return true;
}

// The two answers have the same parts under different numbers.
struct Fields {
  int kernel, timing, token_counts;
};

AnswerFacts Read(std::string_view answer, Fields fields) {
  AnswerFacts facts;
  if (answer.size() > INT_MAX) return facts;
  CodedInputStream input = StreamOf(answer);
  v1::KernelReport kernel;
  v1::Timing timing;
  while (const uint32_t tag = input.ReadTag()) {
    const int field = WireFormatLite::GetTagFieldNumber(tag);
    bool read = true;
    if (field == fields.kernel) {
      read = ReadSubmessage(input, kernel);
    } else if (field == fields.timing) {
      read = ReadSubmessage(input, timing);
      facts.timed = true;
    } else if (field == fields.token_counts) {
      read = ReadCounts(input, tag, facts.tokens);
    } else {
      read = WireFormatLite::SkipField(&input, tag);
    }
    if (!read) return {};
  }
  if (!input.ConsumedEntireMessage()) return {};
  facts.readable = true;
  facts.decode_us = timing.decode_us();
  facts.queue_us = timing.queue_us();
  facts.copy_in_us = timing.copy_in_us();
  facts.compute_us = timing.compute_us();
  facts.copy_out_us = timing.copy_out_us();
  facts.total_us = timing.total_us();
  facts.predicted_us = kernel.predicted_us();
  facts.measured_us = kernel.measured_us();
  if (kernel.name() != v1::KERNEL_NAME_UNSPECIFIED) facts.kernel = cli::KernelText(kernel.name());
  return facts;
}

template <typename Message>
std::optional<std::string> ElementsOf(std::string_view answer) {
  Message message;
  if (answer.size() > INT_MAX ||
      !message.ParseFromArray(answer.data(), static_cast<int>(answer.size()))) {
    return std::nullopt;
  }
  if constexpr (std::is_same_v<Message, v1::EncodeResponse>) {
    if (message.has_sparse()) return message.sparse().SerializeAsString();
  }
  return std::move(*message.mutable_output()->mutable_raw());
}

}  // namespace

AnswerFacts ReadAnswer(bool encode, std::string_view answer) {
  if (encode) {
    return Read(answer, {.kernel = v1::EncodeResponse::kKernelFieldNumber,
                         .timing = v1::EncodeResponse::kTimingFieldNumber,
                         .token_counts = v1::EncodeResponse::kTokenCountsFieldNumber});
  }
  constexpr int kNone = -1;
  return Read(answer, {.kernel = v1::AttendResponse::kKernelFieldNumber,
                       .timing = v1::AttendResponse::kTimingFieldNumber,
                       .token_counts = kNone});
}

std::optional<std::string> ReadElements(bool encode, std::string_view answer) {
  return encode ? ElementsOf<v1::EncodeResponse>(answer) : ElementsOf<v1::AttendResponse>(answer);
}

}  // namespace castor::load
