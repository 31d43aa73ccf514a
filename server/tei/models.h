// Chooses the model for a call of tei.v1. The protocol has no field for it, because its servers
// have one model each.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/engine.h"
#include "server/services/models.h"
#include "server/transport/call.h"

namespace castor::server::tei {

// A model, or why there is none. `model` is never null.
struct Choice {
  ModelInfoPtr model = std::make_shared<ModelInfo>();
  absl::Status error = absl::OkStatus();
};

// Any thread. `engine` must outlive this.
class Models {
 public:
  // `default_model`: --tei-model; may be empty.
  Models(const Engine& engine, std::string default_model)
      : engine_(engine), default_model_(std::move(default_model)) {}

  // The model that the call's metadata `castor-model` names; empty: it names none.
  static std::string NamedBy(const Call& call);

  // The named model, else the default one, else the only one.
  Choice Choose(const std::string& named) const;

  // Full names of the services for which a call without the metadata finds a model.
  std::vector<std::string> Services() const;

 private:
  const Engine& engine_;
  const std::string default_model_;
};

bool Has(const ModelInfo& model, EncodeOutput output);

// Classifies whole texts.
bool Classifies(const ModelInfo& model);

}  // namespace castor::server::tei
