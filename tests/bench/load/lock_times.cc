// For how long a program's locks are held, by what locks them: a library to be preloaded.
//
//   LD_PRELOAD=build/tests/bench/liblock_times.so castor-server ...
//
// When the program ends it prints, for each function of libcastor_engine.so that took a lock, how
// often it did and the median, p99 and longest time for which its thread computed meanwhile, in µs.
// What a thread does not run, because another has the processor, does not count.

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace {

constexpr size_t kMostSites = 1024;
constexpr size_t kBuckets = 4096;  // of 0.1 µs, the last of all that is longer

struct Site {
  std::atomic<const void*> at = nullptr;  // where the lock was taken
  std::array<std::atomic<uint32_t>, kBuckets> held{};
  std::atomic<uint64_t> most = 0;  // ns
};
std::array<Site, kMostSites> sites;

struct Held {
  const pthread_mutex_t* lock = nullptr;
  const void* at = nullptr;
  uint64_t since = 0;
};
thread_local std::array<Held, 8> held_now;

uint64_t Now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

void Took(const pthread_mutex_t* lock, const void* at) {
  for (Held& held : held_now) {
    if (held.lock != nullptr) continue;
    held = {lock, at, Now()};
    return;
  }
}

void Gave(const pthread_mutex_t* lock) {
  for (Held& held : held_now) {
    if (held.lock != lock) continue;
    const uint64_t ns = Now() - held.since;
    held.lock = nullptr;
    const auto first = reinterpret_cast<uintptr_t>(held.at) / 4;
    for (size_t i = 0; i < kMostSites; ++i) {
      Site& site = sites[(first + i) % kMostSites];
      const void* none = nullptr;
      if (site.at != held.at && !site.at.compare_exchange_strong(none, held.at) &&
          none != held.at) {
        continue;
      }
      ++site.held[std::min<size_t>(ns / 100, kBuckets - 1)];
      uint64_t most = site.most;
      while (ns > most && !site.most.compare_exchange_weak(most, ns)) {
      }
      return;
    }
  }
}

__attribute__((destructor)) void Print() {
  std::fprintf(stderr,
               "| lock taken in | times | median | p99 | longest, µs |\n|---|---|---|---|---|\n");
  for (const Site& site : sites) {
    if (site.at == nullptr) continue;
    Dl_info info{};
    if (dladdr(site.at, &info) == 0) continue;
    if (std::strstr(info.dli_fname, "castor_engine") == nullptr) continue;
    uint64_t times = 0;
    for (const auto& count : site.held) times += count;
    const auto quantile = [&](double q) {
      uint64_t left = static_cast<uint64_t>(q * static_cast<double>(times));
      size_t bucket = 0;
      while (bucket + 1 < kBuckets && left >= site.held[bucket]) left -= site.held[bucket++];
      return static_cast<double>(bucket) / 10;
    };
    std::fprintf(stderr, "| %s | %llu | %.1f | %.1f | %.1f |\n",
                 info.dli_sname != nullptr ? info.dli_sname : "a local function",
                 static_cast<unsigned long long>(times), quantile(0.5), quantile(0.99),
                 static_cast<double>(site.most) / 1000);
  }
}

}  // namespace

extern "C" {

int pthread_mutex_lock(pthread_mutex_t* lock) {
  static const auto next = Next<int (*)(pthread_mutex_t*)>("pthread_mutex_lock");
  const int result = next(lock);
  Took(lock, __builtin_return_address(0));
  return result;
}

int pthread_mutex_unlock(pthread_mutex_t* lock) {
  static const auto next = Next<int (*)(pthread_mutex_t*)>("pthread_mutex_unlock");
  Gave(lock);
  return next(lock);
}

int pthread_cond_wait(pthread_cond_t* wakes, pthread_mutex_t* lock) {
  static const auto next = Next<int (*)(pthread_cond_t*, pthread_mutex_t*)>("pthread_cond_wait");
  Gave(lock);
  const int result = next(wakes, lock);
  Took(lock, __builtin_return_address(0));
  return result;
}

int pthread_cond_clockwait(pthread_cond_t* wakes, pthread_mutex_t* lock, clockid_t clock,
                           const timespec* until) {
  static const auto next =
      Next<int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*)>(
          "pthread_cond_clockwait");
  Gave(lock);
  const int result = next(wakes, lock, clock, until);
  Took(lock, __builtin_return_address(0));
  return result;
}
}
