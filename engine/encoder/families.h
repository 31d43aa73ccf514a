// The families of models that can be loaded. A family is a pair of files (bert.h, bert.cc) and one
// row in families.cc. The files say what its config.json means, what blocks its body is made of and
// where its checkpoints keep their weights. Nothing else knows its name.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/encoder/body.h"
#include "engine/encoder/config_reader.h"
#include "engine/encoder/head_layout.h"
#include "engine/encoder/input_rules.h"
#include "engine/encoder/weights.h"

namespace castor::encoder {

// What a family makes of a checkpoint.
struct FamilyModel {
  std::unique_ptr<Body> body;
  InputRules rules;
  // Of its classes with a head; null: none of them can be served. Lives as long as the program.
  const HeadLayout* heads = nullptr;
};

struct Family {
  std::string_view model_type;  // as in config.json
  absl::StatusOr<FamilyModel> (*build)(ConfigReader& config, WeightReader& weights);
};

// nullptr for an unknown type.
const Family* FindFamily(std::string_view model_type);

// "bert, ...": for messages.
std::string KnownFamilies();

}  // namespace castor::encoder
