#include "client/load/send/requests.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <fstream>
#include <numbers>
#include <span>

#include "client/cli/attend/kernel_flags.h"
#include "client/cli/command.h"
#include "client/cli/report.h"
#include "client/cli/values.h"
#include "client/load/workload/schedule.h"
#include "client/tensor.h"

namespace castor::load {
namespace {

constexpr double kMaxMessage = INT_MAX;  // protobuf's
constexpr int64_t kMaxPayloadBytes = int64_t{4} << 30;

// Standard normal values by the hundred million: windows of one table, at offsets drawn anew.
// Drawing each by itself would take seconds for a request of 64K tokens.
constexpr size_t kTable = size_t{1} << 20;
constexpr size_t kWindow = 4096;  // values between two draws of an offset

constexpr int64_t kCentres = 32;  // of structured inputs, whose variance is 1
constexpr float kNoise = 0.3F;    // around them

// Each is one token of the vocabularies of BERT and its descendants.
constexpr const char* kWords[] = {
    "time", "year", "people", "way",   "day",    "man",    "thing",  "woman", "life",   "child",
    "hand", "part", "place",  "case",  "week",   "system", "work",   "night", "point",  "home",
    "room", "area", "money",  "story", "friend", "father", "member", "car",   "minute", "back"};

const std::vector<float>& Table() {
  static const std::vector<float> table = [] {
    std::vector<float> values(kTable);
    Random random(20);
    for (size_t i = 0; i < kTable; i += 2) {
      const double radius = std::sqrt(-2 * std::log(Uniform(random)));
      const double angle = 2 * std::numbers::pi * Uniform(random);
      values[i] = static_cast<float>(radius * std::cos(angle));
      values[i + 1] = static_cast<float>(radius * std::sin(angle));
    }
    return values;
  }();
  return table;
}

void FillGaussian(std::span<float> values, Random& random) {
  const std::vector<float>& table = Table();
  for (size_t i = 0; i < values.size(); i += kWindow) {
    const size_t count = std::min(kWindow, values.size() - i);
    const size_t offset = Below(kTable - kWindow, random);
    std::copy_n(table.begin() + static_cast<ptrdiff_t>(offset), count,
                values.begin() + static_cast<ptrdiff_t>(i));
  }
}

// Each row of `width` values is one of a few centres plus noise, as trained keys and queries lie.
void FillStructured(std::span<float> values, int64_t width, Random& random) {
  std::vector<float> centre(static_cast<size_t>(width * kCentres));
  FillGaussian(centre, random);
  FillGaussian(values, random);
  for (size_t row = 0; row < values.size(); row += static_cast<size_t>(width)) {
    const float* of = centre.data() + Below(kCentres, random) * static_cast<uint64_t>(width);
    for (int64_t i = 0; i < width; ++i) values[row + i] = of[i] + kNoise * values[row + i];
  }
}

template <typename Spec>
std::vector<int64_t> DrawLengths(const Spec& spec, Random& random) {
  std::vector<int64_t> drawn(static_cast<size_t>(Draw(spec.sequences, random)));
  for (int64_t& length : drawn) length = Draw(spec.lengths, random);
  return drawn;
}

double Sum(const std::vector<int64_t>& lengths) {
  double sum = 0;
  for (const int64_t length : lengths) sum += static_cast<double>(length);
  return sum;
}

v1::Tensor DrawTensor(std::vector<int64_t> shape, v1::DataType dtype, bool structured,
                      Random& random) {
  std::vector<float> values(static_cast<size_t>(*client::NumElements(shape)));
  const int64_t width = shape.back();
  if (structured) {
    FillStructured(values, width, random);
  } else {
    FillGaussian(values, random);
  }
  return client::MakeTensor(values, shape, dtype);
}

void DrawCastInputs(const AttendSpec& spec, int64_t tokens, Random& random, v1::Cast& cast) {
  if (cast.surrogates_case() == v1::Cast::SURROGATES_NOT_SET) {
    *cast.mutable_surrogate_tokens() =
        DrawTensor({spec.surrogate_tokens, spec.heads, spec.head_dim}, spec.dtype, false, random);
  }
  if (!cast.has_gate()) {
    *cast.mutable_gate() = DrawTensor({tokens}, v1::FLOAT32, false, random);
  }
}

}  // namespace

v1::AttendRequest MakeAttend(const ClassSpec& cls, uint64_t seed) {
  const auto& spec = std::get<AttendSpec>(cls.call);
  Random random(seed);
  const std::vector<int64_t> lengths = DrawLengths(spec, random);
  const double tokens = Sum(lengths);
  const double row =
      static_cast<double>(spec.heads) * static_cast<double>(client::SizeOf(spec.dtype));
  const double bytes = 3 * row * tokens * static_cast<double>(spec.head_dim);
  if (bytes > kMaxMessage) {
    throw cli::UsageError("class '" + cls.name + "': a request of " +
                          cli::FormatBytes(static_cast<int64_t>(bytes)) +
                          " does not fit a message; give it fewer tokens, heads or dimensions");
  }
  v1::AttendRequest request;
  request.set_priority(cls.priority);
  request.mutable_query_lengths()->Assign(lengths.begin(), lengths.end());
  const auto rows = static_cast<int64_t>(tokens);
  for (v1::Tensor* const tensor :
       {request.mutable_query(), request.mutable_key(), request.mutable_value()}) {
    *tensor = DrawTensor({rows, spec.heads, spec.head_dim}, spec.dtype, spec.structured, random);
  }
  cli::ApplyKernel(spec.kernel, &request);
  if (request.has_cast()) DrawCastInputs(spec, rows, random, *request.mutable_cast());
  return request;
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

std::vector<std::vector<Payload>> MakePayloads(const std::vector<ClassSpec>& classes,
                                               uint64_t seed) {
  std::vector<std::vector<Payload>> all;
  int64_t bytes = 0;
  for (const ClassSpec& spec : classes) {
    std::vector<Payload>& made = all.emplace_back();
    const auto* encode = std::get_if<EncodeSpec>(&spec.call);
    std::vector<std::string> texts;
    if (encode != nullptr && !encode->text_file.empty()) texts = ReadTexts(encode->text_file);
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

std::vector<std::string> ReadTexts(const std::string& file) {
  std::ifstream stream(file);
  if (!stream) throw cli::UsageError("cannot read the texts of " + file);
  std::vector<std::string> texts;
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    if (const auto at = cli::FindInvalidUtf8(line)) {
      throw cli::UsageError(file + ": text " + std::to_string(texts.size() + 1) +
                            " is not UTF-8 at byte " + std::to_string(*at));
    }
    texts.push_back(std::move(line));
  }
  if (texts.empty()) throw cli::UsageError(file + " contains no texts");
  return texts;
}

}  // namespace castor::load
