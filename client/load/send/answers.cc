#include "client/load/send/answers.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/hash/hash.h"
#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "client/cli/report.h"

namespace castor::load {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 40;  // of an answer; more is an error

template <typename Answer>
AnswerFacts FactsOf(std::string_view bytes) {
  AnswerFacts facts;
  Answer answer;
  if (bytes.size() > INT_MAX ||
      !answer.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return facts;
  }
  facts.elements = std::move(*answer.mutable_output()->mutable_raw());
  if constexpr (std::is_same_v<Answer, v1::EncodeResponse>) {
    for (const int64_t count : answer.token_counts()) {
      if (count < 0 || count > kMostTokens - facts.tokens) return {};
      facts.tokens += count;
    }
    if (answer.has_sparse()) facts.elements = answer.sparse().SerializeAsString();
  }
  facts.readable = true;
  facts.timed = answer.has_timing();
  facts.queue_us = answer.timing().queue_us();
  facts.compute_us = answer.timing().compute_us();
  facts.total_us = answer.timing().total_us();
  const v1::KernelName kernel = answer.kernel().name();
  if (kernel != v1::KERNEL_NAME_UNSPECIFIED) facts.kernel = cli::KernelText(kernel);
  return facts;
}

// In another batch, sums may be added in another order: an element of an embedding may differ by
// 2e-5.
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

}  // namespace

AnswerFacts ReadAnswer(bool encode, std::string_view answer) {
  return encode ? FactsOf<v1::EncodeResponse>(answer) : FactsOf<v1::AttendResponse>(answer);
}

void References::Add(size_t cls, const Payload& payload, std::string_view answer) {
  references_.resize(std::max(references_.size(), cls + 1));
  Reference reference;
  std::string elements = ReadAnswer(payload.encode, answer).elements;
  reference.size = elements.size();
  reference.fingerprint = absl::HashOf(elements);
  if (payload.encode) reference.elements = std::move(elements);
  references_[cls].push_back(std::move(reference));
}

Match References::Compare(size_t cls, size_t index, bool encode,
                          const std::string& elements) const {
  const Reference& reference = references_[cls][index];
  if (elements.size() != reference.size) return Match::kDifferent;
  if (absl::HashOf(elements) == reference.fingerprint) return Match::kEqual;
  // A NaN compares as different.
  const bool close = encode && RelativeDifference(elements, reference.elements) <= kEncodeTolerance;
  return close ? Match::kEqual : Match::kDifferent;
}

}  // namespace castor::load
