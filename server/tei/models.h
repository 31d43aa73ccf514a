// Chooses the model for a call of tei.v1. The protocol has no field for it, because its servers
// have one model each.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/engine.h"
#include "server/transport/call.h"

namespace castor::server::tei {

// A model, or why there is none.
struct Choice {
  ModelInfo model;
  absl::Status error;
};

// A copy of the loaded encoders, made at the server's start and owned by the Server. Constant; any
// thread.
class Models {
 public:
  // `default_model`: --tei-model; may be empty.
  Models(const std::vector<ModelInfo>& loaded, const std::string& default_model);
  Models(const Models&) = delete;
  Models& operator=(const Models&) = delete;

  // By the call's metadata `castor-model`, else the default one, else the only one.
  const Choice& Choose(const Call& call) const;

  // Full names of the services for which a call without the metadata finds a model.
  std::vector<std::string> Services() const;

 private:
  std::map<std::string, Choice, std::less<>> choices_;
  const Choice unknown_;
  Choice none_;
  const Choice* default_ = &none_;
};

bool Has(const ModelInfo& model, EncodeOutput output);

// Classifies whole texts.
bool Classifies(const ModelInfo& model);

}  // namespace castor::server::tei
