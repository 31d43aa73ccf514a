#include "engine/encoder/directory/router.h"

#include <algorithm>
#include <memory>
#include <string_view>

#include "engine/base/regular_file.h"
#include "engine/encoder/directory/config_reader.h"
#include "engine/encoder/text/prompts.h"

namespace castor::encoder {
namespace {

constexpr std::string_view kTable = "SparseStaticEmbedding";

// The modules of a route, whose names are their folders.
std::vector<Module> ReadRoute(ConfigReader& config, const std::string& route) {
  std::vector<Module> modules;
  const auto types = config.StringsByName("types");
  const std::string key = "structure." + route;
  for (const std::string& folder : config.Strings(key)) {
    const auto type = std::ranges::find(types, folder, [](const auto& each) { return each.first; });
    if (!IsPlainFolder(folder)) {
      config.Fail(key, "\"" + folder + "\" is not a plain folder name");
    } else if (type == types.end() || !type->second.starts_with("sentence_transformers.")) {
      config.Fail("types",
                  "\"" + folder + "\" is missing, or is custom code, which is not run here");
    } else {
      const std::string_view name = type->second;
      modules.push_back({.type = std::string(name.substr(name.rfind('.') + 1)), .path = folder});
    }
  }
  return modules;
}

// Whether it is the route of queries, a table.
bool IsLookup(const std::vector<Module>& modules) {
  return modules.size() == 1 && modules.front().type == kTable;
}

}  // namespace

bool IsPlainFolder(const std::string& path) {
  return path.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos && path != "." &&
         path != "..";
}

absl::StatusOr<std::vector<Module>> ReadRouter(const std::string& folder, Directory* directory) {
  absl::StatusOr<ConfigReader> config = ReadConfig(File::kRouter, folder + "/router_config.json");
  if (!config.ok()) return config.status();
  std::vector<Module> others, table;
  for (const std::string& route : config->Keys("structure")) {
    if (route.empty() || route.find('.') != route.npos) {
      config->Fail("structure", "\"" + route + "\" is no name of a route here");
      break;
    }
    std::vector<Module> modules = ReadRoute(*config, route);
    directory->routes.push_back(route);
    if (IsLookup(modules)) directory->lookup_task = route;
    (IsLookup(modules) ? table : others) = std::move(modules);
  }
  if (directory->routes.size() != 2 || table.empty() || others.empty()) {
    config->Fail("structure",
                 "only a Router of two routes is supported, one a SparseStaticEmbedding, the other "
                 "a masked language model and SpladePooling: serve each route of others by a "
                 "modules.json that lists its folders");
  }
  if (config->Count("parameters.route_mappings") > 0) {
    config->Fail("parameters.route_mappings",
                 "is not supported: give the routes the names of their tasks");
  }
  // The first route in the file's order is the library's default where none is named; JSON objects
  // have no order here.
  const std::string by_default = config->String("parameters.default_route", "");
  if (std::ranges::count(directory->routes, by_default) == 0) {
    config->Fail("parameters.default_route",
                 "must name a route; sentence-transformers takes the first one in the file");
  }
  if (!config->status().ok()) return config->status();

  const std::string& place = table.front().path;
  Directory queries;
  queries.transformer = place.empty() ? folder : folder + "/" + place;
  const std::string file = queries.transformer + "/config.json";
  if (NameExists(file)) {
    absl::StatusOr<ConfigReader> own = ReadConfig(File::kSparseStatic, file);
    if (!own.ok()) return own.status();
  }
  // The names of routes choose them, whatever prompts there are.
  for (const std::string& route : directory->routes) LimitPrompt(route, 0, &directory->prompts);
  directory->lookup_by_default = by_default == directory->lookup_task;
  queries.has_modules = queries.lookup = queries.weighs = true;
  queries.routes = directory->routes;
  queries.prompts = directory->prompts;
  directory->lookup_route = std::make_shared<const Directory>(std::move(queries));
  return others;
}

}  // namespace castor::encoder
