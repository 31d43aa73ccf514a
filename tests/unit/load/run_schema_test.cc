// The schema against what is written: each key of a run is in the schema with its type, and each of
// the schema's keys is in some run. tests/bench/load_reports checks with a library for schemas.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "client/load/judge/verdict.h"
#include "client/load/measure/run_json.h"
#include "tests/support/seeded.h"
#include "tests/unit/load/made_run.h"

namespace castor::load {
namespace {

using Json = nlohmann::ordered_json;

class Walk {
 public:
  explicit Walk(const Json& schema) : schema_(schema) {}

  // Notes each property of the schema that `value` uses, and complains about what fits nowhere.
  void Check(const Json& value, const Json& schema, const std::string& at) {
    if (schema.contains("$ref")) {
      const std::string ref = schema["$ref"];
      Check(value, schema_[Json::json_pointer(ref.substr(1))], at);
      return;
    }
    if (schema.contains("type")) {
      EXPECT_TRUE(HasType(value, schema["type"])) << at;
    }
    if (schema.contains("const")) {
      EXPECT_EQ(value, schema["const"]) << at;
    }
    if (value.is_array()) {
      ASSERT_TRUE(schema.contains("items")) << at;
      for (const Json& element : value) Check(element, schema["items"], at + "[]");
    }
    if (!value.is_object()) return;
    for (const auto& [key, member] : value.items()) {
      if (schema.contains("properties") && schema["properties"].contains(key)) {
        const Json& property = schema["properties"][key];
        used_.insert(&property);
        EXPECT_FALSE(property.value("description", "").empty()) << at << "." << key;
        Check(member, property, at + "." + key);
      } else {
        const bool free =
            schema.contains("additionalProperties") && schema["additionalProperties"].is_object();
        ASSERT_TRUE(free) << at << "." << key << " is not in the schema";
        Check(member, schema["additionalProperties"], at + ".*");
      }
    }
    for (const Json& key : schema.value("required", Json::array())) {
      EXPECT_TRUE(value.contains(key.get<std::string>())) << at << "." << key;
    }
  }

  // Complains about properties anywhere in `schema` that no value had.
  void CheckUsed(const Json& schema, const std::string& at) const {
    if (!schema.is_structured()) return;
    for (const auto& [key, child] : schema.items()) {
      if (key == "properties") {
        for (const auto& [name, property] : child.items()) {
          EXPECT_TRUE(used_.contains(&property)) << at << "/" << name << " is never written";
        }
      }
      CheckUsed(child, at + "/" + key);
    }
  }

 private:
  static bool HasType(const Json& value, const Json& type) {
    if (type.is_array()) {
      for (const Json& one : type) {
        if (HasType(value, one)) return true;
      }
      return false;
    }
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    if (type == "null") return value.is_null();
    return type == value.type_name();
  }

  const Json& schema_;
  std::set<const Json*> used_;
};

TEST(RunSchema, IsWhatRunsAre) {
  const Json schema = Json::parse(RunSchema());
  EXPECT_EQ(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
  std::mt19937 random(FreshSeed());
  RunData run = RandomRun(random);
  const Verdict verdict = Judge(run);
  Walk walk(schema);
  walk.Check(ToJson(run, &verdict), schema, "run");
  walk.Check(ToJson(EmptyRun(1)), schema, "run");
  walk.CheckUsed(schema, "schema");
}

}  // namespace
}  // namespace castor::load
