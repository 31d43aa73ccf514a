// The loaded models as the server's rooms see them: views of the engine's current list, which lives
// as long as they do. Nothing here is kept from one request to the next. Any thread.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/error.h"
#include "engine/engine.h"

namespace castor::server {

using ModelInfoPtr = std::shared_ptr<const ModelInfo>;

// Null: no model of this name is loaded.
inline ModelInfoPtr FindModel(const std::shared_ptr<const ModelInfos>& models,
                              std::string_view name) {
  const auto found = std::ranges::find(*models, name, &ModelInfo::name);
  return found == models->end() ? nullptr : ModelInfoPtr(models, &*found);
}

// The error for a request whose model is not loaded: `not_found` unless the model may be loaded.
inline absl::Status Missing(const Engine& engine, std::string_view name,
                            std::string_view not_found) {
  absl::Status missing = engine.NotLoaded(std::string(name));
  return ReasonOf(missing) == Reason::kModelNotFound ? MakeError(Reason::kModelNotFound, not_found)
                                                     : missing;
}

}  // namespace castor::server
