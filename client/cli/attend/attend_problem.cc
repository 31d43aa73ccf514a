#include "client/cli/attend/attend_problem.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <random>

#include "client/cli/command.h"
#include "client/cli/report.h"
#include "client/cli/values.h"
#include "client/tensor.h"

namespace castor::cli {
namespace {

v1::DataType TypeOf(const std::string& name) {
  if (name == "float16") return v1::FLOAT16;
  return name == "bfloat16" ? v1::BFLOAT16 : v1::FLOAT32;
}

// The bytes of all tensors together, and of the output. Doubles, which cannot overflow here.
void CheckSize(double bytes, double output_bytes, bool shared_memory) {
  const auto text = [](double size) { return FormatReal(size / (1 << 30), "%.3g") + " GiB"; };
  if (!shared_memory && bytes > INT_MAX) {  // protobuf's limit
    throw UsageError("the problem has " + text(bytes) +
                     ", but messages are limited to 2 GiB; use --shared-memory");
  }
  // The tensors, their copy in the message, and the answer.
  const double needed = 2 * bytes + output_bytes;
  const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (needed > memory) {
    throw UsageError("the problem takes " + text(needed) + " of memory, and this machine has " +
                     text(memory));
  }
}

// Moves each row of `width` values to one of a few centres, as trained keys and queries lie; like
// castor-load's structured inputs.
void Gather(int64_t width, std::mt19937_64& generator, std::vector<float>& values) {
  constexpr int64_t kCentres = 32;
  constexpr float kNoise = 0.3F;
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int64_t> any(0, kCentres - 1);
  std::vector<float> centres(static_cast<size_t>(kCentres * width));
  std::generate(centres.begin(), centres.end(), [&] { return normal(generator); });
  for (size_t row = 0; row < values.size(); row += static_cast<size_t>(width)) {
    const float* const centre = centres.data() + any(generator) * width;
    for (int64_t i = 0; i < width; ++i) values[row + i] = centre[i] + kNoise * values[row + i];
  }
}

// Requires that the problem fits this machine's memory.
v1::Tensor Random(int64_t tokens, int64_t heads, int64_t dim, v1::DataType dtype,
                  std::mt19937_64& generator, bool structured = false) {
  const int64_t shape[] = {tokens, heads, dim};
  std::vector<float> values(client::NumElements(shape).value());
  std::normal_distribution<float> normal;
  std::generate(values.begin(), values.end(), [&] { return normal(generator); });
  if (structured) Gather(dim, generator, values);
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
  command
      ->add_option("--key-lengths", flags->key_lengths,
                   "Keys of each sequence (default: --lengths)")
      ->type_name("N,N,...")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->transform(Number(int64_t{1}, int64_t{1} << 40))
      ->group(random);
  std::vector<CLI::Option*> drawn;  // what files bring themselves
  auto number = [&](const char* flag, int64_t* value, const char* help, const char* default_text) {
    drawn.push_back(command->add_option(flag, *value, help)
                        ->type_name("N")
                        ->default_str(default_text)
                        ->transform(Number(int64_t{1}, int64_t{1} << 24))
                        ->group(random));
  };
  number("--heads", &flags->heads, "Heads", "8");
  number("--kv-heads", &flags->kv_heads,
         "Heads of key and value, each for as many neighbouring heads (default: --heads)", "");
  number("--head-dim", &flags->head_dim, "Dimensions of query and key per head", "64");
  command
      ->add_option("--value-dim", flags->value_dim,
                   "Dimensions of value per head (default: --head-dim)")
      ->type_name("N")
      ->default_str("")
      ->transform(Number(int64_t{1}, int64_t{1} << 24))
      ->group(random);
  command
      ->add_flag("--value-is-key-prefix", flags->value_is_key_prefix,
                 "Send no values: they are the first --value-dim elements of the keys")
      ->group(random);
  number("--surrogate-tokens", &flags->surrogate_tokens,
         "For kernel cast: number of random surrogate tokens, without --surrogates and --layer",
         "16");
  auto name = [&](const char* flag, std::string* value, const char* help,
                  std::vector<std::string> names) {
    drawn.push_back(command->add_option(flag, *value, help)
                        ->type_name("NAME")
                        ->capture_default_str()
                        ->check(CLI::IsMember(std::move(names)).description(""))
                        ->group(random));
  };
  name("--dtype", &flags->dtype, "float32, float16 or bfloat16",
       {"float32", "float16", "bfloat16"});
  name("--inputs", &flags->inputs,
       "gaussian, or structured (around a few centres, like trained keys)",
       {"gaussian", "structured"});
  drawn.push_back(command->add_option("--seed", flags->seed, "Seed of the random tensors")
                      ->type_name("N")
                      ->transform(Number(uint64_t{0}, UINT64_MAX))
                      ->capture_default_str()
                      ->group(random));

  CLI::Option* query =
      command
          ->add_option("--query", flags->query,
                       "[tokens, heads, head_dim] with --lengths, or [batch, tokens, heads, "
                       "head_dim]; <f4, <f2, or <u2 for the bits of bfloat16")
          ->type_name("FILE.npy")
          ->check(FileName())
          ->group(files);
  CLI::Option* key = command->add_option("--key", flags->key, "The keys, likewise")
                         ->type_name("FILE.npy")
                         ->check(FileName())
                         ->group(files);
  CLI::Option* value = command->add_option("--value", flags->value, "The values, likewise")
                           ->type_name("FILE.npy")
                           ->check(FileName())
                           ->group(files);
  query->needs(key);
  for (CLI::Option* option : drawn) option->excludes(query);
  key->needs(query);
  value->needs(query);
}

v1::AttendRequest MakeProblem(const ProblemFlags& flags, bool shared_memory) {
  v1::AttendRequest request;
  const bool packed = flags.random() || flags.lengths_given;
  if (packed) request.mutable_query_lengths()->Assign(flags.lengths.begin(), flags.lengths.end());
  request.mutable_key_lengths()->Assign(flags.key_lengths.begin(), flags.key_lengths.end());
  if (!flags.random()) {
    *request.mutable_query() = ReadTensor(flags.query);
    *request.mutable_key() = ReadTensor(flags.key);
    if (!flags.value.empty()) *request.mutable_value() = ReadTensor(flags.value);
    request.set_value_is_key_prefix(flags.value_is_key_prefix);
    request.set_value_dim(flags.value_dim);
    return request;
  }
  std::mt19937_64 generator(flags.seed);
  const v1::DataType dtype = TypeOf(flags.dtype);
  const int64_t tokens = Sum(flags.lengths);
  const int64_t keys = flags.key_lengths.empty() ? tokens : Sum(flags.key_lengths);
  const int64_t value_dim = flags.value_dim == 0 ? flags.head_dim : flags.value_dim;
  const int64_t kv_heads = flags.kv_heads == 0 ? flags.heads : flags.kv_heads;
  const auto row = [&](int64_t heads) {  // bytes by dimension
    return static_cast<double>(heads) * client::SizeOf(dtype);
  };
  const double query = row(flags.heads) * tokens * flags.head_dim;
  const double output = row(flags.heads) * tokens * value_dim;
  const int64_t own_values = flags.value_is_key_prefix ? 0 : value_dim;
  CheckSize(query + row(kv_heads) * keys * (flags.head_dim + own_values), output, shared_memory);
  const auto draw = [&](int64_t rows, int64_t heads, int64_t dim) {
    return Random(rows, heads, dim, dtype, generator, flags.inputs == "structured");
  };
  *request.mutable_query() = draw(tokens, flags.heads, flags.head_dim);
  *request.mutable_key() = draw(keys, kv_heads, flags.head_dim);
  if (flags.value_is_key_prefix) {
    request.set_value_is_key_prefix(true);
    request.set_value_dim(value_dim);
  } else {
    *request.mutable_value() = draw(keys, kv_heads, value_dim);
  }
  return request;
}

void DrawCastInputs(const ProblemFlags& flags, bool shared_memory, v1::AttendRequest* request) {
  if (!flags.random() || !request->has_cast()) return;
  // Not the generator of the problem itself, which is the same for every kernel.
  std::mt19937_64 generator(~flags.seed);
  v1::Cast& cast = *request->mutable_cast();
  if (cast.surrogates_case() == v1::Cast::SURROGATES_NOT_SET) {
    CheckSize(static_cast<double>(request->ByteSizeLong()) +
                  static_cast<double>(flags.surrogate_tokens) * flags.heads * flags.head_dim *
                      client::SizeOf(request->query().dtype()),
              0, shared_memory);
    *cast.mutable_surrogate_tokens() = Random(flags.surrogate_tokens, flags.heads, flags.head_dim,
                                              request->query().dtype(), generator);
  }
  if (!cast.has_gate()) {
    std::normal_distribution<float> normal;
    std::vector<float> gate(request->query().shape(0));
    std::generate(gate.begin(), gate.end(), [&] { return normal(generator); });
    *cast.mutable_gate() = client::MakeTensor(gate, {static_cast<int64_t>(gate.size())});
  }
}

}  // namespace castor::cli
