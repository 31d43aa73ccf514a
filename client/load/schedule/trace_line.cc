#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "client/load/schedule/trace.h"

namespace castor::load {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxAt = int64_t{1} << 50;  // us: 35 years
constexpr int64_t kMaxTokensOfSequence = int64_t{1} << 20;
constexpr size_t kMaxSequencesOfRequest = 4096;
constexpr int64_t kMaxBytesOfText = int64_t{1} << 30;
constexpr int64_t kMaxDimension = 65536;
constexpr size_t kMaxNameBytes = 256;

// As their numbers on the wire.
const std::vector<std::string> kTypes = {"", "float32", "float16", "bfloat16"};
const std::vector<std::string> kPriorities = {"", "low", "normal", "high"};
const std::vector<std::string> kOutputs = {"",       "token-embeddings", "pooled",
                                           "logits", "scores",           "sparse"};

Json RunLengths(const std::vector<int64_t>& lengths) {
  Json runs = Json::array();
  for (size_t i = 0; i < lengths.size();) {
    size_t end = i + 1;
    while (end < lengths.size() && lengths[end] == lengths[i]) ++end;
    if (end - i > 1) {
      runs.push_back(Json::array({lengths[i], end - i}));
    } else {
      runs.push_back(lengths[i]);
    }
    i = end;
  }
  return runs;
}

void Put(Json& json, const char* key, int64_t value) {
  if (value != 0) json[key] = value;
}

void Put(Json& json, const char* key, const std::string& value) {
  if (!value.empty()) json[key] = value;
}

void PutKernel(const cli::KernelFlags& kernel, Json& json) {
  Put(json, "kernel", kernel.kernel);
  if (kernel.causal) json["causal"] = true;
  Put(json, "clusters", kernel.clusters);
  Put(json, "iterations", kernel.iterations);
  Put(json, "bits", kernel.bits);
  if (!kernel.hash_bias) json["hash_bias"] = false;
  Put(json, "query_clustering", kernel.query_clustering);
  if (kernel.kernel_seed != 0) json["seed"] = kernel.kernel_seed;
  Put(json, "topk", kernel.topk);
  Put(json, "rest_mass", kernel.rest_mass);
  Put(json, "cluster_size", kernel.cluster_size);
  Put(json, "layer", kernel.layer);
}

[[noreturn]] void RefuseKey(const char* key, const std::string& expected) {
  throw std::invalid_argument(std::string("\"") + key + "\" must be " + expected);
}

int64_t WholeOf(const char* key, const Json& value, int64_t least, int64_t greatest) {
  // An unsigned number above int64's range would turn negative.
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX) &&
                    value.get<int64_t>() >= least && value.get<int64_t>() <= greatest;
  if (!fits) {
    RefuseKey(key,
              "a whole number from " + std::to_string(least) + " to " + std::to_string(greatest));
  }
  return value.get<int64_t>();
}

template <typename T>
void GetWhole(const Json& json, const char* key, int64_t least, int64_t greatest, T* value) {
  const auto found = json.find(key);
  if (found != json.end()) *value = static_cast<T>(WholeOf(key, *found, least, greatest));
}

void GetFlag(const Json& json, const char* key, bool* value) {
  const auto found = json.find(key);
  if (found == json.end()) return;
  if (!found->is_boolean()) RefuseKey(key, "true or false");
  *value = found->get<bool>();
}

void GetText(const Json& json, const char* key, std::string* value) {
  const auto found = json.find(key);
  if (found == json.end()) return;
  if (!found->is_string() || found->get_ref<const std::string&>().size() > kMaxNameBytes) {
    RefuseKey(key, "a string of at most 256 bytes");
  }
  *value = found->get<std::string>();
}

// The index of the value in `names`, of which the first is no value but "not said".
size_t GetChoice(const Json& json, const char* key, const std::vector<std::string>& names) {
  std::string text;
  GetText(json, key, &text);
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) {
    std::string list;
    for (size_t i = 1; i < names.size(); ++i) list += (i == 1 ? "" : ", ") + names[i];
    RefuseKey(key, "one of " + list);
  }
  return static_cast<size_t>(found - names.begin());
}

// One of `names`, if the key is there.
void GetName(const Json& json, const char* key, std::vector<std::string> names,
             std::string* value) {
  names.insert(names.begin(), "");
  *value = names[GetChoice(json, key, names)];
}

std::vector<int64_t> GetLengths(const Json& json, const char* key, int64_t least,
                                int64_t greatest) {
  std::vector<int64_t> lengths;
  const auto found = json.find(key);
  if (found == json.end()) return lengths;
  const std::string expected = "an array of 1 to 4096 numbers, or pairs [number, times]";
  if (!found->is_array() || found->empty()) RefuseKey(key, expected);
  for (const Json& entry : *found) {
    int64_t times = 1;
    const Json* length = &entry;
    if (entry.is_array()) {
      if (entry.size() != 2) RefuseKey(key, expected);
      length = &entry[0];
      times = WholeOf(key, entry[1], 1, kMaxSequencesOfRequest);
    }
    if (lengths.size() + static_cast<size_t>(times) > kMaxSequencesOfRequest) {
      RefuseKey(key, expected);
    }
    lengths.insert(lengths.end(), static_cast<size_t>(times),
                   WholeOf(key, *length, least, greatest));
  }
  return lengths;
}

void GetKernel(const Json& json, TraceRequest* request) {
  cli::KernelFlags& kernel = request->kernel;
  std::vector<std::string> names = cli::KernelNames();
  names.insert(names.begin(), "");
  names.push_back("automatic");
  kernel.kernel = names[GetChoice(json, "kernel", names)];
  if (kernel.exact()) GetFlag(json, "causal", &kernel.causal);
  GetWhole(json, "clusters", 1, 65536, &kernel.clusters);
  GetWhole(json, "iterations", 1, 1000, &kernel.iterations);
  GetWhole(json, "bits", 1, 64, &kernel.bits);
  GetFlag(json, "hash_bias", &kernel.hash_bias);
  GetName(json, "query_clustering", cli::QueryClusterings(), &kernel.query_clustering);
  if (const auto seed = json.find("seed"); seed != json.end()) {
    if (!seed->is_number_unsigned()) RefuseKey("seed", "a whole number from 0 on");
    kernel.kernel_seed = seed->get<uint64_t>();
  }
  GetWhole(json, "topk", 1, 1024, &kernel.topk);
  GetName(json, "rest_mass", cli::RestMasses(), &kernel.rest_mass);
  GetWhole(json, "cluster_size", 1, INT32_MAX, &kernel.cluster_size);
  GetWhole(json, "surrogate_tokens", 1, kMaxDimension, &request->surrogate_tokens);
  GetText(json, "layer", &kernel.layer);
}

void GetAttend(const Json& json, TraceRequest* request) {
  request->key_lengths = GetLengths(json, "key_sequences", 1, kMaxTokensOfSequence);
  if (!request->key_lengths.empty() && request->key_lengths.size() != request->lengths.size()) {
    RefuseKey("key_sequences", "as many as \"sequences\"");
  }
  GetWhole(json, "heads", 1, kMaxDimension, &request->heads);
  GetWhole(json, "head_dim", 1, kMaxDimension, &request->head_dim);
  GetWhole(json, "value_dim", 1, kMaxDimension, &request->value_dim);
  if (request->heads == 0 || request->head_dim == 0) {
    throw std::invalid_argument("an attend needs \"heads\" and \"head_dim\"");
  }
  request->dtype = static_cast<v1::DataType>(std::max<size_t>(1, GetChoice(json, "dtype", kTypes)));
}

}  // namespace

std::string ToTraceLine(const TraceRequest& request) {
  Json json;
  json["at_us"] = request.at_us;
  json["kind"] = request.encode ? "encode" : "attend";
  if (!request.lengths.empty()) json["sequences"] = RunLengths(request.lengths);
  if (!request.text_bytes.empty()) json["text_bytes"] = RunLengths(request.text_bytes);
  if (request.encode) {
    Put(json, "model", request.model);
    if (request.output <= v1::SPARSE) Put(json, "output", kOutputs[request.output]);
  } else {
    if (!request.key_lengths.empty()) json["key_sequences"] = RunLengths(request.key_lengths);
    json["heads"] = request.heads;
    json["head_dim"] = request.head_dim;
    Put(json, "value_dim", request.value_dim);
    json["dtype"] = kTypes[request.dtype];
  }
  PutKernel(request.kernel, json);
  Put(json, "surrogate_tokens", request.surrogate_tokens);
  Put(json, "priority", kPriorities[request.priority]);
  if (request.deadline_ms) json["deadline_ms"] = *request.deadline_ms;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

TraceRequest ParseTraceLine(std::string_view line) {
  Json json;
  try {
    json = Json::parse(line);
  } catch (const Json::exception&) {  // its text may hold the line's bytes
    throw std::invalid_argument("is no JSON");
  }
  if (!json.is_object()) throw std::invalid_argument("is no JSON object");
  if (!json.contains("at_us") || !json.contains("kind")) {
    throw std::invalid_argument(
        "has no \"at_us\" and \"kind\": is this a trace of castor-server --record?");
  }
  TraceRequest request;
  GetWhole(json, "at_us", 0, kMaxAt, &request.at_us);
  request.encode = GetChoice(json, "kind", {"", "attend", "encode"}) == 2;
  request.lengths = GetLengths(json, "sequences", 1, kMaxTokensOfSequence);
  if (request.encode) request.text_bytes = GetLengths(json, "text_bytes", 0, kMaxBytesOfText);
  if (request.lengths.empty() == request.text_bytes.empty()) {
    throw std::invalid_argument("needs \"sequences\"");
  }
  if (const auto deadline = json.find("deadline_ms"); deadline != json.end()) {
    if (!deadline->is_number() || !(std::abs(deadline->get<double>()) < 1e12)) {
      RefuseKey("deadline_ms", "a number of milliseconds");
    }
    request.deadline_ms = deadline->get<double>();
  }
  request.priority = static_cast<v1::Priority>(GetChoice(json, "priority", kPriorities));
  GetKernel(json, &request);
  if (request.encode) {
    GetText(json, "model", &request.model);
    request.output = static_cast<v1::EncodeOutput>(GetChoice(json, "output", kOutputs));
  } else {
    GetAttend(json, &request);
  }
  return request;
}

}  // namespace castor::load
