#include "client/load/verify/references.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "absl/hash/hash.h"

namespace castor::load {
namespace {

// Multiply-adds spent on one request's exact answer: a quarter of a second or so.
constexpr int64_t kMaxOperations = 200'000'000;

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

void References::Add(const ClassSpec& spec, size_t cls, uint64_t seed, const Payload& payload,
                     std::string_view answer) {
  references_.resize(std::max(references_.size(), cls + 1));
  Reference reference;
  reference.tolerance = protocol_.Tolerance(spec);
  std::string elements = protocol_.Elements(payload, answer).value_or("");
  reference.size = elements.size();
  reference.fingerprint = absl::HashOf(elements);
  if (const auto error =
          protocol_.ExactError(spec, seed, references_[cls].size(), answer, kMaxOperations)) {
    reference.exact_error = *error;
  }
  if (reference.tolerance > 0) reference.elements = std::move(elements);
  references_[cls].push_back(std::move(reference));
}

Match References::Compare(size_t cls, size_t payload_index, const Payload& payload,
                          std::string_view answer) const {
  const Reference& reference = references_[cls][payload_index];
  const auto elements = protocol_.Elements(payload, answer);
  if (!elements.has_value() || elements->size() != reference.size) return Match::kDifferent;
  if (absl::HashOf(*elements) == reference.fingerprint) return Match::kEqual;
  if (reference.tolerance == 0) return Match::kDifferent;
  // A NaN compares as different.
  return RelativeDifference(*elements, reference.elements) <= reference.tolerance
             ? Match::kEqual
             : Match::kDifferent;
}

}  // namespace castor::load
