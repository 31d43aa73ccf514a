// 65,536 ranges over a few hundred tokens: a small request, whose rows are read 64 times for each
// range. They are pooled in steps, between which short ones pass.

#include <array>

#include "tests/bench/load/huge.h"
#include "tests/bench/load/requests.h"

namespace castor::bench {
namespace {

constexpr int kSequences = 8;
constexpr int kTokens = 64;  // of each, which every range covers
constexpr int kRanges = 65'536;

struct SpanCase {
  const char* name;
  v1::Pooling pooling;
};
constexpr std::array<SpanCase, 3> kCases = {
    {{"means of spans, cancelled after 0.25 s", v1::MEAN},
     {"weighted means of spans, cancelled after 0.25 s", v1::WEIGHTED_MEAN},
     {"maxima of spans, cancelled after 0.25 s", v1::MAXIMUM}}};

grpc::ByteBuffer RequestWith(v1::Pooling pooling) {
  v1::EncodeRequest request;
  for (int s = 0; s < kSequences; ++s) {
    for (int t = 0; t < kTokens; ++t) request.mutable_tokens()->add_ids(1000 + 7 * t + s);
    request.mutable_tokens()->add_lengths(kTokens);
  }
  for (int i = 0; i < kRanges; ++i) {
    v1::Spans::Range* const range = request.mutable_spans()->add_ranges();
    range->set_sequence(i % kSequences);
    range->set_end(kTokens);
  }
  request.set_pooling(pooling);
  request.set_dimensions(1);
  return BytesOf(request);
}

}  // namespace

void ManySpans(const Settings& settings, Report& report) {
  HugeRequest huge;
  huge.method = huge.small_method = kEncode;
  huge.small = BytesOf(EncodeMessage({"two words"}));
  huge.time = std::chrono::milliseconds(250);
  for (const SpanCase& spans : kCases) {
    huge.name = spans.name;
    huge.bytes = RequestWith(spans.pooling);
    MeasureHuge(settings, {"--model", "encoder=" + settings.model}, huge, report);
  }
}

}  // namespace castor::bench
