#include "client/load/send/answers.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <climits>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/hash/hash.h"
#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "client/cli/attend/exact_check.h"
#include "client/cli/report.h"
#include "client/load/send/requests.h"

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
  facts.queue_us = timing.queue_us();
  facts.compute_us = timing.compute_us();
  facts.total_us = timing.total_us();
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

namespace {

// Multiply-adds spent on one request's exact answer: a quarter of a second or so.
constexpr int64_t kMaxOperations = 200'000'000;

// The same text in another batch may be added up in another order: an element of an embedding may
// differ by 2e-5.
constexpr double kEncodeTolerance = 1e-4;

// ||a - b|| / ||b|| of fp32 elements.
double RelativeDifference(const std::string& a, const std::string& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i + sizeof(float) <= b.size(); i += sizeof(float)) {
    float x, y;
    std::memcpy(&x, a.data() + i, sizeof(float));
    std::memcpy(&y, b.data() + i, sizeof(float));
    difference += (static_cast<double>(x) - y) * (static_cast<double>(x) - y);
    norm += static_cast<double>(y) * y;
  }
  return std::sqrt(norm > 0 ? difference / norm : difference);
}

double ExactErrorOf(const v1::AttendRequest& request, std::string_view answer) {
  v1::AttendResponse response;
  std::string problem;
  if (answer.size() > INT_MAX ||
      !response.ParseFromArray(answer.data(), static_cast<int>(answer.size()))) {
    return -1;
  }
  const auto result = cli::CheckExactly(request, response, kMaxOperations, &problem);
  return result.has_value() ? result->relative_error : -1;
}

}  // namespace

void References::Add(const ClassSpec& spec, size_t cls, uint64_t seed, const Payload& payload,
                     std::string_view answer) {
  references_.resize(std::max(references_.size(), cls + 1));
  Reference reference;
  std::string elements = ReadElements(payload.encode, answer).value_or("");
  reference.size = elements.size();
  reference.fingerprint = absl::HashOf(elements);
  if (payload.encode) {
    reference.elements = std::move(elements);
  } else {
    const uint64_t own = SeedOf(seed, spec, references_[cls].size());
    reference.exact_error = ExactErrorOf(MakeAttend(spec, own), answer);
  }
  references_[cls].push_back(std::move(reference));
}

Match References::Compare(size_t cls, size_t index, const Payload& payload,
                          std::string_view answer) const {
  const Reference& reference = references_[cls][index];
  const auto elements = ReadElements(payload.encode, answer);
  if (!elements.has_value() || elements->size() != reference.size) return Match::kDifferent;
  if (absl::HashOf(*elements) == reference.fingerprint) return Match::kEqual;
  // A NaN compares as different.
  const bool close =
      payload.encode && RelativeDifference(*elements, reference.elements) <= kEncodeTolerance;
  return close ? Match::kEqual : Match::kDifferent;
}

}  // namespace castor::load
