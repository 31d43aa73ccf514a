#include "client/cli/kernel_flags.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "client/cli/command.h"
#include "client/cli/values.h"

namespace castor::cli {
namespace {

// The request's message of a kernel by its name; the fields are named as the kernels are.
template <typename Request>
google::protobuf::Message* MessageOf(std::string name, Request* request) {
  std::replace(name.begin(), name.end(), '-', '_');
  const auto* const field = Request::descriptor()->FindFieldByName(name);
  return request->GetReflection()->MutableMessage(request, field);
}

// Clustered and ImprovedClustered have these fields in common.
template <typename Message>
void FillClustered(const KernelFlags& flags, Message* message) {
  message->set_clusters(flags.clusters);
  message->set_iterations(flags.iterations);
  message->set_bits(flags.bits);
  if (!flags.hash_bias) message->set_hash_bias(false);
  message->set_seed(flags.kernel_seed);
  if (flags.query_clustering == "hash") message->set_clustering(v1::HASH);
  if (flags.query_clustering == "query-space") message->set_clustering(v1::QUERY_SPACE);
}

void FillImproved(const KernelFlags& flags, v1::ImprovedClustered* message) {
  FillClustered(flags, message);
  message->set_topk(flags.topk);
  if (flags.rest_mass == "centroid") message->set_rest_mass(v1::ImprovedClustered::CENTROID);
  if (flags.rest_mass == "query") message->set_rest_mass(v1::ImprovedClustered::QUERY);
}

void FillCast(const KernelFlags& flags, v1::Cast* cast) {
  if (!flags.surrogates.empty()) *cast->mutable_surrogate_tokens() = ReadTensor(flags.surrogates);
  if (!flags.layer.empty()) cast->set_layer(flags.layer);
  if (!flags.gate.empty()) *cast->mutable_gate() = ReadTensor(flags.gate);
  if (flags.clustering == "top-k") cast->set_clustering(v1::Cast::TOP_K);
  if (flags.clustering == "single-assignment") {
    cast->set_clustering(v1::Cast::SINGLE_ASSIGNMENT_TOP_K);
  }
  cast->set_cluster_size(flags.cluster_size);
  if (flags.attention_function == "softmax") cast->set_attention_function(v1::Cast::SOFTMAX);
  if (flags.attention_function == "laplace") cast->set_attention_function(v1::Cast::LAPLACE);
  if (flags.gate_temperature == "softplus1") cast->set_gate_temperature(v1::Cast::SOFTPLUS1);
  if (flags.gate_temperature == "none") cast->set_gate_temperature(v1::Cast::NONE);
  if (flags.head_clustering == "shared") cast->set_head_clustering(v1::Cast::SHARED);
  if (flags.head_clustering == "per-head") cast->set_head_clustering(v1::Cast::PER_HEAD);
}

template <typename Request>
void Apply(const KernelFlags& flags, Request* request) {
  if (flags.kernel.empty()) {
    if (flags.causal) request->mutable_vanilla()->set_causal(true);
  } else if (flags.kernel == "vanilla") {
    request->mutable_vanilla()->set_causal(flags.causal);
  } else if (flags.kernel == "clustered") {
    FillClustered(flags, request->mutable_clustered());
  } else if (flags.kernel == "improved-clustered") {
    FillImproved(flags, request->mutable_improved_clustered());
  } else if (flags.kernel == "cast") {
    FillCast(flags, request->mutable_cast());
  } else if (flags.kernel == "automatic") {
    v1::Automatic* automatic = request->mutable_automatic();
    const std::vector<std::string> names = KernelNames();
    for (const std::string& name : flags.allowed) {
      const auto number = 1 + (std::find(names.begin(), names.end(), name) - names.begin());
      automatic->add_allowed(static_cast<v1::KernelName>(number));
    }
    automatic->set_max_relative_error(flags.max_relative_error);
    automatic->set_min_cosine(flags.min_cosine);
  } else {
    MessageOf(flags.kernel, request);  // with its defaults: it has no flags here
  }
  if (flags.causal && !flags.exact()) {
    throw CLI::ValidationError("--causal", "applies only to the vanilla kernel");
  }
}

}  // namespace

std::vector<std::string> KernelNames() {
  std::vector<std::string> names;
  for (int number = 1; number < v1::KernelName_ARRAYSIZE; ++number) {
    std::string& name = names.emplace_back(v1::KernelName_Name(number));
    for (char& c : name) c = c == '_' ? '-' : static_cast<char>(c - 'A' + 'a');
  }
  return names;
}

std::vector<std::string> QueryClusterings() { return {"hash", "query-space"}; }
std::vector<std::string> RestMasses() { return {"centroid", "query"}; }

void AddKernelFlags(CLI::App* command, KernelFlags* flags) {
  const std::string group = "Kernel (default: the server's)";
  auto members = [](std::vector<std::string> names) {
    return CLI::IsMember(std::move(names)).description("");
  };
  const std::vector<std::string> kernels = KernelNames();
  std::vector<std::string> choices = kernels;
  choices.push_back("automatic");
  std::string help;
  for (const std::string& name : choices) {
    help += (help.empty() ? "" : ", ") + name + (name == "vanilla" ? " (exact)" : "");
  }
  command->add_option("--kernel", flags->kernel, help)
      ->type_name("NAME")
      ->check(members(choices))
      ->group(group);
  command->add_flag("--causal", flags->causal, "vanilla: query i sees keys j <= i only")
      ->group(group);
  command->add_option("--clusters", flags->clusters, "clustered: number of clusters, 1 to 65536")
      ->type_name("N")
      ->transform(Number(1, 65536))
      ->group(group);
  command->add_option("--iterations", flags->iterations, "clustered: Lloyd iterations, 1 to 1000")
      ->type_name("N")
      ->transform(Number(1, 1000))
      ->group(group);
  command->add_option("--bits", flags->bits, "clustered: hash bits, 1 to 64")
      ->type_name("N")
      ->transform(Number(1, 64))
      ->group(group);
  command->add_flag("!--no-hash-bias", flags->hash_bias, "clustered: hash planes without biases")
      ->group(group);
  command
      ->add_option("--query-clustering", flags->query_clustering,
                   "clustered: hash or query-space (K-means on the queries themselves)")
      ->type_name("NAME")
      ->check(members(QueryClusterings()))
      ->group(group);
  command->add_option("--kernel-seed", flags->kernel_seed, "clustered: seed of its random numbers")
      ->type_name("N")
      ->transform(Number(uint64_t{0}, UINT64_MAX))
      ->group(group);
  command
      ->add_option("--topk", flags->topk, "improved-clustered: exact keys per cluster, 1 to 1024")
      ->type_name("K")
      ->transform(Number(1, 1024))
      ->group(group);
  command
      ->add_option("--rest-mass", flags->rest_mass,
                   "improved-clustered: whose weight the other keys get, centroid or query")
      ->type_name("NAME")
      ->check(members(RestMasses()))
      ->group(group);
  auto* surrogates = command
                         ->add_option("--surrogates", flags->surrogates,
                                      "cast: surrogate tokens [clusters, heads, head_dim]")
                         ->type_name("FILE.npy")
                         ->check(FileName())
                         ->group(group);
  command->add_option("--layer", flags->layer, "cast: take the surrogates of this layer of a model")
      ->type_name("MODEL/INDEX")
      ->check(Name())
      ->excludes(surrogates)
      ->group(group);
  command->add_option("--gate", flags->gate, "cast: gate [tokens], float32")
      ->type_name("FILE.npy")
      ->check(FileName())
      ->group(group);
  command->add_option("--clustering", flags->clustering, "cast: top-k or single-assignment")
      ->type_name("NAME")
      ->check(members({"top-k", "single-assignment"}))
      ->group(group);
  command->add_option("--cluster-size", flags->cluster_size, "cast: tokens per cluster, 1 or more")
      ->type_name("N")
      ->transform(Number(1, INT32_MAX))
      ->group(group);
  command->add_option("--attention-function", flags->attention_function, "cast: softmax or laplace")
      ->type_name("NAME")
      ->check(members({"softmax", "laplace"}))
      ->group(group);
  command
      ->add_option("--gate-temperature", flags->gate_temperature,
                   "cast: what the gate does to scores, softplus1 or none")
      ->type_name("NAME")
      ->check(members({"softplus1", "none"}))
      ->group(group);
  command
      ->add_option("--head-clustering", flags->head_clustering,
                   "cast: shared (one clustering for all heads) or per-head")
      ->type_name("NAME")
      ->check(members({"shared", "per-head"}))
      ->group(group);
  command->add_option("--allow", flags->allowed, "automatic: kernels to choose from, repeatable")
      ->type_name("NAME")
      ->allow_extra_args(false)
      ->delimiter(',')
      ->check(members(kernels))
      ->group(group);
  command
      ->add_option("--max-relative-error", flags->max_relative_error,
                   "automatic: tolerated relative error of attention, 0 to 1")
      ->type_name("X")
      ->transform(Number(0.0, 1.0))
      ->group(group);
  command
      ->add_option("--min-cosine", flags->min_cosine,
                   "automatic: least cosine of an encoder's vectors to exact ones, 0 to 1")
      ->type_name("X")
      ->transform(Number(0.0, 1.0))
      ->group(group);
}

void CheckKernelFlags(const CLI::App& command, const KernelFlags& flags, bool encode) {
  using Kernels = std::initializer_list<std::string_view>;
  const Kernels any_clustered = {"clustered", "improved-clustered"};
  const auto check = [&](Kernels kernels, Kernels names) {
    for (const std::string_view name : names) {
      if (command.count(std::string(name)) == 0) continue;
      if (std::count(kernels.begin(), kernels.end(), flags.kernel) > 0) continue;
      std::string needs;
      for (const std::string_view kernel : kernels) {
        if (!kernel.empty()) (needs += needs.empty() ? "needs --kernel " : " or ") += kernel;
      }
      throw CLI::ValidationError(std::string(name), needs);
    }
  };
  check({"vanilla", ""}, {"--causal"});  // which is the default, too
  check(any_clustered, {"--clusters", "--iterations", "--bits", "--no-hash-bias",
                        "--query-clustering", "--kernel-seed"});
  check({"improved-clustered"}, {"--topk", "--rest-mass"});
  check({"cast"}, {"--surrogates", "--layer", "--gate", "--clustering", "--cluster-size",
                   "--attention-function", "--gate-temperature", "--head-clustering"});
  const char* const other = encode ? "--max-relative-error" : "--min-cosine";
  if (command.count(other) > 0) {
    throw CLI::ValidationError(other,
                               encode ? "is for attention; for encoders, use --min-cosine"
                                      : "is for encoders; for attention, use --max-relative-error");
  }
  check({"automatic"}, {"--allow", "--max-relative-error", "--min-cosine"});
}

void ApplyKernel(const KernelFlags& flags, v1::AttendRequest* request) { Apply(flags, request); }
void ApplyKernel(const KernelFlags& flags, v1::EncodeRequest* request) { Apply(flags, request); }

}  // namespace castor::cli
