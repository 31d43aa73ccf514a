// Answers of encoders, kept for equal requests of the same tenant (EngineOptions::answer_cache).
//
// A key is compared in full: the tenant, the model by its number, which no other load has, the
// kernel, the token ids, and every option that rows depend on. So an answer is never that of
// another model, option or tenant, and no one can tell by the time whether another tenant has asked
// before.
//
// The bytes count what an entry really takes of the heap. When they are used up, answers are
// dropped: of the tenant that has most, unless another has not used the cache for long; those that
// were used least recently. Answers on their way share their rows with the cache, or keep them
// alone once they have been dropped.
//
// Any thread. The lock is held for a few entries at a time, and never while bytes are copied,
// compared or freed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "engine/base/clock.h"
#include "engine/base/mutex.h"
#include "engine/request.h"
#include "engine/requests/work.h"

namespace castor {

// The counts of one model; AnswerCacheStats says what they mean. They must outlive the cache.
struct CacheCounts {
  std::atomic<uint64_t> hits = 0;  // counted by the ledger, with the answer
  std::atomic<uint64_t> misses = 0;
  std::atomic<int64_t> bytes = 0;
};

// The answer's rows, whose bytes it shares.
std::vector<OutputRows> SharedRows(const std::shared_ptr<const CachedAnswer>& answer);

class AnswerCache {
 public:
  // `clock` must outlive the object.
  AnswerCache(int64_t most_bytes, const Clock& clock);

  // Looks for the answer of a prepared request. True: it is in `work->cache`, and the request needs
  // no run. False: its key is there.
  bool Find(EncodeWork* work);

  // Keeps copies of a request's rows, which must be finite, unless they are a large part of the
  // whole cache. Requires that Find did not find them.
  void Keep(const EncodeWork& work, const std::vector<OutputRows>& outputs, std::string_view device,
            std::string_view backend);

  // Drops the answers of a model that is gone, which no request has any more.
  void Drop(uint64_t model);

 private:
  struct Tenant;
  using Tenants = std::map<std::string, Tenant>;
  using Place = std::pair<uint64_t, uint64_t>;  // the model's number, and the key's hash
  struct Entry {
    Place place;
    Tenants::iterator tenant;
    CacheCounts* counts;
    std::shared_ptr<const CachedAnswer> answer;
  };
  using Entries = std::list<Entry>;
  struct Tenant {
    int64_t bytes = 0;
    TimePoint used = {};
    Entries entries = {};  // the most recently used one first
  };

  // Adds the entry, after it has made room. False: call it again, there was too much to drop at
  // once.
  bool TryAdd(const std::string& tenant, Entries* entry, Entries* dropped) noexcept
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Remove(Entries::iterator entry, Entries* dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Charge(Tenant& tenant, int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Requires that there are entries.
  Tenant& NextToMakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t most_bytes_;
  const Clock& clock_;
  const uint32_t seed_;  // so that no one can choose keys whose hashes are equal

  Mutex mu_;
  absl::btree_map<Place, Entries::iterator> entries_ ABSL_GUARDED_BY(mu_);
  Tenants tenants_ ABSL_GUARDED_BY(mu_);  // that have entries
  std::set<std::pair<int64_t, Tenant*>> by_bytes_ ABSL_GUARDED_BY(mu_);
  std::string looked_at_ ABSL_GUARDED_BY(mu_);  // the last tenant that might have been idle
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

// Whether the cache may hold such a request's answer: that of an exact kernel, to texts or ids.
inline bool MayBeCached(const EncodeWork& work) {
  return work.request.runs() && std::holds_alternative<Vanilla>(work.kernel) &&
         !std::holds_alternative<EmbeddingInput>(work.request.input);
}

// Whether the request uses the cache, and its answer is there.
inline bool FindCached(EncodeWork* work) {
  return work->cache.counts != nullptr && work->cache.cache->Find(work);
}

}  // namespace castor
