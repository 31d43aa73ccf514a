// The models that outlive calls: those that the engine loads at its start, and those of the catalog
// (EngineOptions::catalog), which come and go while it runs.
//
// One thread, the loader, does all that takes long: it loads one model at a time, beside the engine
// thread and at a lower priority, and frees models. Requests find models in an immutable list
// (model_list.h), which the loader replaces, and hold theirs until they are answered. So a model is
// taken out of the list at any time, and freed when the last request has let it go; no request
// fails because its model is unloaded or replaced, and none mixes two generations.
//
// The weights' budget counts a model from before it is loaded until it is freed: at first by its
// files' headers, then by what it took. Room is made by taking out the models that were used least
// recently, but none that is pinned or has users.
//
// Any thread, unless a method says otherwise. One lock, not held while models are loaded, freed or
// tried out, nor while a completion is called; folders are looked at under it. Another, for the
// list alone, is taken under it and by each request. No further lock is taken under them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/base/mutex.h"
#include "engine/engine.h"
#include "engine/residents/model_list.h"

namespace castor {

// What the engine does for the loader, on the loader's thread.
struct LoaderHooks {
  // Loads a model, without its number. Takes seconds.
  std::function<absl::StatusOr<LoadedModel>(const ModelSource&)> load;
  // Runs it for the first time, before requests find it. An error keeps it from being served.
  std::function<absl::Status(const ModelPtr&)> try_out;
  std::function<void(const ModelInfo&)> on_loaded;  // just before requests find it; may be empty
  std::function<void(uint64_t number)> on_freed;    // forget what was learned about it
};

class Residents {
 public:
  // All references must outlive the object.
  Residents(ModelCatalog catalog, Clock& clock);
  // Requires that no list is held any more. Stops and clears if no one has.
  ~Residents();

  // ---- the start, on the engine thread; then Start

  // A model that stays. An alias has the number of the model that it names.
  void AddPinned(const ModelSource& source, LoadedModel model);
  // The bound on all weights; the pinned ones count from the start.
  void SetBudget(int64_t bytes);
  // Starts the loader, if there is anything to control.
  void Start(LoaderHooks hooks);

  // ---- while it runs; Engine's methods of these names say more

  std::shared_ptr<const ModelList> list() const;
  std::vector<ModelStatus> statuses() const;
  ModelCatalogStats stats() const;
  void Load(const std::string& name, const std::string& folder, bool replace, ModelCompletion done);
  void Unload(const std::string& name, ModelCompletion done);
  absl::Status NotLoaded(const std::string& name) const;
  absl::Status Await(const std::string& name, TimePoint deadline, ModelCompletion then);

  // ---- the end

  // Answers all that wait with DRAINING, now and later.
  void Drain();
  // Drains and joins the loader. A model that is let go later is freed where that happens.
  void Stop();
  // Frees all models that are not held. Engine thread, after Stop.
  void Clear();

 private:
  // A load that was asked for.
  struct Order {
    std::string folder;
    std::vector<ModelCompletion> done = {};
  };
  struct Entry {
    ModelSource source;
    bool pinned = false;
    ModelPtr model;                // in the list; null: none
    std::optional<Order> order;    // in `orders_`
    std::optional<Order> carried;  // that the loader carries out
    TimePoint begun;               // if one is carried out
    int64_t file_bytes = 0;        // of its weights, the same
    std::string failure;           // of the last order; empty: none
    TimePoint next_attempt;        // after a failure, for requests
    uint64_t loads = 0;
    double load_seconds = 0;

    bool loading() const { return carried.has_value(); }
    // The order that a request waits for; null: none.
    Order* next() { return carried ? &*carried : order ? &*order : nullptr; }
  };
  // A model that takes room in the budget.
  struct Charge {
    std::string name;
    int64_t bytes = 0;
    bool leaving = false;                     // out of the list
    std::vector<ModelCompletion> freed = {};  // to be called when it is
  };
  // References to be dropped without the lock, since the last one frees.
  using Dropped = std::vector<std::shared_ptr<const void>>;

  static absl::Status Draining();
  // Calls each with the status. Nothing of this may be locked.
  static void Answer(std::vector<ModelCompletion> completions, const absl::Status& status);

  bool auto_loads() const { return catalog_.control == ModelControl::kAuto; }
  // OK if a model that is not loaded may come without Load. DRAINING: another server may have it.
  absl::Status CheckLoadable(const std::string& name) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::chrono::milliseconds ExpectedWait(const std::string& name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckMayChange(const std::string& name) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Makes the list anew.
  void UpdateList(Dropped* dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes the entry's model out of the list.
  void TakeOut(Entry& entry, Dropped* dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Called as the last reference to a model goes.
  void Retire(std::unique_ptr<const LoadedModel> model);
  ModelPtr Own(LoadedModel model);

  // ---- the loader's thread, in loader.cc

  void Run();
  void FreeRetired() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes a model out of the budget. Returns the completions that wait for that.
  std::vector<ModelCompletion> GiveBack(uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CarryOut(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status LoadNow(const std::string& name, const ModelSource& source);
  absl::Status MakeRoom(const std::string& name, int64_t bytes, uint64_t number);
  // Whether it has a model that may make room: not pinned, and without users.
  static bool MayTakeOut(const Entry& entry);
  // The one among them that was used least recently; null: none.
  Entry* LeastRecentlyUsed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void UnloadIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  TimePoint NextIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ModelCatalog catalog_;
  Clock& clock_;
  LoaderHooks hooks_;  // constant after Start

  mutable Mutex list_mu_;
  std::shared_ptr<const ModelList> list_ ABSL_GUARDED_BY(list_mu_) = std::make_shared<ModelList>();

  mutable Mutex mu_;
  CondVar changed_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mu_);
  std::deque<std::string> orders_ ABSL_GUARDED_BY(mu_);      // names, first come first served
  std::map<uint64_t, Charge> charges_ ABSL_GUARDED_BY(mu_);  // by the model's number
  std::vector<std::unique_ptr<const LoadedModel>> retired_ ABSL_GUARDED_BY(mu_);
  int64_t budget_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t charged_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t numbers_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t evictions_ ABSL_GUARDED_BY(mu_) = 0;
  // The rate at which recent loads read weights' files; assumed at first.
  double bytes_per_second_ ABSL_GUARDED_BY(mu_) = 200e6;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = true;  // there is no loader
  std::thread loader_;
};

}  // namespace castor
