// Names of models: with slashes, several of one model, and none.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/models/models.h"
#include "tests/unit/loop/fake_model.h"

namespace castor {
namespace {

LoadedModel Layers(const std::string& name, size_t count) {
  LoadedModel model;
  model.info.name = name;
  const float surrogates[1] = {};
  for (size_t i = 0; i < count; ++i) {
    model.cast_layers.push_back(std::make_shared<const attention::CastLayer>(surrogates, 1, 1, 1));
  }
  return model;
}

LoadedModel Encoder(const std::string& name, std::shared_ptr<const encoder::Model> encoder,
                    const std::string& alias_of = "") {
  LoadedModel model;
  model.info.name = name;
  model.info.alias_of = alias_of;
  model.encoder = std::move(encoder);
  return model;
}

// "m/0" is a layer of one and the name of another.
TEST(ModelSetTest, LayersOfNamesWithSlashesAreToldApart) {
  const LoadedModel m = Layers("m", 2), m0 = Layers("m/0", 1);
  const ModelSet set({m, m0});
  const auto find = [&](const char* name) {
    const auto layer = set.cast_layers().Find(name);
    return layer.ok() ? layer->get() : nullptr;
  };
  EXPECT_EQ(find("m/0"), m.cast_layers[0].get());
  EXPECT_EQ(find("m/1"), m.cast_layers[1].get());
  EXPECT_EQ(find("m/0/0"), m0.cast_layers[0].get());
  for (const char* none : {"m", "m/2", "m/0/1", "0", "m/"}) EXPECT_EQ(find(none), nullptr) << none;
}

TEST(ModelSetTest, NamesOfOneModelAreOneModel) {
  const auto one = std::make_shared<FakeModel>("org/one"), two = std::make_shared<FakeModel>("two");
  std::vector<LoadedModel> models = {Encoder("org/one", one), Encoder("a", one, "org/one"),
                                     Encoder("z", one, "org/one"), Layers("layers", 1)};
  const ModelSet single(models);
  EXPECT_EQ((*single.FindEncoder(""))->info.name, "org/one");
  EXPECT_EQ((*single.FindEncoder("z"))->info.name, "z");
  EXPECT_EQ(single.Find("a")->number, single.Find("org/one")->number) << "they share batches";
  EXPECT_EQ(single.Find("z")->number, single.Find("org/one")->number);
  EXPECT_NE(single.Find("layers")->number, single.Find("org/one")->number);
  models.push_back(Encoder("two", two));
  const ModelSet several(models);
  EXPECT_FALSE(several.FindEncoder("").ok());
  EXPECT_NE(several.Find("two")->number, several.Find("a")->number);
}

}  // namespace
}  // namespace castor
