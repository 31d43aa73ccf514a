// The loader's thread of Residents.

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "engine/attention/parallel.h"
#include "engine/base/error.h"
#include "engine/base/guarded.h"
#include "engine/residents/model_root.h"
#include "engine/residents/residents.h"

namespace castor {
namespace {

// The loader's nice value: it gets about a tenth of a core that the engine wants too.
constexpr int kLoaderNice = 10;

// The weight of a load in the rate of loading.
constexpr double kRateStep = 0.3;

// A request for a model that could not be loaded has it tried again after this long.
constexpr std::chrono::seconds kBackoff{10};

// Callers need not know where the catalog lies: its folder has the model's name.
absl::Status Failed(const absl::Status& error, const std::string& directory,
                    const std::string& name) {
  std::string text(error.message());
  for (size_t at = 0; (at = text.find(directory, at)) != text.npos; at += name.size()) {
    text.replace(at, directory.size(), name);
  }
  return MakeError(Reason::kModelFailed, text);
}

}  // namespace

void Residents::Run() {
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kLoaderNice);
  attention::ComputeOnThisThreadAlone();
  MutexLock lock(mu_);
  while (true) {
    if (!retired_.empty()) {
      FreeRetired();
    } else if (stopped_) {
      return;
    } else if (!orders_.empty()) {
      const std::string name = std::move(orders_.front());
      orders_.pop_front();
      CarryOut(name);
    } else {
      UnloadIdle();
      if (retired_.empty()) clock_.WaitUntil(changed_, mu_, NextIdle());
    }
  }
}

void Residents::FreeRetired() {
  std::vector<std::unique_ptr<const LoadedModel>> dead = std::exchange(retired_, {});
  std::vector<uint64_t> numbers;
  for (const auto& model : dead) numbers.push_back(model->number);
  mu_.Unlock();
  dead.clear();
  for (const uint64_t number : numbers) hooks_.on_freed(number);
  malloc_trim(0);
  mu_.Lock();
  std::vector<ModelCompletion> freed;
  for (const uint64_t number : numbers) {
    for (ModelCompletion& done : GiveBack(number)) freed.push_back(std::move(done));
  }
  changed_.NotifyAll();
  mu_.Unlock();
  Answer(std::move(freed), absl::OkStatus());
  mu_.Lock();
}

std::vector<ModelCompletion> Residents::GiveBack(uint64_t number) {
  auto charge = charges_.extract(number);
  if (charge.empty()) return {};
  charged_ -= charge.mapped().bytes;
  return std::move(charge.mapped().freed);
}

void Residents::CarryOut(const std::string& name) {
  Entry& entry = entries_[name];
  entry.carried = std::exchange(entry.order, std::nullopt);
  entry.begun = clock_.Now();
  const ModelSource source{.name = name,
                           .directory = catalog_.root + "/" + entry.carried->folder,
                           .dtype = catalog_.dtype,
                           .int8 = catalog_.int8};
  mu_.Unlock();
  absl::Status status = Guarded([&] { return LoadNow(name, source); });
  mu_.Lock();
  if (!status.ok()) {
    entry.failure = std::string(status.message());
    entry.next_attempt = clock_.Now() + kBackoff;
  }
  std::vector<ModelCompletion> done = std::move(entry.carried->done);
  entry.carried.reset();
  mu_.Unlock();
  Answer(std::move(done), status);
  mu_.Lock();
}

absl::Status Residents::LoadNow(const std::string& name, const ModelSource& source) {
  const absl::StatusOr<int64_t> bytes = EstimateWeightBytes(source);
  if (!bytes.ok()) return Failed(bytes.status(), source.directory, name);
  const int64_t file_bytes = WeightFileBytes(source.directory);
  uint64_t number = 0;
  TimePoint begun;
  {
    MutexLock lock(mu_);
    number = ++numbers_;
    entries_[name].file_bytes = file_bytes;
    begun = entries_[name].begun;
  }
  if (absl::Status room = MakeRoom(name, *bytes, number); !room.ok()) return room;
  // Until the model exists, whose end gives it back.
  absl::Cleanup give_back = [&] {
    MutexLock lock(mu_);
    GiveBack(number);
  };
  // A link may lead elsewhere before all files are read.
  ModelSource resolved = source;
  std::error_code error;
  resolved.directory = std::filesystem::canonical(source.directory, error).string();
  if (error) resolved = source;
  auto loaded = Guarded([&] { return hooks_.load(resolved); });
  if (!loaded.ok()) {
    const Reason reason = ReasonOf(loaded.status());
    if (reason == Reason::kOutOfMemory) return loaded.status();
    return Failed(loaded.status(), resolved.directory, name);
  }
  loaded->number = loaded->info.generation = number;
  loaded->info.directory = source.directory;
  loaded->info.load_seconds = Microseconds(begun, clock_.Now()) * 1e-6;
  loaded->usage = std::make_shared<ModelUsage>(clock_);
  const double seconds = loaded->info.load_seconds;
  {
    MutexLock lock(mu_);
    charged_ += loaded->info.weight_bytes - charges_[number].bytes;
    charges_[number].bytes = loaded->info.weight_bytes;
    if (file_bytes > 0 && seconds > 0) {
      const double rate = static_cast<double>(file_bytes) / seconds;
      bytes_per_second_ += kRateStep * (rate - bytes_per_second_);
    }
  }
  ModelPtr model = Own(*std::move(loaded));
  std::move(give_back).Cancel();
  if (absl::Status tried = hooks_.try_out(model); !tried.ok()) {
    return MakeError(Reason::kModelFailed,
                     "model \"" + name + "\" does not run: " + std::string(tried.message()));
  }
  if (hooks_.on_loaded) hooks_.on_loaded(model->info);
  Dropped dropped;
  MutexLock lock(mu_);
  if (draining_) {
    dropped.push_back(std::move(model));
    return Draining();
  }
  Entry& entry = entries_[name];
  if (entry.model != nullptr) TakeOut(entry, &dropped);
  entry.source = source;
  entry.failure.clear();
  entry.model = std::move(model);
  ++entry.loads;
  entry.load_seconds = seconds;
  UpdateList(&dropped);
  return absl::OkStatus();
}

// A model that is being replaced serves until its successor does.
bool Residents::MayTakeOut(const Entry& entry) {
  return !entry.pinned && !entry.loading() && entry.model != nullptr &&
         entry.model->usage->users() == 0;
}

Residents::Entry* Residents::LeastRecentlyUsed() {
  Entry* least = nullptr;
  for (auto& [name, entry] : entries_) {
    if (!MayTakeOut(entry)) continue;
    if (least == nullptr || entry.model->usage->last_used() < least->model->usage->last_used()) {
      least = &entry;
    }
  }
  return least;
}

// Waits for models that are on their way out.
absl::Status Residents::MakeRoom(const std::string& name, int64_t bytes, uint64_t number) {
  Dropped dropped;
  mu_.Lock();
  while (bytes > budget_ - charged_) {
    if (draining_) {
      mu_.Unlock();
      return Draining();
    }
    int64_t leaving = 0, idle = 0;
    for (const auto& [other, charge] : charges_) leaving += charge.leaving ? charge.bytes : 0;
    for (const auto& [other, entry] : entries_) {
      if (MayTakeOut(entry)) idle += charges_[entry.model->number].bytes;
    }
    if (!retired_.empty()) {
      FreeRetired();
    } else if (bytes <= budget_ - charged_ + leaving) {
      clock_.WaitUntil(changed_, mu_, TimePoint::max());
    } else if (bytes <= budget_ - charged_ + leaving + idle) {
      Entry* const least = LeastRecentlyUsed();
      if (least == nullptr) continue;  // they have users now
      TakeOut(*least, &dropped);
      ++evictions_;
      UpdateList(&dropped);
      mu_.Unlock();
      dropped.clear();
      mu_.Lock();
    } else {
      const int64_t missing = bytes - (budget_ - charged_ + leaving + idle);
      absl::Status refused = MakeError(
          Reason::kTooLarge, "model \"" + name + "\" takes up to " + std::to_string(bytes) +
                                 " bytes, " + std::to_string(missing) +
                                 " more than the models that are pinned or in use leave of the "
                                 "weights' budget of " +
                                 std::to_string(budget_));
      mu_.Unlock();
      return refused;
    }
  }
  charged_ += bytes;
  charges_[number] = {.name = name, .bytes = bytes};
  mu_.Unlock();
  return absl::OkStatus();
}

void Residents::UnloadIdle() {
  if (catalog_.idle_unload.count() == 0) return;
  Dropped dropped;
  const TimePoint idle_since = clock_.Now() - catalog_.idle_unload;
  while (Entry* const least = LeastRecentlyUsed()) {
    if (least->model->usage->last_used() > idle_since) break;
    TakeOut(*least, &dropped);
    ++evictions_;
  }
  if (dropped.empty()) return;
  UpdateList(&dropped);
  mu_.Unlock();
  dropped.clear();
  mu_.Lock();
}

// A model whose users leave meanwhile is looked at again after the idle time.
TimePoint Residents::NextIdle() const {
  if (catalog_.idle_unload.count() == 0) return TimePoint::max();
  TimePoint next = TimePoint::max();
  for (const auto& [name, entry] : entries_) {
    if (entry.pinned || entry.model == nullptr) continue;
    const ModelUsage& usage = *entry.model->usage;
    const TimePoint since = usage.users() > 0 ? clock_.Now() : usage.last_used();
    next = std::min(next, since + catalog_.idle_unload);
  }
  return next;
}

}  // namespace castor
