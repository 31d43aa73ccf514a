#include "engine/encoder/directory/adapters.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/regular_file.h"
#include "engine/encoder/directory/config_keys.h"
#include "engine/encoder/directory/weights.h"

namespace castor::encoder {
namespace {

constexpr std::string_view kMerge = "; or merge the adapter into the weights (merge_and_unload)";

// Letters of names of tasks; all but '-' of modules.
constexpr std::string_view kLetters =
    "-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._";

// Whether it may name a task, which may be a folder, too.
bool IsTaskName(std::string_view name) {
  return !name.empty() && name.size() <= 128 && name != "." && name != ".." &&
         name.find_first_not_of(kLetters) == std::string_view::npos;
}

// Whether a module's name, or its end after a '.', matches a regular expression of letters, digits,
// '_' and '.', which stands for any character. '^' at its beginning: the whole name.
bool Matches(std::string_view module, std::string_view pattern) {
  const bool whole = pattern.starts_with('^');
  if (whole) pattern.remove_prefix(1);
  if (module.size() < pattern.size()) return false;
  const std::string_view end = module.substr(module.size() - pattern.size());
  const bool begins =
      end.size() == module.size() || (!whole && module[module.size() - end.size() - 1] == '.');
  return begins && std::equal(end.begin(), end.end(), pattern.begin(),
                              [](char c, char p) { return p == '.' || c == p; });
}

// The value that rank_pattern or alpha_pattern has for a module, else `fallback`.
double ByPattern(ConfigReader& config, const std::string& key, const std::string& module,
                 double fallback) {
  if (!config.Has(key)) return fallback;
  const nlohmann::json& patterns = config.json()[key];
  if (!patterns.is_object()) config.Fail(key, "must be an object of numbers");
  const nlohmann::json* found = nullptr;
  for (const auto& [pattern, value] : patterns.items()) {
    const std::string where = absl::StrCat(key, ".", pattern);
    const std::string_view plain = std::string_view(pattern).substr(pattern.starts_with('^'));
    if (plain.find_first_not_of(kLetters.substr(1)) != std::string_view::npos) {
      config.Fail(where, "is a regular expression; names of modules are supported");
    }
    if (!value.is_number() || value.get<double>() <= 0 || value.get<double>() > kMaxSize) {
      config.Fail(where, "must be a positive number");
    }
    if (!config.status().ok()) return fallback;
    if (!Matches(module, pattern)) continue;
    if (found != nullptr && *found != value) {
      config.Fail(where, "matches \"" + module + "\", as another pattern does");
    }
    found = &value;
  }
  return found == nullptr ? fallback : found->get<double>();
}

// Whether the adapter's config says that this module has one. All modules of a class, and regular
// expressions, are left to the files.
bool IsTarget(const std::vector<std::string>& targets, const std::string& module) {
  return targets.empty() || std::any_of(targets.begin(), targets.end(), [&](const auto& target) {
           return module == target || module.ends_with("." + target);
         });
}

}  // namespace

void AdapterReader::Fail(const std::string& where, const std::string& problem) {
  if (status_.ok()) status_ = absl::InvalidArgumentError(where + ": " + problem);
}

AdapterReader::Modules* AdapterReader::AddTask(const std::string& where, const std::string& task) {
  if (!IsTaskName(task)) {
    Fail(where,
         "\"" + task + "\" does not name a task: use 1 to 128 letters, digits, '.', '_', '-'");
  }
  if (std::find(tasks_.begin(), tasks_.end(), task) != tasks_.end()) {
    Fail(where, "the task \"" + task + "\" is there twice");
  }
  tasks_.push_back(task);
  modules_.push_back(std::make_unique<Modules>());
  return modules_.back().get();
}

void AdapterReader::AddOwn(ConfigReader& config, const hf::Safetensors& files,
                           const std::string& folder) {
  const std::string type = config.String("model_type", "");
  if ((type == "xlm-roberta" || type == "jina_embeddings_v3") && config.Has("lora_adaptations")) {
    const std::vector<std::string> tasks = config.Strings("lora_adaptations");
    if (tasks.empty()) config.Fail("lora_adaptations", "names no task");
    if (!config.Bool("load_trained_adapters", false)) {
      config.Fail("load_trained_adapters", "must be true, or the adapters would be new ones");
    }
    const int64_t rank = config.Int("lora_rank", 4, 1, kMaxSize);
    const double alpha = config.Double("lora_alpha", 1, 0, 1e6);
    if (!config.status().ok()) return;
    AddStacked(tasks, files, folder, rank, alpha);
  }
  if (type != "jina_embeddings_v5") return;
  const std::vector<std::string> tasks = config.Strings("task_names");
  if (tasks.empty()) config.Fail("task_names", "names no task");
  for (const std::string& task : tasks) AddPeft(task, folder + "/adapters/" + task);
}

void AdapterReader::AddStacked(const std::vector<std::string>& tasks, const hf::Safetensors& files,
                               const std::string& folder, int64_t rank, double alpha) {
  constexpr std::string_view kA = ".parametrizations.weight.0.lora_A";
  constexpr std::string_view kB = ".parametrizations.weight.0.lora_B";
  std::vector<Modules*> modules;
  for (const std::string& task : tasks) {
    modules.push_back(AddTask(folder + "/config.json: lora_adaptations", task));
  }
  const auto count = static_cast<int64_t>(tasks.size());
  size_t found = 0;
  for (const auto& [name, a] : files.tensors()) {
    if (!name.ends_with(kA)) continue;
    const std::string module = name.substr(0, name.size() - kA.size());
    const hf::StoredTensor* const b = files.Find(module + std::string(kB));
    if (b == nullptr || a.shape.size() != 3 || b->shape.size() != 3 || a.shape[0] != count ||
        b->shape[0] != count) {
      Fail(std::string(a.file),
           absl::StrCat(name, ": has no lora_B, or not a matrix for each of ", count, " tasks"));
      return;
    }
    ++found;
    for (size_t t = 0; t < tasks.size(); ++t) {
      const auto of_task = [&](const hf::StoredTensor& all) {
        const size_t bytes = all.data.size() / tasks.size();
        return hf::StoredTensor{.dtype = all.dtype,
                                .shape = {all.shape[1], all.shape[2]},
                                .data = all.data.subspan(t * bytes, bytes),
                                .file = all.file};
      };
      (*modules[t])[module] = {.name = name,
                               .a = of_task(a),
                               .b = of_task(*b),
                               .rank = rank,
                               .scale = alpha / static_cast<double>(rank)};
    }
  }
  if (found == 0)
    Fail(folder,
         "the weights hold no adapters, which config.json's lora_adaptations "
         "requires: NAME.parametrizations.weight.0.lora_A");
}

void AdapterReader::AddPeft(const std::string& task, const std::string& folder) {
  constexpr std::string_view kBase = "base_model.model.", kA = ".lora_A.weight";
  Modules& modules = *AddTask(folder, task);
  if (!status_.ok()) return;
  absl::StatusOr<ConfigReader> config = ReadConfig(File::kAdapter, folder + "/adapter_config.json");
  status_.Update(config.status());
  if (!status_.ok()) return;
  if (config->String("peft_type", "") != "LORA") {
    config->Fail("peft_type", absl::StrCat("must be \"LORA\"", std::string(kMerge)));
  }
  const int64_t rank = config->Int("r", 8, 1, kMaxSize);
  const double alpha = config->Double("lora_alpha", 8, 0, 1e6);
  const bool root = config->Bool("use_rslora", false);
  std::vector<std::string> targets;
  if (config->Has("target_modules") && config->json()["target_modules"].is_array()) {
    targets = config->Strings("target_modules");
  }
  status_.Update(config->status());
  const std::string file = folder + "/adapter_model.safetensors";
  if (!NameExists(file) && NameExists(folder + "/adapter_model.bin")) {
    Fail(folder + "/adapter_model.bin",
         "is a pickle, which is a program: save the adapter with safe_serialization=True");
  }
  absl::StatusOr<std::unique_ptr<hf::Safetensors>> opened = hf::Safetensors::OpenFile(file);
  status_.Update(opened.status());
  if (!status_.ok()) return;
  for (const auto& [name, a] : (*opened)->tensors()) {
    if (!config->status().ok()) break;
    if (name.ends_with(".lora_B.weight")) {
      const std::string of = name.substr(0, name.size() - kA.size()) + std::string(kA);
      if ((*opened)->Find(of) == nullptr) return Fail(file, name + ": has no lora_A");
      continue;
    }
    if (!name.starts_with(kBase) || !name.ends_with(kA)) {
      return Fail(file, absl::StrCat(name, ": is not supported: only lora_A and lora_B of linear ",
                                     "layers are", std::string(kMerge)));
    }
    const std::string module = name.substr(kBase.size(), name.size() - kBase.size() - kA.size());
    const hf::StoredTensor* const b =
        (*opened)->Find(name.substr(0, name.size() - kA.size()) + ".lora_B.weight");
    if (b == nullptr) return Fail(file, name + ": has no lora_B");
    const double its_rank = ByPattern(*config, "rank_pattern", module, static_cast<double>(rank));
    const double its_alpha = ByPattern(*config, "alpha_pattern", module, alpha);
    if (a.shape.empty() || static_cast<double>(a.shape[0]) != its_rank) {
      return Fail(file, absl::StrCat(name, ": shape begins with ", a.shape.empty() ? 0 : a.shape[0],
                                     ", adapter_config.json implies a rank of ", its_rank));
    }
    if (!IsTarget(targets, module)) {
      config->Fail("target_modules", "does not name \"" + module + "\", which has tensors");
    }
    modules[module] = {.name = name,
                       .a = a,
                       .b = *b,
                       .rank = a.shape[0],
                       .scale = its_alpha / (root ? std::sqrt(its_rank) : its_rank)};
  }
  status_.Update(config->status());
  if (modules.empty()) Fail(file, "holds no lora_A");
  files_.push_back(*std::move(opened));
}

AdapterReader::Module* AdapterReader::Find(size_t task, const std::string& name) {
  for (const std::string& prefix : prefixes_) {
    const auto found = modules_[task]->find(prefix + name);
    if (found == modules_[task]->end()) continue;
    found->second.taken = true;
    return &found->second;
  }
  return nullptr;
}

at::Tensor AdapterReader::Read(const hf::StoredTensor& stored, const Module& module,
                               std::vector<int64_t> shape, bool turned) {
  if (turned) std::swap(shape[0], shape[1]);
  absl::StatusOr<at::Tensor> tensor = ReadTensor(stored, module.name, shape, at::kFloat);
  status_.Update(tensor.status());
  if (!tensor.ok()) return at::zeros({}, at::kFloat);
  return turned ? tensor->t() : *std::move(tensor);
}

std::vector<AdapterReader::Factors> AdapterReader::Take(std::span<const std::string> names,
                                                        std::span<const int64_t> out, int64_t in,
                                                        bool table) {
  std::vector<Factors> taken(tasks_.size());
  bool any = false;
  for (size_t t = 0; t < tasks_.size() && status_.ok(); ++t) {
    std::vector<const Module*> parts;
    int64_t rank = 0, outputs = 0;
    for (size_t i = 0; i < names.size(); ++i) {
      parts.push_back(Find(t, names[i]));
      if (parts.back() != nullptr) rank += parts.back()->rank;
      outputs += out[i];
    }
    if (rank == 0) continue;
    any = true;
    // Each part has its own inputs of B. The kernel for bfloat16 takes two inputs at a time.
    at::Tensor a = at::zeros({(rank + 1) / 2 * 2, in}, at::kFloat);
    at::Tensor b = at::zeros({outputs, a.size(0)}, at::kFloat);
    for (int64_t i = 0, row = 0, column = 0; i < std::ssize(parts); row += out[i++]) {
      if (parts[i] == nullptr) continue;
      const Module& part = *parts[i];
      a.narrow(0, column, part.rank).copy_(Read(part.a, part, {part.rank, in}, table));
      b.narrow(0, row, out[i])
          .narrow(1, column, part.rank)
          .copy_(Read(part.b, part, {out[i], part.rank}, table).mul(part.scale));
      column += part.rank;
      if (status_.ok() && !at::isfinite(b).all().item<bool>()) {
        Fail(std::string(part.b.file), part.name + ": its lora_B times its scale is not finite");
      }
    }
    a = a.to(dtype_).to(device_);
    b = b.to(dtype_).to(device_);
    parameters_ += a.numel() + b.numel();
    bytes_ += static_cast<int64_t>(a.nbytes() + b.nbytes());
    taken[t] = {std::move(a), std::move(b)};
  }
  return any ? taken : std::vector<Factors>();
}

absl::Status AdapterReader::Finish(bool pooler) const {
  if (!status_.ok()) return status_;
  for (const std::unique_ptr<Modules>& modules : modules_) {
    for (const auto& [name, module] : *modules) {
      const bool idle = !pooler && std::any_of(prefixes_.begin(), prefixes_.end(),
                                               [&](const std::string& prefix) {
                                                 return name.starts_with(prefix + "pooler.");
                                               });
      if (module.taken || idle) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          std::string(module.a.file), ": ", module.name,
          ": adapts a part of the model that is served without adapters", std::string(kMerge)));
    }
  }
  return absl::OkStatus();
}

}  // namespace castor::encoder
