// A server with the HTTP door over models of the golden folder.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/integration/golden_models.h"
#include "tests/integration/http/http_exchange.h"
#include "tests/integration/server_fixture.h"

namespace castor::testing {

using nlohmann::json;

inline server::ServerOptions HttpOptions() {
  server::ServerOptions options = TestOptions();
  options.http.listen = "127.0.0.1:0";
  return options;
}

class ServerHttpTest : public ServerTest {
 protected:
  void Start(const std::vector<std::string>& models,
             server::ServerOptions options = HttpOptions()) {
    StartReal(GoldenModels(models, "heads/"), std::move(options));
  }

  HttpExchange Connect() const { return HttpExchange(server_->http_port()); }
  HttpAnswer Post(const std::string& path, const json& body, const std::string& fields = "") const {
    return Connect().Post(path, body.dump(), fields);
  }
};

}  // namespace castor::testing
