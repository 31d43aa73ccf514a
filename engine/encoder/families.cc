#include "engine/encoder/families.h"

#include <string>

#include "engine/encoder/bert.h"
#include "engine/encoder/castor_cast.h"
#include "engine/encoder/distilbert.h"
#include "engine/encoder/eurobert.h"
#include "engine/encoder/gemma.h"
#include "engine/encoder/gte.h"
#include "engine/encoder/jina_v3.h"
#include "engine/encoder/modernbert.h"
#include "engine/encoder/mpnet.h"
#include "engine/encoder/nomic_bert.h"
#include "engine/encoder/roberta.h"

namespace castor::encoder {
namespace {

constexpr Family kFamilies[] = {
    {"bert", BuildBert},
    {"camembert", BuildRoberta},
    {"castor_cast", BuildCastorCast},
    {"distilbert", BuildDistilBert},
    {"eurobert", BuildEuroBert},
    {"gemma3_text", BuildGemma},
    {"gte", BuildGte},
    {"jina_embeddings_v3", BuildJinaV3},
    {"modernbert", BuildModernBert},
    {"mpnet", BuildMpnet},
    {"new", BuildGte},
    {"nomic_bert", BuildNomicBert},
    {"roberta", BuildRoberta},
    {"xlm-roberta", BuildRoberta},
};

}  // namespace

const Family* FindFamily(std::string_view model_type) {
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

std::string KnownFamilies() {
  std::string names;
  for (const Family& family : kFamilies) {
    if (!names.empty()) names += ", ";
    names += family.model_type;
  }
  return names;
}

}  // namespace castor::encoder
