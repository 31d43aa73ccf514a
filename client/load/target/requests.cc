#include "client/load/target/requests.h"

#include <algorithm>
#include <climits>
#include <fstream>

#include "client/cli/command.h"
#include "client/cli/report.h"
#include "client/cli/values.h"
#include "client/load/target/gaussian.h"
#include "client/load/workload/lengths.h"
#include "client/tensor.h"

namespace castor::load {
namespace {

constexpr int64_t kCentres = 32;         // of structured inputs
constexpr double kMaxMessage = INT_MAX;  // protobuf's

// Each is one token of the vocabularies of BERT and its descendants.
constexpr const char* kWords[] = {
    "time",   "year",   "people",   "way",   "day",    "man",     "thing",  "woman",   "life",
    "child",  "world",  "school",   "state", "family", "student", "group",  "country", "problem",
    "hand",   "part",   "place",    "case",  "week",   "company", "system", "program", "question",
    "work",   "number", "night",    "point", "home",   "water",   "room",   "mother",  "area",
    "money",  "story",  "fact",     "month", "lot",    "right",   "study",  "book",    "eye",
    "job",    "word",   "business", "issue", "side",   "kind",    "head",   "house",   "service",
    "friend", "father", "power",    "hour",  "game",   "line",    "end",    "member",  "law",
    "car",    "city",   "name",     "team",  "minute", "idea",    "body",   "back",    "parent"};

template <typename Spec>
std::vector<int64_t> DrawLengths(const Spec& spec, Random& random) {
  if (!spec.exact_lengths.empty()) return spec.exact_lengths;
  std::vector<int64_t> drawn(
      static_cast<size_t>(std::max<int64_t>(1, Draw(spec.sequences, random))));
  for (int64_t& length : drawn) length = std::max<int64_t>(1, Draw(spec.lengths, random));
  return drawn;
}

double Sum(const std::vector<int64_t>& lengths) {
  double sum = 0;
  for (const int64_t length : lengths) sum += static_cast<double>(length);
  return sum;
}

v1::Tensor DrawTensor(std::vector<int64_t> shape, v1::DataType dtype, Inputs inputs,
                      Random& random) {
  std::vector<float> values(static_cast<size_t>(*client::NumElements(shape)));
  const int64_t width = shape.back();
  if (inputs == Inputs::kStructured) {
    FillStructured(values, width, kCentres, random);
  } else {
    FillGaussian(values, random);
  }
  return client::MakeTensor(values, shape, dtype);
}

void DrawCastInputs(const AttendSpec& spec, int64_t tokens, Random& random, v1::Cast& cast) {
  if (cast.surrogates_case() == v1::Cast::SURROGATES_NOT_SET) {
    *cast.mutable_surrogate_tokens() = DrawTensor(
        {spec.surrogate_tokens, spec.heads, spec.head_dim}, spec.dtype, Inputs::kGaussian, random);
  }
  if (!cast.has_gate()) {
    *cast.mutable_gate() = DrawTensor({tokens}, v1::FLOAT32, Inputs::kGaussian, random);
  }
}

}  // namespace

v1::AttendRequest MakeAttend(const ClassSpec& cls, uint64_t seed) {
  const auto& spec = std::get<AttendSpec>(cls.call);
  Random random(seed);
  const std::vector<int64_t> lengths = DrawLengths(spec, random);
  const double tokens = Sum(lengths);
  const double keys = spec.key_lengths.empty() ? tokens : Sum(spec.key_lengths);
  const int64_t value_dim = spec.value_dim == 0 ? spec.head_dim : spec.value_dim;
  const double row =
      static_cast<double>(spec.heads) * static_cast<double>(client::SizeOf(spec.dtype));
  const double bytes = row * (tokens * static_cast<double>(spec.head_dim) +
                              keys * static_cast<double>(spec.head_dim + value_dim));
  if (bytes > kMaxMessage) {
    throw cli::UsageError("class '" + cls.name + "': a request of " +
                          cli::FormatBytes(static_cast<int64_t>(bytes)) +
                          " does not fit a message; give it fewer tokens, heads or dimensions");
  }
  v1::AttendRequest request;
  request.set_priority(cls.priority);
  request.mutable_query_lengths()->Assign(lengths.begin(), lengths.end());
  request.mutable_key_lengths()->Assign(spec.key_lengths.begin(), spec.key_lengths.end());
  const auto rows = static_cast<int64_t>(tokens);
  const auto key_rows = static_cast<int64_t>(keys);
  const auto draw = [&](int64_t count, int64_t dim) {
    return DrawTensor({count, spec.heads, dim}, spec.dtype, spec.inputs, random);
  };
  *request.mutable_query() = draw(rows, spec.head_dim);
  *request.mutable_key() = draw(key_rows, spec.head_dim);
  *request.mutable_value() = draw(key_rows, value_dim);
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
    const int64_t count = std::max<int64_t>(1, Draw(spec.sequences, random));
    for (int64_t i = 0; i < count; ++i) {
      request.mutable_texts()->add_texts(texts[Below(texts.size(), random)]);
    }
  }
  cli::ApplyKernel(spec.kernel, &request);
  return request;
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
  if (texts.empty()) throw cli::UsageError(file + " holds no texts");
  return texts;
}

}  // namespace castor::load
