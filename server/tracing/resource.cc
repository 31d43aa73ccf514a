#include "server/tracing/resource.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/logging.h"
#include "server/tracing/trace_context.h"
#include "server/version.h"

namespace castor::server {
namespace {

constexpr size_t kMaxText = 8192;

void Set(const std::string& key, const std::string& value, Resource* resource) {
  auto& all = *resource->mutable_attributes();
  const auto known =
      std::find_if(all.begin(), all.end(), [&](const auto& it) { return it.key() == key; });
  auto& attribute = known == all.end() ? *all.Add() : *known;
  attribute.set_key(key);
  attribute.mutable_value()->set_string_value(value);
}

// Anything else might be no UTF-8, for which a collector would refuse everything.
bool IsPrintable(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c <= 0x7e; });
}

// Without "%20"s and space at either end.
std::optional<std::string> Decode(absl::string_view text) {
  std::string decoded;
  while (absl::ConsumePrefix(&text, " ")) {
  }
  while (absl::ConsumeSuffix(&text, " ")) {
  }
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    if (i + 2 >= text.size() || !absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 1])) ||
        !absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 2]))) {
      return std::nullopt;
    }
    decoded += absl::HexStringToBytes(text.substr(i + 1, 2));
    i += 2;
  }
  return IsPrintable(decoded) ? std::optional(decoded) : std::nullopt;
}

// Sets `key` if there is such a variable of the environment, and it is printable.
void SetFrom(const char* variable, const char* key, Resource* resource) {
  const char* const value = std::getenv(variable);
  if (value != nullptr && *value != '\0' && IsPrintable(value)) Set(key, value, resource);
}

}  // namespace

bool AddAttributes(const std::string& text, Resource* resource) {
  if (text.size() > kMaxText) return false;
  Resource added = *resource;
  for (const absl::string_view member : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(member, absl::MaxSplits('=', 1));
    const auto key = Decode(parts.first);
    const auto value = Decode(parts.second);
    if (member.find('=') == member.npos || !key || key->empty() || !value) return false;
    Set(*key, *value, &added);
  }
  *resource = std::move(added);
  return true;
}

Resource ResourceOfProcess() {
  Resource resource;
  Set("service.name", "castor", &resource);
  Set("service.version", std::string(Version()), &resource);
  Set("service.instance.id", ToHex(NewTraceId()), &resource);
  std::array<char, HOST_NAME_MAX + 1> host{};
  if (gethostname(host.data(), host.size() - 1) == 0 && IsPrintable(host.data())) {
    Set("host.name", host.data(), &resource);
  }
  SetFrom("POD_NAME", "k8s.pod.name", &resource);
  SetFrom("POD_NAMESPACE", "k8s.namespace.name", &resource);
  SetFrom("NODE_NAME", "k8s.node.name", &resource);
  const char* const more = std::getenv("OTEL_RESOURCE_ATTRIBUTES");
  if (more != nullptr && !AddAttributes(more, &resource)) {
    LogWarning("OTEL_RESOURCE_ATTRIBUTES is ignored: it is not key=value,key=value in ASCII");
  }
  SetFrom("OTEL_SERVICE_NAME", "service.name", &resource);
  return resource;
}

}  // namespace castor::server
