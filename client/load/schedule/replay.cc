#include "client/load/schedule/replay.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <map>
#include <tuple>
#include <unordered_map>

#include "client/cli/command.h"
#include "client/load/schedule/picker.h"
#include "client/load/schedule/trace.h"
#include "client/load/workload/units.h"
#include "client/tensor.h"

namespace castor::load {
namespace {

constexpr size_t kMaxReplayClasses = 256;
constexpr size_t kMaxShapes = 64;                     // of a class
constexpr double kMaxShapeBytes = 256.0 * (1 << 20);  // of a class's payloads
constexpr int64_t kSpecialTokens = 2;                 // around each text
constexpr int64_t kBytesPerWord = 5;

int64_t Total(const std::vector<int64_t>& lengths) {
  int64_t sum = 0;
  for (const int64_t length : lengths) sum += length;
  return sum;
}

// Texts as the words that they are replayed with.
std::vector<int64_t> WordsOf(const TraceRequest& request) {
  std::vector<int64_t> words = request.lengths;
  for (int64_t& length : words) length = std::max<int64_t>(1, length - kSpecialTokens);
  for (const int64_t bytes : request.text_bytes) {
    words.push_back(std::clamp<int64_t>(bytes / kBytesPerWord, 1, int64_t{1} << 20));
  }
  return words;
}

// The least of 1, 2, 5, 10, 20, ... milliseconds that is no shorter; 0: there is no deadline.
int64_t DeadlineStep(const TraceRequest& request) {
  if (!request.deadline_ms) return 0;
  int64_t step = 1;
  for (int64_t power = 1; static_cast<double>(step) < *request.deadline_ms; power *= 10) {
    for (const int64_t times : {1, 2, 5, 10}) {
      step = power * times;
      if (static_cast<double>(step) >= *request.deadline_ms) break;
    }
  }
  return step;
}

// Kind, model, kernel, size, priority, deadline's step: classes are sorted by it.
using ClassKey = std::tuple<bool, std::string, std::string, int64_t, int, int64_t>;

std::string BaseName(const ClassKey& key) {
  const auto& [encode, model, kernel, size, priority, deadline] = key;
  constexpr const char* kPriorityNames[] = {"", " low", " normal", " high"};
  std::string name = encode ? "encode" : "attend";
  if (!model.empty()) name += " " + model;
  if (!kernel.empty()) name += " " + kernel;
  return name + " " + std::to_string(size) + kPriorityNames[priority];
}

Call CallOf(const TraceRequest& request, Inputs inputs) {
  if (request.encode) {
    EncodeSpec encode;
    encode.model = request.model;
    encode.exact_lengths = WordsOf(request);
    encode.output = request.output;
    encode.kernel = request.kernel;
    return encode;
  }
  AttendSpec attend;
  attend.exact_lengths = request.lengths;
  attend.key_lengths = request.key_lengths;
  attend.heads = request.heads;
  attend.head_dim = request.head_dim;
  attend.value_dim = request.value_dim;
  attend.dtype = request.dtype;
  attend.inputs = inputs;
  attend.kernel = request.kernel;
  if (request.surrogate_tokens > 0) attend.surrogate_tokens = request.surrogate_tokens;
  return attend;
}

double BytesOfTensors(const TraceRequest& request) {
  if (request.encode) return 0;
  const auto& keys = request.key_lengths.empty() ? request.lengths : request.key_lengths;
  const auto value_dim =
      static_cast<double>(request.value_dim == 0 ? request.head_dim : request.value_dim);
  const auto head_dim = static_cast<double>(request.head_dim);
  return (static_cast<double>(Total(request.lengths)) * head_dim +
          static_cast<double>(Total(keys)) * (head_dim + value_dim)) *
         static_cast<double>(request.heads) * static_cast<double>(client::SizeOf(request.dtype));
}

// The classes that come out of a trace, and the requests in terms of them.
class TraceReader {
 public:
  explicit TraceReader(const Replay& replay) : replay_(replay) {
    ReadTrace(replay.file, [this](const TraceRequest& request) { Add(request); });
    // Recorders write a request when its size is known, which may be after later ones.
    std::stable_sort(entries_.begin(), entries_.end(),
                     [](const Entry& a, const Entry& b) { return a.at_us < b.at_us; });
    summary_.requests = static_cast<int64_t>(entries_.size());
    summary_.seconds = static_cast<double>(entries_.back().at_us - entries_.front().at_us) * 1e-6;
    if (summary_.approximated > 0) {
      summary_.token_error /= static_cast<double>(summary_.approximated);
    }
  }

  const ReplaySummary& summary() const { return summary_; }

  // When the last request is due, from the first.
  std::chrono::nanoseconds length() const { return TimeOf(entries_.back()); }

  std::vector<ClassSpec> Classes() const {
    std::map<std::string, int> uses;
    for (const auto& [key, made] : classes_) ++uses[BaseName(key)];
    std::vector<ClassSpec> specs;
    for (const auto& [key, made] : classes_) {
      ClassSpec& spec = specs.emplace_back(replay_.each);
      spec.name = BaseName(key);
      const int64_t step = std::get<5>(key);
      if (uses[spec.name] > 1) {
        spec.name += step == 0 ? " without a deadline"
                               : " within " + FormatDuration(std::chrono::milliseconds(step));
      }
      spec.weight = static_cast<double>(made.requests);
      spec.call = made.calls.front();
      spec.calls = made.calls;
      spec.payloads = static_cast<int64_t>(made.calls.size());
      spec.priority = static_cast<v1::Priority>(std::get<4>(key));
      if (std::get<0>(key)) spec.shared_memory = false;
      if (step > 0) {
        const auto ms = static_cast<int64_t>(std::ceil(std::clamp(made.deadline_ms, 1.0, 1e9)));
        spec.deadline = std::chrono::milliseconds(ms);
      }
    }
    return specs;
  }

  // Calls `visit` with the time from the first request, the class and the payload of each.
  template <typename Visit>
  void ForEach(Visit visit) const {
    std::vector<uint16_t> place(classes_.size());  // by order of appearance: that of the keys
    uint16_t next = 0;
    for (const auto& [key, made] : classes_) place[made.number] = next++;
    for (const Entry& entry : entries_) visit(TimeOf(entry), place[entry.cls], entry.payload);
  }

 private:
  struct Class {
    uint16_t number = 0;  // in order of appearance
    int64_t requests = 0;
    double deadline_ms = 0;  // the longest
    double bytes = 0;
    std::vector<Call> calls;
    std::vector<int64_t> tokens;                           // of each
    std::unordered_map<std::string, uint32_t> payload_of;  // by the shape's line
    bool full() const { return calls.size() >= kMaxShapes || bytes >= kMaxShapeBytes; }
  };
  struct Entry {
    int64_t at_us;
    uint32_t payload;
    uint16_t cls;
  };

  std::chrono::nanoseconds TimeOf(const Entry& entry) const {
    const auto us = static_cast<double>(entry.at_us - entries_.front().at_us);
    return std::chrono::nanoseconds(static_cast<int64_t>(us * 1e3 / replay_.speed));
  }

  void Add(const TraceRequest& request) {
    const int64_t tokens = Total(request.encode ? WordsOf(request) : request.lengths);
    const auto size = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(tokens)));
    const ClassKey key{request.encode, request.model,    request.kernel.kernel,
                       size,           request.priority, DeadlineStep(request)};
    const auto [found, is_new] = classes_.try_emplace(key);
    Class& cls = found->second;
    if (is_new) {
      if (classes_.size() > kMaxReplayClasses) {
        throw cli::UsageError(replay_.file +
                              " has more than 256 kinds of requests (kernel, size, priority, "
                              "deadline); replay parts of it");
      }
      cls.number = static_cast<uint16_t>(classes_.size() - 1);
    }
    ++cls.requests;
    if (request.deadline_ms) cls.deadline_ms = std::max(cls.deadline_ms, *request.deadline_ms);
    entries_.push_back({request.at_us, PayloadOf(request, tokens, cls), cls.number});
  }

  uint32_t PayloadOf(const TraceRequest& request, int64_t tokens, Class& cls) {
    TraceRequest shape = request;
    shape.at_us = 0;
    shape.deadline_ms.reset();
    std::string line = ToTraceLine(shape);
    if (const auto known = cls.payload_of.find(line); known != cls.payload_of.end()) {
      return known->second;
    }
    if (cls.full()) return Nearest(tokens, cls);
    const auto number = static_cast<uint32_t>(cls.calls.size());
    cls.calls.push_back(CallOf(request, std::get<AttendSpec>(replay_.each.call).inputs));
    cls.tokens.push_back(tokens);
    cls.bytes += BytesOfTensors(request);
    cls.payload_of.emplace(std::move(line), number);
    return number;
  }

  uint32_t Nearest(int64_t tokens, const Class& cls) {
    const auto nearest = std::min_element(
        cls.tokens.begin(), cls.tokens.end(),
        [&](int64_t a, int64_t b) { return std::abs(a - tokens) < std::abs(b - tokens); });
    ++summary_.approximated;
    summary_.token_error +=
        static_cast<double>(std::abs(*nearest - tokens)) / static_cast<double>(tokens);
    return static_cast<uint32_t>(nearest - cls.tokens.begin());
  }

  const Replay& replay_;
  std::map<ClassKey, Class> classes_;
  std::vector<Entry> entries_;
  ReplaySummary summary_;
};

}  // namespace

Workload PrepareReplay(Workload workload, ReplaySummary* summary) {
  const auto& replay = std::get<Replay>(workload.load);
  const TraceReader trace(replay);
  if (trace.length() < workload.warm_up) {
    throw cli::UsageError(replay.file + " ends after " + FormatDuration(trace.length()) +
                          ", within the warm-up of " + FormatDuration(workload.warm_up));
  }
  workload.classes = trace.Classes();
  if (workload.duration.count() == 0) {
    workload.duration = trace.length() - workload.warm_up + std::chrono::milliseconds(1);
  }
  if (summary != nullptr) *summary = trace.summary();
  return workload;
}

Schedule ReplaySchedule(const Workload& workload, double verify_share) {
  const auto& replay = std::get<Replay>(workload.load);
  const TraceReader trace(replay);
  const std::vector<ClassSpec> classes = trace.Classes();
  const bool same = std::equal(
      classes.begin(), classes.end(), workload.classes.begin(), workload.classes.end(),
      [](const auto& a, const auto& b) { return a.name == b.name && a.payloads == b.payloads; });
  if (!same) {
    throw cli::UsageError(replay.file + " does not have the requests that it had a moment ago");
  }
  Picker picker(workload, verify_share, workload.seed, 0);
  Schedule schedule;
  schedule.reserve(static_cast<size_t>(trace.summary().requests));
  trace.ForEach([&](std::chrono::nanoseconds at, uint16_t cls, uint32_t payload) {
    const std::chrono::nanoseconds time = at - workload.warm_up;
    if (workload.duration.count() > 0 && time >= workload.duration) return;
    Planned planned = picker.Next(cls, payload);
    planned.at_ns = time.count();
    schedule.push_back(planned);
  });
  return schedule;
}

}  // namespace castor::load
