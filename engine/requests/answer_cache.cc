#include "engine/requests/answer_cache.h"

#include <chrono>
#include <iterator>
#include <optional>
#include <random>
#include <span>
#include <type_traits>

#include "absl/hash/hash.h"

namespace castor {
namespace {

// Entries that are dropped before the lock is released: some 20 µs.
constexpr int kAtOnce = 64;

// The largest answer that is kept is this part of the cache, so that it drops few others.
constexpr int64_t kLargestPart = 8;

// A tenant that has not used the cache for so long makes room first.
constexpr std::chrono::hours kIdle{1};

// What the heap and the tables take, in addition to the bytes of keys, rows and lists, for an
// entry, for one of its outputs, and for a tenant. answer_cache_test measures it.
constexpr int64_t kEntryBytes = 352;
constexpr int64_t kOutputBytes = sizeof(OutputRows) + 160;
int64_t BytesOfTenant(const std::string& name) { return 320 + 2 * std::ssize(name); }

// Appends bytes that differ wherever values do. No value's bytes begin with those of another, so
// the same holds for values one after another.
template <typename T>
void AppendTo(std::string& key, const T& value) {
  if constexpr (std::is_same_v<T, float>) {
    key.append(reinterpret_cast<const char*>(&value), sizeof(value));
  } else if constexpr (std::is_same_v<T, std::string>) {
    AppendTo(key, value.size());
    key += value;
  } else if constexpr (requires { value.has_value(); }) {
    AppendTo(key, value.has_value());
    if (value.has_value()) AppendTo(key, *value);
  } else if constexpr (requires { value.begin(); }) {
    AppendTo(key, value.size());
    for (const auto& element : value) AppendTo(key, element);
  } else {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    auto rest = static_cast<uint64_t>(value);
    for (; rest >= 128; rest >>= 7) key.push_back(static_cast<char>(rest | 128));
    key.push_back(static_cast<char>(rest));
  }
}

// All on which a prepared request's rows depend. Each struct is taken apart in full: a new member
// does not compile here before someone has decided whether it belongs to the key.
std::string KeyOf(const EncodeWork& work) {
  // The rest of it acts through the request's own members, `prepared` and the batch key, or is made
  // of them later.
  const auto& [request, text, model, kernel, prompt, prepared, tokenized, tokenize_us, input_bytes,
               ranges, staged, token_counts, pooled_rows, cache] = work;
  // Texts, prompts, and how sequences are cut, act through `prepared`; the kernel through the batch
  // key. Embeddings, which alone can be NaN, and answers in place of rows are not cached.
  const auto& [call, model_name, generation, input, asked_kernel, output, outputs, output_type,
               asked_ranges, pooling, normalize, dimensions, truncate, truncation_side, max_tokens,
               check_finite, spans, prompt_name, prompt_text, task, return_texts, instead] =
      request;
  const auto& [unit, span_ranges] = spans;
  // Answers take `truncated` from their own request.
  const auto& [ids, type_ids, cu_seqlens, truncated, cut_left, left_out, pooled, span_order, hidden,
               kept, kept_seqlens] = prepared;
  std::string key;
  const auto append = [&key](const auto&... values) { (AppendTo(key, values), ...); };
  const bool hides = prompt != nullptr && prompt->hides_padding;
  append(cache.tenant, BatchKey(model->number, kernel, hides), output, outputs, output_type, ranges,
         pooling, normalize, dimensions, task);
  append(ids, type_ids, cu_seqlens, left_out, hidden, kept, kept_seqlens);
  append(span_ranges.size());
  for (const auto& [sequence, begin, end, pair] : span_ranges) append(sequence);
  append(pooled.size());
  for (const auto& [begin, end, cut] : pooled) append(begin, end);
  return key;
}

OutputRows Share(const OutputRows& rows, std::span<const std::byte> bytes,
                 std::shared_ptr<const void> owner) {
  const auto& [output, values, sparse, lengths] = rows;
  const auto& [dtype, shape, data] = values;
  return {output, {dtype, shape, HostBuffer(bytes, std::move(owner))}, sparse, lengths};
}

int64_t SizeOf(const std::string& key, const std::vector<OutputRows>& outputs) {
  size_t bytes = key.size();
  for (const auto& [output, values, sparse, lengths] : outputs) {
    bytes += values.data.size() + (values.shape.size() + lengths.size()) * sizeof(int64_t);
    if (sparse.has_value()) {
      bytes += static_cast<size_t>(sparse->size_bytes()) + sparse->lengths.size() * sizeof(int64_t);
    }
  }
  return kEntryBytes + kOutputBytes * std::ssize(outputs) + static_cast<int64_t>(bytes);
}

}  // namespace

std::vector<OutputRows> SharedRows(const std::shared_ptr<const CachedAnswer>& answer) {
  std::vector<OutputRows> outputs;
  for (const OutputRows& rows : answer->outputs) {
    outputs.push_back(Share(rows, rows.values.data.bytes(), answer));
  }
  return outputs;
}

AnswerCache::AnswerCache(int64_t most_bytes, const Clock& clock)
    : most_bytes_(most_bytes), clock_(clock), seed_(std::random_device()()) {}

bool AnswerCache::Find(EncodeWork* work) {
  CacheUse& use = work->cache;
  use.key = KeyOf(*work);
  use.hash = absl::HashOf(seed_, use.key);
  std::shared_ptr<const CachedAnswer> found;
  {
    MutexLock lock(mu_);
    if (const auto at = entries_.find({work->model->number, use.hash}); at != entries_.end()) {
      Tenant& tenant = at->second->tenant->second;
      tenant.used = clock_.Now();
      tenant.entries.splice(tenant.entries.begin(), tenant.entries, at->second);
      found = at->second->answer;
    }
  }
  // Two keys may have one hash.
  if (found == nullptr || found->key != use.key) {
    ++use.counts->misses;
    return false;
  }
  use.found = std::move(found);
  use.key = std::string();
  return true;
}

void AnswerCache::Keep(const EncodeWork& work, const std::vector<OutputRows>& outputs,
                       std::string_view device, std::string_view backend) {
  const int64_t bytes = SizeOf(work.cache.key, outputs);
  if (bytes + BytesOfTenant(work.cache.tenant) > most_bytes_ / kLargestPart) return;
  auto answer = std::make_shared<CachedAnswer>();
  answer->key = work.cache.key;
  for (const OutputRows& rows : outputs) {
    const std::span<const std::byte> from = rows.values.data.bytes();
    const auto copy = std::make_shared<const std::vector<std::byte>>(from.begin(), from.end());
    answer->outputs.push_back(Share(rows, *copy, copy));
  }
  answer->device = device;
  answer->backend = backend;
  answer->bytes = bytes;
  Entries entry;
  entry.push_back(
      {{work.model->number, work.cache.hash}, {}, work.cache.counts, std::move(answer)});
  for (bool added = false; !added;) {
    Entries dropped;  // freed without the lock
    MutexLock lock(mu_);
    added = TryAdd(work.cache.tenant, &entry, &dropped);
  }
}

bool AnswerCache::TryAdd(const std::string& name, Entries* entry, Entries* dropped) noexcept {
  Entry& one = entry->front();
  // An equal request was quicker, or one whose key has the same hash, which stays.
  if (entries_.contains(one.place)) return true;
  const int64_t bytes = one.answer->bytes;
  for (int i = 0; bytes_ + bytes + BytesOfTenant(name) > most_bytes_; ++i) {
    if (i == kAtOnce) return false;
    Remove(std::prev(NextToMakeRoom().entries.end()), dropped);
  }
  const auto [at, is_new] = tenants_.try_emplace(name);
  Tenant& tenant = at->second;
  tenant.used = clock_.Now();
  Charge(tenant, bytes + (is_new ? BytesOfTenant(name) : 0));
  one.counts->bytes += bytes;
  one.tenant = at;
  entries_.emplace(one.place, entry->begin());
  tenant.entries.splice(tenant.entries.begin(), *entry);
  return true;
}

// The tenant that has most, unless the next one of all is idle.
AnswerCache::Tenant& AnswerCache::NextToMakeRoom() {
  auto next = tenants_.upper_bound(looked_at_);
  if (next == tenants_.end()) next = tenants_.begin();
  looked_at_ = next->first;
  const bool idle = clock_.Now() - next->second.used >= kIdle;
  return idle ? next->second : *by_bytes_.rbegin()->second;
}

void AnswerCache::Remove(Entries::iterator entry, Entries* dropped) {
  const Tenants::iterator at = entry->tenant;
  Tenant& tenant = at->second;
  entries_.erase(entry->place);
  entry->counts->bytes -= entry->answer->bytes;
  Charge(tenant, -entry->answer->bytes);
  dropped->splice(dropped->end(), tenant.entries, entry);
  if (!tenant.entries.empty()) return;
  Charge(tenant, -tenant.bytes);
  tenants_.erase(at);
}

void AnswerCache::Charge(Tenant& tenant, int64_t bytes) {
  by_bytes_.erase({tenant.bytes, &tenant});
  bytes_ += bytes;
  tenant.bytes += bytes;
  if (tenant.bytes > 0) by_bytes_.emplace(tenant.bytes, &tenant);
}

void AnswerCache::Drop(uint64_t model) {
  for (bool more = true; more;) {
    Entries dropped;  // freed without the lock
    MutexLock lock(mu_);
    for (int i = 0; i < kAtOnce && more; ++i) {
      const auto at = entries_.lower_bound({model, 0});
      more = at != entries_.end() && at->first.first == model;
      if (more) Remove(at->second, &dropped);
    }
  }
}

}  // namespace castor
