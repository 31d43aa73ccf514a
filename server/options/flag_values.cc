#include "server/options/flag_values.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "engine/option_bounds.h"
#include "server/auth/caller_table.h"

namespace castor::server {

std::string CheckAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return "is not HOST:PORT";
  const std::string host = text.substr(0, colon);
  const bool bracketed = host.front() == '[' && host.back() == ']' && host.size() > 2;
  if (host.find(':') != std::string::npos && !bracketed) {
    return "is not HOST:PORT (write an IPv6 address in brackets: [::1]:50051)";
  }
  int port = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, port);
  if (error != std::errc() || rest != end || port < 0 || port > 65535) {
    return "has no port from 0 to 65535";
  }
  return "";
}

bool IsLocal(const std::string& address) {
  return address.starts_with("unix:") || address.starts_with("127.") ||
         address.starts_with("[::1]:") || address.starts_with("localhost:");
}

std::string CheckDevice(const std::string& text) {
  if (text == "auto" || text == "cpu" || text == "cuda") return "";
  constexpr std::string_view kIndexed = "cuda:";
  if (text.starts_with(kIndexed) && text.size() > kIndexed.size() && text.size() <= 8 &&
      text.find_first_not_of("0123456789", kIndexed.size()) == std::string::npos) {
    return "";
  }
  return "must be one of auto, cpu, cuda, cuda:N";
}

std::string ReadCollector(const std::string& text, TraceOptions* trace) {
  std::string_view address = text;
  const auto take = [&](std::string_view scheme) {
    const bool has = address.starts_with(scheme);
    if (has) address.remove_prefix(scheme.size());
    return has;
  };
  trace->tls = take("https://");
  if (!trace->tls) take("http://");
  trace->endpoint = address == "off" ? "" : std::string(address);
  if (trace->endpoint.empty()) return text.empty() || text == "off" ? "" : "is not HOST:PORT";
  return CheckAddress(trace->endpoint);
}

ModelSource ParseModel(const std::string& text) {
  ModelSource model;
  std::error_code error;
  // A '=' may also be part of a path.
  const size_t equals = text.find('=');
  const bool path = text.find('/') < equals &&
                    (text[0] == '/' || text[0] == '.' || std::filesystem::exists(text, error));
  const bool named = equals != std::string::npos && !path;
  model.directory = named ? text.substr(equals + 1) : text;
  auto fail = [&](const std::string& problem) {
    throw CLI::ValidationError("--model", "'" + text + "' " + problem);
  };
  const bool file = model.directory.ends_with(".safetensors") &&
                    std::filesystem::is_regular_file(model.directory, error);
  if (!file && !std::filesystem::is_directory(model.directory, error)) {
    if (!std::filesystem::exists(model.directory, error)) {
      const bool of_hub =
          IsModelName(model.directory) && std::ranges::count(model.directory, '/') == 1;
      fail("cannot be opened: " + (error ? error.message() : "no such file or directory") +
           (of_hub ? "; a model of the Hugging Face hub must be fetched first: castor fetch hf:" +
                         model.directory + " --to DIR"
                   : ""));
    }
    fail("is a file: give its directory, or a .safetensors file of CAST layers");
  }
  if (named) {
    model.name = text.substr(0, equals);
  } else {
    // As it was given: a link's own name, not that of what it leads to.
    std::filesystem::path path = std::filesystem::absolute(model.directory, error);
    path = path.lexically_normal();
    if (!path.has_filename()) path = path.parent_path();  // "models/minilm/", "."
    model.name = (file ? path.stem() : path.filename()).string();
  }
  if (!IsModelName(model.name)) {
    fail(
        "gives no valid name: 1 to 128 letters, digits, '.', '_', '-', and '/' between them (use "
        "NAME=DIR)");
  }
  return model;
}

void AddAdapter(const std::string& text, std::vector<ModelSource>* models) {
  auto fail = [&](const std::string& problem) {
    throw CLI::ValidationError("--adapter", "'" + text + "' " + problem);
  };
  const size_t equals = text.find('=');
  const size_t slash = text.substr(0, equals).rfind('/');
  if (equals == std::string::npos || slash == std::string::npos || slash + 1 == equals) {
    fail("is not like MODEL/TASK=DIR");
  }
  const auto model = std::ranges::find(*models, text.substr(0, slash), &ModelSource::name);
  if (model == models->end()) fail("names no --model");
  const std::string directory = text.substr(equals + 1);
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error)) fail("is not of a directory");
  model->adapters.emplace_back(text.substr(slash + 1, equals - slash - 1), directory);
}

std::pair<std::string, double> ParseWeight(const std::string& text) {
  auto fail = [&](const std::string& problem) {
    throw CLI::ValidationError("--tenant-weight", "'" + text + "' " + problem);
  };
  const size_t equals = text.find('=');
  if (equals == std::string::npos || !IsTenant(text.substr(0, equals))) {
    fail("does not begin with a tenant's name and '='");
  }
  double weight = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + equals + 1, end, weight);
  if (error != std::errc() || rest != end) fail("does not end in a number");
  if (!(weight >= kMinTenantWeight && weight <= kMaxTenantWeight)) {
    fail("is out of range (0.001 to 1000)");
  }
  return {text.substr(0, equals), weight};
}

std::string ReadProtocols(const std::string& text, Protocols* protocols) {
  *protocols = {.oip = false, .tei = false};
  if (text.empty() || text == "none") return "";
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string name = text.substr(begin, end - begin);
    if (name != "oip" && name != "tei") return "must be a list of oip and tei, or none";
    (name == "oip" ? protocols->oip : protocols->tei) = true;
    begin = end + 1;
  }
  return "";
}

}  // namespace castor::server
