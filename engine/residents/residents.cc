#include "engine/residents/residents.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "engine/base/error.h"
#include "engine/option_bounds.h"
#include "engine/residents/model_root.h"

namespace castor {
namespace {

using std::chrono::milliseconds;

constexpr double kLeastSeconds = 0.05;  // that a load is expected to take

// That models can have had since the start.
constexpr size_t kMaxNames = 4 * kMaxFolders;

absl::Status NotFound(const std::string& name) {
  return MakeError(Reason::kModelNotFound, "no model is named \"" + name + "\"");
}

}  // namespace

absl::Status Residents::Draining() {
  return MakeError(Reason::kDraining, "the engine is shutting down");
}

void Residents::Answer(std::vector<ModelCompletion> completions, const absl::Status& status) {
  for (ModelCompletion& done : completions) std::move(done)(status);
}

Residents::Residents(ModelCatalog catalog, Clock& clock)
    : catalog_(std::move(catalog)), clock_(clock) {}

Residents::~Residents() {
  Stop();
  Clear();
}

void Residents::AddPinned(const ModelSource& source, LoadedModel model) {
  Dropped dropped;
  MutexLock lock(mu_);
  const Entry* same = nullptr;
  if (!model.info.alias_of.empty()) same = &entries_.at(model.info.alias_of);
  model.number = same != nullptr ? same->model->number : ++numbers_;
  model.info.generation = model.number;
  Entry& entry = entries_[source.name];
  entry.source = source;
  entry.pinned = true;
  entry.loads = 1;
  entry.load_seconds = model.info.load_seconds;
  if (same == nullptr && model.encoder != nullptr) {  // CAST layers stay in the host's memory
    charges_[model.number] = {.name = source.name, .bytes = model.info.weight_bytes};
    charged_ += model.info.weight_bytes;
  }
  entry.model = std::make_shared<const LoadedModel>(std::move(model));
  UpdateList(&dropped);
}

void Residents::SetBudget(int64_t bytes) {
  MutexLock lock(mu_);
  budget_ = bytes;
}

void Residents::Start(LoaderHooks hooks) {
  if (catalog_.control == ModelControl::kNone) return;
  hooks_ = std::move(hooks);
  {
    MutexLock lock(mu_);
    stopped_ = false;
  }
  loader_ = std::thread([this] { Run(); });
}

std::shared_ptr<const ModelList> Residents::list() const {
  MutexLock lock(list_mu_);
  return list_;
}

std::vector<ModelStatus> Residents::statuses() const {
  std::set<std::string> unloaded;
  for (std::string& folder : FoldersOf(catalog_.root)) unloaded.insert(std::move(folder));
  std::map<std::string, ModelStatus> all;
  MutexLock lock(mu_);
  for (const auto& [name, entry] : entries_) {
    ModelStatus& status = all[name];
    status.directory = entry.source.directory;
    status.pinned = entry.pinned;
    status.loads = entry.loads;
    status.load_seconds = entry.load_seconds;
    if (entry.model != nullptr) {
      status.state = ModelState::kReady;
      if (entry.model->usage != nullptr) {
        status.users = entry.model->usage->users();
        status.last_used = entry.model->usage->last_used();
      }
    } else if (entry.loading()) {
      status.state = ModelState::kLoading;
    } else if (entry.order.has_value()) {
      status.state = ModelState::kWaiting;
    } else if (!entry.failure.empty()) {
      status.state = ModelState::kFailed;
      status.failure = entry.failure;
    }
  }
  for (const auto& [number, charge] : charges_) {
    ModelStatus& status = all[charge.name];
    status.weight_bytes += charge.bytes;
    if (charge.leaving && status.state == ModelState::kUnloaded) {
      status.state = ModelState::kUnloading;
    }
  }
  for (const std::string& name : unloaded) {
    ModelStatus& status = all[name];
    if (status.directory.empty()) status.directory = catalog_.root + "/" + name;
  }
  std::vector<ModelStatus> result;
  for (auto& [name, status] : all) {
    // It was loaded from a folder that is gone.
    if (status.state == ModelState::kUnloaded && !unloaded.contains(name)) continue;
    status.name = name;
    result.push_back(std::move(status));
  }
  return result;
}

ModelCatalogStats Residents::stats() const {
  MutexLock lock(mu_);
  return {.weights_budget = budget_, .weight_bytes = charged_, .evictions = evictions_};
}

absl::Status Residents::CheckMayChange(const std::string& name) const {
  if (catalog_.control == ModelControl::kNone) {
    return MakeError(Reason::kModelControlOff, "models are loaded only when the engine starts");
  }
  if (draining_) return Draining();
  if (!IsModelName(name)) return InvalidField("name", "is not the name of a model");
  const auto found = entries_.find(name);
  if (found == entries_.end() || !found->second.pinned) return absl::OkStatus();
  return MakeError(Reason::kModelControlOff, "model \"" + name +
                                                 "\" was loaded when the engine started, and "
                                                 "stays");
}

void Residents::Load(const std::string& name, const std::string& folder, bool replace,
                     ModelCompletion done) {
  const std::string& from = folder.empty() ? name : folder;
  bool there = false;
  const auto start = [&]() -> absl::Status {
    MutexLock lock(mu_);
    if (absl::Status status = CheckMayChange(name); !status.ok()) return status;
    if (!IsFolderOf(catalog_.root, from)) {
      return MakeError(Reason::kModelNotFound, "the catalog has no folder \"" + from +
                                                   "\" with a config.json or modules.json");
    }
    if (entries_.size() >= kMaxNames && !entries_.contains(name)) {
      return MakeError(Reason::kTooLarge, "models were loaded under too many names");
    }
    Entry& entry = entries_[name];
    const std::string directory = catalog_.root + "/" + from;
    // A replacement must see what the folder holds now, so it does not join a load that has begun.
    Order* const joined = replace ? (entry.order ? &*entry.order : nullptr) : entry.next();
    if (joined != nullptr) {
      if (joined->folder != from) {
        return WithRetryAfter(MakeError(Reason::kModelLoading, "model \"" + name +
                                                                   "\" is being loaded from "
                                                                   "another folder"),
                              ExpectedWait(name));
      }
      joined->done.push_back(std::move(done));
      return absl::OkStatus();
    }
    if (entry.model != nullptr && !replace) {
      if (entry.source.directory != directory) {
        return InvalidField("directory", "differs from the one that \"" + name +
                                             "\" is loaded from; set `replace`");
      }
      there = true;
      return absl::OkStatus();
    }
    entry.order.emplace(Order{.folder = from});
    entry.order->done.push_back(std::move(done));
    orders_.push_back(name);
    changed_.NotifyAll();
    return absl::OkStatus();
  };
  const absl::Status status = start();
  if (there || !status.ok()) std::move(done)(status);
}

void Residents::Unload(const std::string& name, ModelCompletion done) {
  std::vector<ModelCompletion> withdrawn;
  bool freed = false;
  const auto start = [&](Dropped* dropped) -> absl::Status {
    MutexLock lock(mu_);
    if (absl::Status status = CheckMayChange(name); !status.ok()) return status;
    const auto found = entries_.find(name);
    if (found == entries_.end() && !IsFolderOf(catalog_.root, name)) return NotFound(name);
    if (found != entries_.end()) {
      Entry& entry = found->second;
      if (entry.loading()) {
        return WithRetryAfter(
            MakeError(Reason::kModelLoading, "model \"" + name + "\" is being loaded"),
            ExpectedWait(name));
      }
      if (entry.order.has_value()) {
        withdrawn = std::move(entry.order->done);
        entry.order.reset();
        std::erase(orders_, name);
      }
      entry.failure.clear();
      if (entry.model != nullptr) {
        const uint64_t number = entry.model->number;
        TakeOut(entry, dropped);
        UpdateList(dropped);
        charges_[number].freed.push_back(std::move(done));
        return absl::OkStatus();
      }
    }
    // One that was taken out before may still be there.
    for (auto& [number, charge] : charges_) {
      if (charge.name != name || !charge.leaving) continue;
      charge.freed.push_back(std::move(done));
      return absl::OkStatus();
    }
    freed = true;
    return absl::OkStatus();
  };
  absl::Status status;
  {
    Dropped dropped;
    status = start(&dropped);
  }
  Answer(std::move(withdrawn), ModelLoading(name, milliseconds(1)));
  if (freed || !status.ok()) std::move(done)(status);
}

absl::Status Residents::CheckLoadable(const std::string& name) const {
  if (stopped_ && !draining_) return NotFound(name);
  const auto found = entries_.find(name);
  const bool known = found != entries_.end();
  const bool ordered = known && (found->second.order || found->second.carried);
  // A drain withdraws orders, so a caller that waited for one may ask again now.
  const bool may_come =
      ordered || (draining_ && known) || (auto_loads() && IsFolderOf(catalog_.root, name));
  if (!may_come) return NotFound(name);
  return draining_ ? Draining() : absl::OkStatus();
}

milliseconds Residents::ExpectedWait(const std::string& name) const {
  double seconds = 0;
  for (const auto& [other, entry] : entries_) {
    if (!entry.loading()) continue;
    const double all = static_cast<double>(entry.file_bytes) / bytes_per_second_;
    seconds += std::max(kLeastSeconds, all - Microseconds(entry.begun, clock_.Now()) * 1e-6);
  }
  const auto found = entries_.find(name);
  const bool waits = found == entries_.end() || !found->second.loading();
  if (waits) {
    const int64_t bytes = WeightFileBytes(catalog_.root + "/" + name);
    seconds += kLeastSeconds + static_cast<double>(bytes) / bytes_per_second_;
  }
  return milliseconds(static_cast<int64_t>(seconds * 1e3) + 1);
}

absl::Status Residents::NotLoaded(const std::string& name) const {
  MutexLock lock(mu_);
  if (absl::Status status = CheckLoadable(name); !status.ok()) return status;
  const auto found = entries_.find(name);
  if (found != entries_.end() && !found->second.order && !found->second.carried &&
      !found->second.failure.empty()) {
    const auto left = found->second.next_attempt - clock_.Now();
    if (left.count() > 0) {
      return WithRetryAfter(MakeError(Reason::kModelFailed, found->second.failure),
                            std::chrono::ceil<milliseconds>(left));
    }
  }
  return ModelLoading(name, ExpectedWait(name));
}

absl::Status Residents::Await(const std::string& name, TimePoint deadline, ModelCompletion then) {
  {
    MutexLock lock(mu_);
    const auto found = entries_.find(name);
    if (found == entries_.end() || found->second.model == nullptr) {
      if (absl::Status status = CheckLoadable(name); !status.ok()) return status;
      const milliseconds expected = ExpectedWait(name);
      Entry& entry = entries_[name];
      if (entry.next() == nullptr) {
        entry.order.emplace(Order{.folder = name});
        orders_.push_back(name);
        changed_.NotifyAll();
      }
      if (clock_.Now() + expected > deadline) return ModelLoading(name, expected);
      entry.next()->done.push_back(std::move(then));
      return absl::OkStatus();
    }
  }
  std::move(then)(absl::OkStatus());
  return absl::OkStatus();
}

void Residents::Drain() {
  std::vector<ModelCompletion> waiting;
  {
    MutexLock lock(mu_);
    draining_ = true;
    orders_.clear();
    for (auto& [name, entry] : entries_) {
      for (std::optional<Order>* order : {&entry.order, &entry.carried}) {
        if (!order->has_value()) continue;
        for (ModelCompletion& done : (*order)->done) waiting.push_back(std::move(done));
        (*order)->done.clear();
      }
      entry.order.reset();
    }
    for (auto& [number, charge] : charges_) {
      for (ModelCompletion& done : charge.freed) waiting.push_back(std::move(done));
      charge.freed.clear();
    }
    changed_.NotifyAll();
  }
  Answer(std::move(waiting), Draining());
}

void Residents::Stop() {
  Drain();
  {
    MutexLock lock(mu_);
    stopped_ = true;
    changed_.NotifyAll();
  }
  if (loader_.joinable()) loader_.join();
}

void Residents::Clear() {
  Dropped dropped;
  MutexLock lock(mu_);
  for (auto& [name, entry] : entries_) dropped.push_back(std::exchange(entry.model, nullptr));
  UpdateList(&dropped);
}

void Residents::UpdateList(Dropped* dropped) {
  std::vector<ModelPtr> models;
  for (const auto& [name, entry] : entries_) {
    if (entry.model != nullptr) models.push_back(entry.model);
  }
  auto list = std::make_shared<const ModelList>(std::move(models));
  MutexLock lock(list_mu_);
  dropped->push_back(std::exchange(list_, std::move(list)));
}

void Residents::TakeOut(Entry& entry, Dropped* dropped) {
  charges_[entry.model->number].leaving = true;
  dropped->push_back(std::exchange(entry.model, nullptr));
}

void Residents::Retire(std::unique_ptr<const LoadedModel> model) {
  MutexLock lock(mu_);
  if (stopped_) return;  // freed here
  retired_.push_back(std::move(model));
  changed_.NotifyAll();
}

ModelPtr Residents::Own(LoadedModel model) {
  auto owned = std::make_unique<const LoadedModel>(std::move(model));
  const LoadedModel* const raw = owned.release();
  return {raw,
          [this](const LoadedModel* gone) { Retire(std::unique_ptr<const LoadedModel>(gone)); }};
}

}  // namespace castor
