#include "client/load/send/messages.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/hash/hash.h"
#include "castor/v1/encoder.pb.h"
#include "client/cli/attend/attend_problem.h"
#include "client/cli/attend/kernel_flags.h"
#include "client/cli/encode/encode_input.h"
#include "client/cli/report.h"
#include "client/load/workload/schedule.h"

namespace castor::load {
namespace {

constexpr int64_t kMaxPayloadBytes = int64_t{4} << 30;

// Each word is one token in the vocabularies of BERT and its descendants.
constexpr const char* kWords[] = {
    "time", "year", "people", "way",   "day",    "man",    "thing",  "woman", "life",   "child",
    "hand", "part", "place",  "case",  "week",   "system", "work",   "night", "point",  "home",
    "room", "area", "money",  "story", "friend", "father", "member", "car",   "minute", "back"};

template <typename Spec>
std::vector<int64_t> DrawLengths(const Spec& spec, Random& random) {
  std::vector<int64_t> drawn(static_cast<size_t>(Draw(spec.sequences, random)));
  for (int64_t& length : drawn) length = Draw(spec.lengths, random);
  return drawn;
}

v1::EncodeRequest MakeEncode(const ClassSpec& cls, const std::vector<std::string>& texts,
                             uint64_t seed) {
  const auto& spec = std::get<EncodeSpec>(cls.call);
  Random random(seed);
  v1::EncodeRequest request;
  request.set_model(spec.model);
  request.set_priority(cls.priority);
  request.set_output(spec.output);
  if (texts.empty()) {
    for (const int64_t length : DrawLengths(spec, random)) {
      std::string text;
      for (int64_t i = 0; i < length; ++i) {
        if (i > 0) text += ' ';
        text += kWords[Below(std::size(kWords), random)];
      }
      request.mutable_texts()->add_texts(std::move(text));
    }
  } else {
    const int64_t count = Draw(spec.sequences, random);
    for (int64_t i = 0; i < count; ++i) {
      request.mutable_texts()->add_texts(texts[Below(texts.size(), random)]);
    }
  }
  cli::ApplyKernel(spec.kernel, &request);
  return request;
}

uint64_t SeedOf(uint64_t seed, const ClassSpec& spec, size_t payload) {
  uint64_t name = 0;
  for (const char c : spec.name) name = MixSeed(name, static_cast<unsigned char>(c));
  return MixSeed(MixSeed(seed, name), payload);
}

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

v1::AttendRequest MakeAttend(const ClassSpec& cls, uint64_t seed) {
  const auto& spec = std::get<AttendSpec>(cls.call);
  Random random(seed);
  const cli::ProblemFlags problem = {.lengths = DrawLengths(spec, random),
                                     .heads = spec.heads,
                                     .head_dim = spec.head_dim,
                                     .dtype = spec.dtype,
                                     .structured = spec.structured,
                                     .seed = random(),
                                     .surrogate_tokens = spec.surrogate_tokens};
  try {
    v1::AttendRequest request = cli::MakeProblem(problem);
    request.set_priority(cls.priority);
    cli::ApplyKernel(spec.kernel, &request);
    cli::DrawCastInputs(problem, &request);
    return request;
  } catch (const cli::UsageError& error) {
    throw cli::UsageError("class '" + cls.name + "': " + error.what());
  }
}

std::vector<std::vector<Payload>> MakePayloads(const std::vector<ClassSpec>& classes,
                                               uint64_t seed) {
  std::vector<std::vector<Payload>> all;
  int64_t bytes = 0;
  for (const ClassSpec& spec : classes) {
    std::vector<Payload>& made = all.emplace_back();
    const auto* encode = std::get_if<EncodeSpec>(&spec.call);
    std::vector<std::string> texts;
    if (encode != nullptr && !encode->text_file.empty()) {
      cli::LineReader lines(cli::OpenInput(encode->text_file));
      for (std::string line; lines.Next(&line);) {
        if (!line.empty()) texts.push_back(line);
      }
      if (texts.empty()) throw cli::UsageError(encode->text_file + " contains no texts");
    }
    for (size_t i = 0; i < static_cast<size_t>(spec.payloads); ++i) {
      Payload& payload = made.emplace_back();
      const uint64_t own = SeedOf(seed, spec, i);
      if (encode != nullptr) {
        const v1::EncodeRequest request = MakeEncode(spec, texts, own);
        payload.encode = true;
        payload.message = grpc::Slice(request.SerializeAsString());
      } else {
        const v1::AttendRequest request = MakeAttend(spec, own);
        payload.message = grpc::Slice(request.SerializeAsString());
        for (const int64_t length : request.query_lengths()) payload.tokens += length;
      }
      bytes += static_cast<int64_t>(payload.message.size());
      if (bytes <= kMaxPayloadBytes) continue;
      throw cli::UsageError("class '" + spec.name +
                            "': the distinct requests take more than 4 GiB of this machine's "
                            "memory; give it fewer payloads");
    }
  }
  return all;
}

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
