#include "client/load/send/references.h"

#include <climits>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/hash/hash.h"
#include "client/cli/attend/exact_check.h"
#include "client/load/send/answers.h"
#include "client/load/send/requests.h"

namespace castor::load {
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
