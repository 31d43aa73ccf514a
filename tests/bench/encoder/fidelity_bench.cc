// Measures the error of approximate attention in an encoder's vectors and the time that it saves: a
// table in Markdown, a row for each kernel. tests/bench/encoder/fidelity.sh runs it.
//
//   fidelity_bench --model=DIRECTORY --texts=FILE [--rounds=5] [--batch=8] KERNEL...
//
// FILE has one text per line, at least two. Every round runs exact attention and then each kernel
// over all texts, so that a machine that others use slows all of them; a time is the median of its
// rounds' ratios to exact.
//
// KERNEL: clustered-C, improved-C (top-k 32) or improved-C-K. Options follow a plus sign: q,
// clusters of the queries themselves; q2, with that number of updates; m, each query's own mass of
// the rest; m16, of that many groups of it. For example improved-25-48+q2m16.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/attention/resolve.h"
#include "engine/attention/variants.h"
#include "engine/device/device.h"
#include "engine/encoder/layers/attention_layers.h"
#include "engine/encoder/model.h"
#include "engine/encoder/network/batch.h"
#include "engine/request.h"
#include "tests/bench/command_line.h"

namespace castor::bench {
namespace {

// A whole number from 1 on; `what` is named where it is none.
int32_t WholeNumber(std::string_view text, const std::string& what) {
  int32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1) {
    Die(what + ": '" + std::string(text) + "' is not a whole number from 1 on");
  }
  return number;
}

void ReadNotedOptions(std::string_view options, const std::string& name, Clustered* clustered,
                      ImprovedClustered* improved) {
  while (!options.empty()) {
    const char option = options.front();
    options.remove_prefix(1);
    const size_t digits = std::min(options.find_first_not_of("0123456789"), options.size());
    const int number = digits == 0 ? 0 : WholeNumber(options.substr(0, digits), name);
    options.remove_prefix(digits);
    if (option == 'q') {
      clustered->clustering = Clustered::Clustering::kQuerySpace;
      clustered->iterations = digits == 0 ? DefaultIterations(clustered->clustering) : number;
    } else if (option == 'm' && improved != nullptr) {
      improved->rest_mass = ImprovedClustered::RestMass::kQuery;
      if (digits != 0) improved->rest_groups = number;
    } else {
      Die("kernel '" + name + "' has an option other than q, and m of improved");
    }
  }
}

// Ends the program where `name` is none of them.
Kernel KernelNoted(const std::string& name) {
  const size_t plus = std::min(name.find('+'), name.size());
  const std::string_view text = std::string_view(name).substr(0, plus);
  const std::string_view options = std::string_view(name).substr(std::min(plus + 1, name.size()));
  const size_t dash = text.find('-');
  const std::string_view kind = text.substr(0, dash);
  const std::string_view numbers = dash == std::string_view::npos ? "" : text.substr(dash + 1);
  const size_t second = numbers.find('-');
  Kernel kernel;
  if (kind == "clustered" && second == std::string_view::npos) {
    Clustered clustered;
    clustered.clusters = WholeNumber(numbers, name);
    ReadNotedOptions(options, name, &clustered, nullptr);
    kernel = clustered;
  } else if (kind == "improved") {
    ImprovedClustered improved;
    improved.clusters = WholeNumber(numbers.substr(0, second), name);
    if (second != std::string_view::npos) {
      improved.topk = WholeNumber(numbers.substr(second + 1), name);
    }
    ReadNotedOptions(options, name, &improved, &improved);
    kernel = improved;
  } else {
    Die("kernel '" + name + "' is none of clustered-C, improved-C, improved-C-K");
  }
  if (const absl::Status s = attention::CheckParameters(kernel); !s.ok()) Die(s.ToString());
  return kernel;
}

using Vectors = std::vector<std::vector<double>>;  // of unit length

class Encoder {
 public:
  Encoder(Device& device, std::shared_ptr<const encoder::Model> model,
          const std::vector<std::string>& texts, size_t batch)
      : device_(device), model_(std::move(model)) {
    for (size_t begin = 0; begin < texts.size(); begin += batch) {
      const auto first = texts.begin() + static_cast<int64_t>(begin);
      const auto last = texts.begin() + static_cast<int64_t>(std::min(begin + batch, texts.size()));
      TextInput input;
      input.texts.assign(first, last);
      EncodeRequest request;
      request.input = std::move(input);
      absl::StatusOr<encoder::Prepared> prepared = encoder::Prepare(request, *model_);
      if (!prepared.ok()) Die(prepared.status().ToString());
      parts_.push_back(*std::move(prepared));
    }
  }

  // Seconds of one pass over all texts. Writes their vectors unless that is nullptr.
  double Run(const Kernel& kernel, Vectors* vectors) {
    const ModelInfo& info = model_->info();
    const auto dimensions = static_cast<size_t>(info.hidden_size);
    double seconds = 0;
    for (const encoder::Prepared& part : parts_) {
      encoder::BatchItem item{
          .cu_seqlens = part.cu_seqlens, .ids = part.ids, .type_ids = part.type_ids};
      const auto rows = static_cast<size_t>(item.sequences());
      std::vector<float> output(rows * dimensions);
      item.pooling = info.pooling;
      item.normalize = true;
      item.dimensions = info.hidden_size;
      item.output = output.data();
      const encoder::Batch batch{.model = model_, .kernel = kernel, .items = {item}};
      const auto start = std::chrono::steady_clock::now();
      auto execution = device_.Launch(batch, RunToEnd());
      if (!execution.ok()) Die(execution.status().ToString());
      if (auto times = (*execution)->Wait(); !times.ok()) Die(times.status().ToString());
      seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      for (size_t i = 0; vectors != nullptr && i < rows; ++i) {
        const auto row = output.begin() + static_cast<int64_t>(i * dimensions);
        vectors->emplace_back(row, row + info.hidden_size);
      }
    }
    return seconds;
  }

  // The mean number of tokens of a text.
  double tokens() const {
    int64_t tokens = 0;
    int64_t texts = 0;
    for (const encoder::Prepared& part : parts_) {
      tokens += part.tokens();
      texts += static_cast<int64_t>(part.cu_seqlens.size()) - 1;
    }
    return static_cast<double>(tokens) / static_cast<double>(texts);
  }

 private:
  Device& device_;
  const std::shared_ptr<const encoder::Model> model_;
  std::vector<encoder::Prepared> parts_;
};

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// The texts nearest to text i, the lower of equally near ones first.
std::vector<size_t> Nearest(const Vectors& vectors, size_t i, size_t count) {
  std::vector<double> cosines;
  for (const std::vector<double>& vector : vectors) cosines.push_back(Dot(vectors[i], vector));
  std::vector<size_t> order(vectors.size());
  std::iota(order.begin(), order.end(), 0);
  order.erase(order.begin() + static_cast<int64_t>(i));
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return cosines[a] > cosines[b]; });
  order.resize(std::min(order.size(), count));
  return order;
}

// The share of each text's nearest texts that stay among them.
double Kept(const Vectors& exact, const Vectors& vectors, size_t count) {
  size_t kept = 0;
  size_t all = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const std::vector<size_t> wanted = Nearest(exact, i, count);
    const std::vector<size_t> found = Nearest(vectors, i, count);
    for (const size_t j : wanted) kept += std::count(found.begin(), found.end(), j) != 0;
    all += wanted.size();
  }
  return static_cast<double>(kept) / static_cast<double>(all);
}

void PrintRow(const std::string& name, const Vectors& exact, const Vectors& vectors, double ratio) {
  double sum = 0;
  double least = 1;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double cosine = Dot(exact[i], vectors[i]);
    sum += cosine;
    least = std::min(least, cosine);
  }
  std::printf("| %s | %.4f | %.4f | %.0f%% | %.0f%% | %.2fx |\n", name.c_str(),
              sum / static_cast<double>(exact.size()), least, 100 * Kept(exact, vectors, 5),
              100 * Kept(exact, vectors, 10), ratio);
}

int Main(int argc, char** argv) {
  const std::string directory = TakeFlag("model", &argc, argv);
  const std::vector<std::string> texts = ReadTexts(TakeFlag("texts", &argc, argv));
  const int rounds = WholeNumber(TakeFlag("rounds", &argc, argv, "5"), "--rounds");
  const int batch = WholeNumber(TakeFlag("batch", &argc, argv, "8"), "--batch");
  const std::vector<std::string> names(argv + 1, argv + argc);
  if (names.empty()) Die("no kernels; see tests/bench/encoder/fidelity_bench.cc");
  std::vector<Kernel> kernels;
  for (const std::string& name : names) kernels.push_back(KernelNoted(name));

  EngineOptions options;
  options.device = "cpu";
  auto device = OpenDevice(options);
  if (!device.ok()) Die(device.status().ToString());
  auto model =
      (*device)->LoadModel({.name = "model", .directory = directory, .dtype = DType::kFloat32});
  if (!model.ok()) Die(model.status().ToString());
  for (const Kernel& kernel : kernels) {
    const auto layers = (*model)->attention(kernel);
    const absl::Status s = encoder::CheckServed(layers, "model", attention::CpuVariants());
    if (!s.ok()) Die(s.ToString());
  }

  Encoder encoder(**device, *model, texts, static_cast<size_t>(batch));
  Vectors exact;
  encoder.Run(Vanilla{}, &exact);
  std::vector<Vectors> vectors(kernels.size());
  for (size_t k = 0; k < kernels.size(); ++k) encoder.Run(kernels[k], &vectors[k]);
  std::vector<double> exact_seconds;
  std::vector<std::vector<double>> ratios(kernels.size());
  for (int round = 0; round < rounds; ++round) {
    exact_seconds.push_back(encoder.Run(Vanilla{}, nullptr));
    for (size_t k = 0; k < kernels.size(); ++k) {
      ratios[k].push_back(encoder.Run(kernels[k], nullptr) / exact_seconds.back());
    }
  }

  std::printf("%zu texts of %.0f tokens on average, float32, batches of %d; exact: %.2f s\n\n",
              texts.size(), encoder.tokens(), batch, Median(exact_seconds));
  std::printf(
      "| kernel | cosine to exact, mean | least | top 5 kept | top 10 kept | time of the whole "
      "encoder, to exact |\n|---|---|---|---|---|---|\n");
  for (size_t k = 0; k < kernels.size(); ++k) {
    PrintRow(names[k], exact, vectors[k], Median(ratios[k]));
  }
  return 0;
}

}  // namespace
}  // namespace castor::bench

int main(int argc, char** argv) { return castor::bench::Main(argc, argv); }
