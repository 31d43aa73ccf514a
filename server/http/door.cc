#include "server/http/door.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_replace.h"
#include "engine/base/error.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/version.h"

namespace castor::server::http {
namespace {

constexpr std::string_view kModels = "/models/", kV1 = "/v1";

// The text that the route's `*` stands for; nothing if the path is another.
std::optional<std::string_view> Match(std::string_view pattern, std::string_view path) {
  const size_t star = pattern.find('*');
  if (star == pattern.npos) {
    return pattern == path ? std::optional(std::string_view()) : std::nullopt;
  }
  const std::string_view after = pattern.substr(star + 1);
  if (path.size() < pattern.size() || !path.starts_with(pattern.substr(0, star)) ||
      !path.ends_with(after)) {
    return std::nullopt;
  }
  return path.substr(star, path.size() - star - after.size());
}

std::string WithCodedSlashes(const std::string& name) {
  return absl::StrReplaceAll(name, {{"/", "%2F"}});
}

// The details of a gRPC error that an HTTP answer carries.
struct ErrorDetails {
  google::rpc::ErrorInfo info;
  google::rpc::BadRequest bad_request;
  google::rpc::RetryInfo retry;
  bool has_retry = false;
};

ErrorDetails Unpack(const google::rpc::Status& error) {
  ErrorDetails details;
  for (const auto& detail : error.details()) {
    detail.UnpackTo(&details.info);
    detail.UnpackTo(&details.bad_request);
    details.has_retry |= detail.UnpackTo(&details.retry);
  }
  return details;
}

int StatusOf(grpc::StatusCode code, std::string_view reason) {
  switch (code) {
    case grpc::StatusCode::UNAUTHENTICATED:
      return 401;
    case grpc::StatusCode::PERMISSION_DENIED:
      return 403;
    case grpc::StatusCode::NOT_FOUND:
      return 404;
    case grpc::StatusCode::CANCELLED:
      return 408;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return reason == castor::NameOf(Reason::kTooLarge) ? 413 : 429;
    case grpc::StatusCode::UNIMPLEMENTED:
      return 501;
    case grpc::StatusCode::UNAVAILABLE:
      return 503;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return 504;
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::FAILED_PRECONDITION:
      return 400;
    default:
      return 500;
  }
}

// text-embeddings-inference's name for a kind of error.
const char* TeiType(int status) {
  if (status == 429 || status == 503) return "Overloaded";
  return status < 500 ? "Validation" : "Backend";
}

// The document of /docs, in OpenAPI 3.0, and the page of /.

std::string PathInDocs(std::string_view path) {
  const size_t star = path.find('*');
  if (star == path.npos) return std::string(path);
  return std::string(path.substr(0, star)) + "{model}" + std::string(path.substr(star + 1));
}

absl::StatusOr<Work> Docs(const Door&, Asked&) {
  Json paths = Json::object();
  for (const Route& route : Routes()) {
    Json& operation = paths[PathInDocs(route.path)][route.method == "GET" ? "get" : "post"];
    operation = {{"summary", route.summary},
                 {"responses",
                  {{"200", {{"description", "OK"}}},
                   {"default", {{"description", "an error, with its reason"}}}}}};
    if (route.path.find('*') != route.path.npos) {
      operation["parameters"] = Json::array({{{"name", "model"},
                                              {"in", "path"},
                                              {"required", true},
                                              {"schema", {{"type", "string"}}}}});
    }
    if (route.example.empty()) continue;
    operation["requestBody"]["content"]["application/json"] = {
        {"schema", {{"type", "object"}}}, {"example", Json::parse(route.example)}};
  }
  return JsonAnswer({{"openapi", "3.0.3"},
                     {"info", {{"title", "Castor"}, {"version", std::string(Version())}}},
                     {"paths", paths}});
}

absl::StatusOr<Work> Home(const Door& door, Asked&) {
  std::string page = "castor-server " + std::string(Version()) +
                     ": attention and encoder inference\n\nLoaded models:\n";
  for (const ModelInfo& model : *door.models()) {
    if (!model.outputs.empty()) page += "  " + model.name + "\n";
  }
  page += "\nPaths (/docs describes them in OpenAPI):\n";
  for (const Route& route : Routes()) {
    page += "  " + std::string(route.method) + " " + PathInDocs(route.path) + "  " +
            std::string(route.summary) + "\n";
  }
  return Answer{.content_type = "text/plain; charset=utf-8", .body = std::move(page)};
}

constexpr auto kOwnRoutes = std::to_array<Route>({
    {"GET", "/", kMayGetInfo, ErrorForm::kPlain, Home, "This server, its models and its paths"},
    {"GET", "/docs", kMayGetInfo, ErrorForm::kPlain, Docs, "These paths as an OpenAPI document"},
});

}  // namespace

std::span<const Route> Routes() {
  static const std::vector<Route>& all = *[] {
    auto* const routes = new std::vector<Route>(kOwnRoutes.begin(), kOwnRoutes.end());
    for (const auto& part : {OpenAiRoutes(), RerankRoutes(), TeiRoutes(), InferRoutes()}) {
      routes->insert(routes->end(), part.begin(), part.end());
    }
    return routes;
  }();
  return all;
}

// A path of /v1 is served without it, too.
Found FindRoute(const Door& door, std::string_view method, std::string_view path) {
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  if (method == "HEAD") method = "GET";
  Found found;
  const auto look = [&](std::string_view rest) {
    for (const Route& route : Routes()) {
      auto wildcard = Match(route.path, rest);
      if (!wildcard && route.path.starts_with(kV1) && route.path.find('*') == route.path.npos) {
        wildcard = Match(route.path.substr(kV1.size()), rest);
      }
      if (!wildcard) continue;
      if (route.method == method) {
        found.route = &route;
        found.wildcard = absl::StrReplaceAll(std::string(*wildcard), {{"%2F", "/"}, {"%2f", "/"}});
        return true;
      }
      found.allowed += (found.allowed.empty() ? "" : ", ") + std::string(route.method);
    }
    return false;
  };
  if (look(path) || !path.starts_with(kModels)) return found;
  // The prefix /models/NAME: a loaded model's name, which may have slashes, or any other up to the
  // first slash after which there is a path; then the handler knows that no model has the name.
  const std::string_view after = path.substr(kModels.size());
  std::string_view rest;
  const auto models = door.models();
  for (const ModelInfo& model : *models) {
    for (const std::string& name : {model.name, WithCodedSlashes(model.name)}) {
      if (!after.starts_with(name) || model.name.size() < found.model.size()) continue;
      const std::string_view others = after.substr(name.size());
      if (!others.empty() && others.front() != '/') continue;
      found.model = model.name;
      rest = others;
    }
  }
  if (!found.model.empty()) {
    look(rest.empty() ? "/" : rest);
    return found;
  }
  for (size_t at = 0; (at = after.find('/', at + 1)) != after.npos;) {
    found.model = after.substr(0, at);
    if (look(after.substr(at))) return found;
  }
  return found;
}

Answer JsonAnswer(const Json& json) { return {.body = Dump(json)}; }

Answer ErrorAnswer(ErrorForm form, const google::rpc::Status& error) {
  const ErrorDetails details = Unpack(error);
  const std::string& reason = details.info.reason();
  const int status = StatusOf(static_cast<grpc::StatusCode>(error.code()), reason);
  Json json;
  if (form == ErrorForm::kOpenAi) {
    const auto& fields = details.bad_request.field_violations();
    const Json param = fields.empty() ? Json() : Json(fields[0].field());
    const char* const type = status == 401                    ? "authentication_error"
                             : status == 403                  ? "permission_error"
                             : status == 429                  ? "rate_limit_error"
                             : status >= 500 && status != 501 ? "server_error"
                                                              : "invalid_request_error";
    json["error"] = {
        {"message", error.message()}, {"type", type}, {"param", param}, {"code", reason}};
  } else {
    json["error"] = error.message();
    if (form == ErrorForm::kTei) json["error_type"] = TeiType(status);
    json["code"] = reason;
  }
  Answer answer = JsonAnswer(json);
  answer.status = status;
  if (status == 401) answer.fields.emplace_back("WWW-Authenticate", "Bearer");
  if (details.has_retry || status == 503) {
    const int64_t ms = details.has_retry ? details.retry.retry_delay().seconds() * 1000 +
                                               details.retry.retry_delay().nanos() / 1'000'000
                                         : 1000;
    answer.fields.emplace_back("Retry-After", std::to_string((ms + 999) / 1000));
  }
  return answer;
}

Answer AnswerOf(ListAnswer list) {
  Answer answer;
  answer.more = [list = std::move(list), i = size_t{0}](std::string* out) mutable {
    if (i == 0) out->append(list.head);
    while (i < list.rows && out->size() < kPieceBytes) {
      if (i > 0) out->push_back(',');
      list.row(i++, out);
    }
    if (i < list.rows) return true;
    out->append(list.tail);
    return false;
  };
  return answer;
}

}  // namespace castor::server::http
