#include "client/cli/attend/attend_problem.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "client/cli/command.h"
#include "client/cli/report.h"
#include "client/cli/values.h"
#include "client/tensor.h"

namespace castor::cli {
namespace {

using Generator = std::mt19937_64;

const std::map<std::string, v1::DataType> kTypes = {
    {"float32", v1::FLOAT32}, {"float16", v1::FLOAT16}, {"bfloat16", v1::BFLOAT16}};
const std::map<std::string, bool> kInputs = {{"gaussian", false}, {"structured", true}};

// Standard normal values are windows of one table at random offsets. Drawing each value would take
// seconds for a request of 64K tokens.
constexpr size_t kTableSize = size_t{1} << 20;
constexpr size_t kTableWindow = 4096;  // values between two draws of an offset

constexpr size_t kCentres = 32;  // of structured inputs, whose variance is 1
constexpr float kNoise = 0.3F;   // around them

// `bytes` of all tensors together. Doubles cannot overflow here.
void CheckSize(double bytes, double output_bytes) {
  const auto text = [](double size) { return FormatReal(size / (1 << 30), "%.3g") + " GiB"; };
  if (bytes > INT_MAX) {  // protobuf's limit
    throw UsageError("the problem has " + text(bytes) + ", but messages are limited to 2 GiB");
  }
  // Counts the tensors, their copy in the message, and the answer.
  const double needed = 2 * bytes + output_bytes;
  const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (needed > memory) {
    throw UsageError("the problem takes " + text(needed) + " of memory, and this machine has " +
                     text(memory));
  }
}

void FillGaussian(std::span<float> values, Generator& generator) {
  static const std::vector<float> table = [] {
    Generator own;
    std::normal_distribution<float> normal;
    std::vector<float> drawn(kTableSize);
    std::generate(drawn.begin(), drawn.end(), [&] { return normal(own); });
    return drawn;
  }();
  std::uniform_int_distribution<size_t> offset(0, kTableSize - kTableWindow);
  for (size_t i = 0; i < values.size(); i += kTableWindow) {
    std::copy_n(table.data() + offset(generator), std::min(kTableWindow, values.size() - i),
                values.data() + i);
  }
}

// Structured: each row is one of a few centres plus noise, like trained keys and queries. REQUIRES:
// it fits this machine's memory.
v1::Tensor Draw(std::vector<int64_t> shape, v1::DataType dtype, Generator& generator,
                bool structured = false) {
  std::vector<float> values(client::NumElements(shape).value());
  FillGaussian(values, generator);
  if (structured) {
    const auto width = static_cast<size_t>(shape.back());
    std::vector<float> centres(kCentres * width);
    FillGaussian(centres, generator);
    std::uniform_int_distribution<size_t> any(0, kCentres - 1);
    for (size_t row = 0; row < values.size(); row += width) {
      const float* const centre = centres.data() + any(generator) * width;
      for (size_t i = 0; i < width; ++i) values[row + i] = centre[i] + kNoise * values[row + i];
    }
  }
  return client::MakeTensor(values, shape, dtype);
}

int64_t Sum(const std::vector<int64_t>& lengths) {
  int64_t sum = 0;
  for (const int64_t length : lengths) {
    if (__builtin_add_overflow(sum, length, &sum)) throw UsageError("the sum of lengths overflows");
  }
  return sum;
}

}  // namespace

void AddProblemFlags(CLI::App* command, ProblemFlags* flags) {
  const std::string random = "Random problem";
  const std::string files = "Problem from files";
  command
      ->add_option_function<std::vector<int64_t>>(
          "--lengths",
          [flags](const std::vector<int64_t>& lengths) {
            flags->lengths = lengths;
            flags->lengths_given = true;
          },
          "Tokens of each sequence; with --query: how it is packed")
      ->type_name("N,N,...")
      ->default_str("128,77,512")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->transform(Number(int64_t{1}, int64_t{1} << 40))
      ->group(random);
  AddOption(command, random, "--key-lengths", &flags->key_lengths, "N,N,...",
            "Keys of each sequence (default: --lengths)", Number(int64_t{1}, int64_t{1} << 40))
      ->delimiter(',')
      ->allow_extra_args(false);
  std::vector<CLI::Option*> drawn;  // files replace them
  auto number = [&](const char* flag, int64_t* value, const char* help, const char* default_text) {
    drawn.push_back(
        AddOption(command, random, flag, value, "N", help, Number(int64_t{1}, int64_t{1} << 24))
            ->default_str(default_text));
  };
  number("--heads", &flags->heads, "Heads", "8");
  number("--kv-heads", &flags->kv_heads,
         "Heads of key and value, each for as many neighbouring heads (default: --heads)", "");
  number("--head-dim", &flags->head_dim, "Dimensions of query and key per head", "64");
  number("--value-dim", &flags->value_dim, "Dimensions of value per head (default: --head-dim)",
         "");
  number("--surrogate-tokens", &flags->surrogate_tokens,
         "For kernel cast: number of random surrogate tokens, without --surrogates and --layer",
         "16");
  drawn.push_back(AddOption(command, random, "--dtype", &flags->dtype, "NAME",
                            "float32, float16 or bfloat16", OneOf(kTypes))
                      ->default_str("float32"));
  drawn.push_back(AddOption(command, random, "--inputs", &flags->structured, "NAME",
                            "gaussian, or structured (around a few centres, like trained keys)",
                            OneOf(kInputs))
                      ->default_str("gaussian"));
  drawn.push_back(AddOption(command, random, "--seed", &flags->seed, "N",
                            "Seed of the random tensors", Number(uint64_t{0}, UINT64_MAX))
                      ->capture_default_str());

  CLI::Option* query =
      AddOption(command, files, "--query", &flags->query, "FILE.npy",
                "[tokens, heads, head_dim] with --lengths, or [batch, tokens, heads, "
                "head_dim]; <f4, <f2, or <u2 for the bits of bfloat16",
                FileName());
  CLI::Option* key =
      AddOption(command, files, "--key", &flags->key, "FILE.npy", "The keys, likewise", FileName());
  CLI::Option* value = AddOption(command, files, "--value", &flags->value, "FILE.npy",
                                 "The values, likewise", FileName());
  query->needs(key)->needs(value);
  for (CLI::Option* option : drawn) option->excludes(query);
  key->needs(query);
  value->needs(query);
}

v1::AttendRequest MakeProblem(const ProblemFlags& flags) {
  v1::AttendRequest request;
  const bool packed = flags.random() || flags.lengths_given;
  if (packed) request.mutable_query_lengths()->Assign(flags.lengths.begin(), flags.lengths.end());
  request.mutable_key_lengths()->Assign(flags.key_lengths.begin(), flags.key_lengths.end());
  if (!flags.random()) {
    *request.mutable_query() = ReadTensor(flags.query);
    *request.mutable_key() = ReadTensor(flags.key);
    *request.mutable_value() = ReadTensor(flags.value);
    return request;
  }
  Generator generator(flags.seed);
  const v1::DataType dtype = flags.dtype;
  const int64_t tokens = Sum(flags.lengths);
  const int64_t keys = flags.key_lengths.empty() ? tokens : Sum(flags.key_lengths);
  const int64_t value_dim = flags.value_dim == 0 ? flags.head_dim : flags.value_dim;
  const int64_t kv_heads = flags.kv_heads == 0 ? flags.heads : flags.kv_heads;
  const auto row = [&](int64_t heads) {  // bytes by dimension
    return static_cast<double>(heads) * client::SizeOf(dtype);
  };
  const double query = row(flags.heads) * tokens * flags.head_dim;
  const double output = row(flags.heads) * tokens * value_dim;
  CheckSize(query + row(kv_heads) * keys * (flags.head_dim + value_dim), output);
  const auto draw = [&](int64_t rows, int64_t heads, int64_t dim) {
    return Draw({rows, heads, dim}, dtype, generator, flags.structured);
  };
  *request.mutable_query() = draw(tokens, flags.heads, flags.head_dim);
  *request.mutable_key() = draw(keys, kv_heads, flags.head_dim);
  *request.mutable_value() = draw(keys, kv_heads, value_dim);
  return request;
}

void DrawCastInputs(const ProblemFlags& flags, v1::AttendRequest* request) {
  if (!flags.random() || !request->has_cast()) return;
  // A generator of its own, so that the problem is the same for every kernel.
  Generator generator(~flags.seed);
  v1::Cast& cast = *request->mutable_cast();
  if (cast.surrogates_case() == v1::Cast::SURROGATES_NOT_SET) {
    CheckSize(static_cast<double>(request->ByteSizeLong()) +
                  static_cast<double>(flags.surrogate_tokens) * flags.heads * flags.head_dim *
                      client::SizeOf(flags.dtype),
              0);
    *cast.mutable_surrogate_tokens() =
        Draw({flags.surrogate_tokens, flags.heads, flags.head_dim}, flags.dtype, generator);
  }
  if (!cast.has_gate()) {
    *cast.mutable_gate() = Draw({request->query().shape(0)}, v1::FLOAT32, generator);
  }
}

}  // namespace castor::cli
