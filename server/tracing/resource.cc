#include "server/tracing/resource.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <string_view>

#include "server/logging.h"
#include "server/tracing/ids.h"
#include "server/version.h"

namespace castor::server {
namespace {

constexpr size_t kMaxText = 8192;

void Set(std::string_view key, std::string_view value, Resource* resource) {
  for (auto& [known, text] : *resource) {
    if (known != key) continue;
    text = value;
    return;
  }
  resource->emplace_back(key, value);
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// Printable ASCII only: a text that is no UTF-8 would make a collector refuse everything.
bool Decode(std::string_view text, std::string* decoded) {
  decoded->clear();
  for (size_t i = 0; i < text.size(); ++i) {
    int c = static_cast<unsigned char>(text[i]);
    if (c == '%') {
      if (i + 2 >= text.size()) return false;
      const int high = HexValue(text[i + 1]);
      const int low = HexValue(text[i + 2]);
      if (high < 0 || low < 0) return false;
      c = high * 16 + low;
      i += 2;
    }
    if (c < 0x20 || c > 0x7e) return false;
    decoded->push_back(static_cast<char>(c));
  }
  return true;
}

std::string Environment(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}

bool IsPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c <= 0x7e; });
}

}  // namespace

bool AddAttributes(const std::string& text, Resource* resource) {
  if (text.size() > kMaxText) return false;
  Resource added = *resource;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view member = Trimmed(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    if (member.empty()) continue;
    const size_t equals = member.find('=');
    if (equals == std::string_view::npos) return false;
    std::string key;
    std::string value;
    if (!Decode(Trimmed(member.substr(0, equals)), &key) || key.empty() ||
        !Decode(Trimmed(member.substr(equals + 1)), &value)) {
      return false;
    }
    Set(key, value, &added);
  }
  *resource = std::move(added);
  return true;
}

Resource ResourceOfProcess() {
  Resource resource = {{"service.name", "castor"},
                       {"service.version", std::string(Version())},
                       {"service.instance.id", ToHex(NewTraceId())}};
  std::array<char, HOST_NAME_MAX + 1> host{};
  if (gethostname(host.data(), host.size() - 1) == 0 && IsPrintable(host.data())) {
    Set("host.name", host.data(), &resource);
  }
  for (const auto& [variable, key] : {std::pair{"POD_NAME", "k8s.pod.name"},
                                      {"POD_NAMESPACE", "k8s.namespace.name"},
                                      {"NODE_NAME", "k8s.node.name"}}) {
    const std::string value = Environment(variable);
    if (!value.empty() && IsPrintable(value)) Set(key, value, &resource);
  }
  if (!AddAttributes(Environment("OTEL_RESOURCE_ATTRIBUTES"), &resource)) {
    LogWarning("OTEL_RESOURCE_ATTRIBUTES is not key=value,key=value in ASCII; it is left out");
  }
  const std::string name = Environment("OTEL_SERVICE_NAME");
  if (!name.empty() && IsPrintable(name)) Set("service.name", name, &resource);
  return resource;
}

}  // namespace castor::server
