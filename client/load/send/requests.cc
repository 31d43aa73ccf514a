#include "client/load/send/requests.h"

#include "castor/v1/encoder.pb.h"
#include "client/cli/attend/attend_problem.h"
#include "client/cli/attend/kernel_flags.h"
#include "client/cli/command.h"
#include "client/cli/encode/encode_input.h"
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

}  // namespace castor::load
