// What a sweep can vary: parse and set.
#include <algorithm>
#include <charconv>
#include <set>
#include <stdexcept>

#include "client/load/search/sweep.h"

namespace castor::load {
namespace {

template <typename T>
T Number(const std::string& name, const std::string& text, T least, T greatest) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || !(value >= least && value <= greatest)) {
    throw std::invalid_argument(name + ": '" + text + "' is no number that it can have");
  }
  return value;
}

int64_t Count(const std::string& name, const std::string& text) {
  return Number<int64_t>(name, text, 1, int64_t{1} << 24);
}

void SetRate(const std::string& name, const std::string& value, Workload* workload) {
  auto* open = std::get_if<OpenLoop>(&workload->load);
  if (open == nullptr || !std::holds_alternative<FlatRate>(open->rate)) {
    throw std::invalid_argument(name + ": the workload is no open loop with one rate");
  }
  open->rate = FlatRate{Number<double>(name, value, 1e-3, 1e7)};
}

void SetCallers(const std::string& name, const std::string& value, Workload* workload) {
  auto* closed = std::get_if<ClosedLoop>(&workload->load);
  if (closed == nullptr) throw std::invalid_argument(name + ": the workload is no closed loop");
  closed->callers = Count(name, value);
}

// Calls `set` with each class's attend or encode part, until there is none left that it fits.
template <typename Set>
void ForEachCall(const std::string& name, Workload* workload, const Set& set) {
  bool any = false;
  for (ClassSpec& cls : workload->classes) {
    std::visit([&](auto& call) { any |= set(call); }, cls.call);
  }
  if (!any) throw std::invalid_argument(name + ": no class of the workload has it");
}

void SetKernel(const std::string& name, const std::string& value, Workload* workload) {
  const std::vector<std::string> kernels = cli::KernelNames();
  if (std::find(kernels.begin(), kernels.end(), value) == kernels.end()) {
    std::string known;
    for (const std::string& kernel : kernels) known += (known.empty() ? "" : ", ") + kernel;
    throw std::invalid_argument(name + ": '" + value + "' is none of " + known);
  }
  ForEachCall(name, workload, [&](auto& call) { return call.kernel.kernel = value, true; });
}

void SetLength(const std::string& name, const std::string& value, Workload* workload) {
  const FixedLength length{Count(name, value)};
  ForEachCall(name, workload, [&](auto& call) { return call.lengths = length, true; });
}

void SetSequences(const std::string& name, const std::string& value, Workload* workload) {
  const FixedLength sequences{Count(name, value)};
  ForEachCall(name, workload, [&](auto& call) { return call.sequences = sequences, true; });
}

template <int32_t cli::KernelFlags::*field>
void SetKernelField(const std::string& name, const std::string& value, Workload* workload) {
  const auto count = Number<int32_t>(name, value, 1, 1 << 24);
  ForEachCall(name, workload, [&](auto& call) { return call.kernel.*field = count, true; });
}

template <int64_t AttendSpec::*field>
void SetAttendField(const std::string& name, const std::string& value, Workload* workload) {
  const int64_t count = Count(name, value);
  ForEachCall(name, workload, [&](auto& call) {
    if constexpr (std::is_same_v<std::decay_t<decltype(call)>, AttendSpec>) {
      return call.*field = count, true;
    } else {
      return false;
    }
  });
}

struct Parameter {
  const char* name;
  const char* help;
  void (*set)(const std::string& name, const std::string& value, Workload* workload);
};

constexpr Parameter kParameters[] = {
    {"rate", "requests per second of an open loop", SetRate},
    {"callers", "of a closed loop", SetCallers},
    {"kernel", "the attention kernel", SetKernel},
    {"length", "tokens of each sequence", SetLength},
    {"sequences", "sequences of each request", SetSequences},
    {"heads", "of attend", SetAttendField<&AttendSpec::heads>},
    {"head_dim", "of attend", SetAttendField<&AttendSpec::head_dim>},
    {"clusters", "of clustered kernels", SetKernelField<&cli::KernelFlags::clusters>},
    {"topk", "of improved-clustered", SetKernelField<&cli::KernelFlags::topk>},
};

const Parameter& Find(const std::string& name) {
  for (const Parameter& parameter : kParameters) {
    if (name == parameter.name) return parameter;
  }
  throw std::invalid_argument("'" + name + "' cannot be varied; what can: " + VaryHelp());
}

}  // namespace

std::string VaryHelp() {
  std::string text;
  for (const Parameter& parameter : kParameters) {
    text += std::string(text.empty() ? "" : ", ") + parameter.name + " (" + parameter.help + ")";
  }
  return text;
}

Vary ParseVary(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) {
    throw std::invalid_argument("'" + text + "' must look like rate=50,100,200");
  }
  Vary vary{.name = text.substr(0, equals), .values = {}};
  Find(vary.name);
  std::set<std::string> seen;
  for (size_t begin = equals + 1; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string value = text.substr(begin, end - begin);
    if (value.empty()) throw std::invalid_argument("'" + text + "' has an empty value");
    if (!seen.insert(value).second) {
      throw std::invalid_argument("'" + text + "' has '" + value + "' twice");
    }
    vary.values.push_back(std::move(value));
    begin = end + 1;
  }
  return vary;
}

void SetParameter(const std::string& name, const std::string& value, Workload* workload) {
  Find(name).set(name, value, workload);
}

}  // namespace castor::load
