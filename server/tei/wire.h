// tei.v1's requests as they are on the wire, read like castor.v1's (codec/message.h): texts point
// into the SliceView that they were read from. uint32 is read as int64, so that a larger number is
// refused instead of wrapped.
#pragma once

#include <cstdint>
#include <optional>

#include "server/codec/message.h"

namespace castor::server::wire::tei {

// The fields of all requests together; each request reads some of them.
struct Request {
  Text inputs, query;
  Repeated<Text> texts;  // of a Rerank, or the inputs of a pair
  Repeated<int64_t> ids;
  bool truncate = false, raw_scores = false, return_text = false;
  bool add_special_tokens = false, skip_special_tokens = false;
  int32_t truncation_direction = 0;
  std::optional<bool> normalize;
  std::optional<Text> prompt_name;
  std::optional<int64_t> dimensions;
};

using Inputs = Field<"inputs", 1, &Request::inputs>;
template <uint32_t kNumber>
using Truncate = Field<"truncate", kNumber, &Request::truncate>;
template <uint32_t kNumber>
using RawScores = Field<"raw_scores", kNumber, &Request::raw_scores>;
template <uint32_t kNumber>
using Direction = Field<"truncation_direction", kNumber, &Request::truncation_direction>;
template <uint32_t kNumber>
using PromptName = Field<"prompt_name", kNumber, &Request::prompt_name>;

struct EmbedRequest : Request {
  using Fields =
      FieldList<Inputs, Truncate<2>, Field<"normalize", 3, &Request::normalize>, Direction<4>,
                PromptName<5>, Field<"dimensions", 6, &Request::dimensions>>;
};
struct EmbedSparseRequest : Request {
  using Fields = FieldList<Inputs, Truncate<2>, Direction<3>, PromptName<4>>;
};
struct EmbedAllRequest : Request {
  using Fields = EmbedSparseRequest::Fields;
};
struct PredictRequest : Request {
  using Fields = FieldList<Inputs, Truncate<2>, RawScores<3>, Direction<4>>;
};
struct PredictPairRequest : Request {
  using Fields = FieldList<Field<"inputs", 1, &Request::texts, &DecodeBudget::max_sequences>,
                           Truncate<2>, RawScores<3>, Direction<4>>;
};
// RerankStreamRequest has the same field numbers; its one text is the last of `texts`.
struct RerankRequest : Request {
  Repeated<Text> queries;  // RerankStream's, one for each text; else `query` is every text's

  using Fields =
      FieldList<Field<"query", 1, &Request::query>,
                Field<"texts", 2, &Request::texts, &DecodeBudget::max_sequences>, Truncate<3>,
                RawScores<4>, Field<"return_text", 5, &Request::return_text>, Direction<6>>;
};
struct EncodeRequest : Request {
  using Fields = FieldList<Inputs, Field<"add_special_tokens", 2, &Request::add_special_tokens>,
                           PromptName<3>>;
};
struct DecodeRequest : Request {
  using Fields = FieldList<Field<"ids", 1, &Request::ids, &DecodeBudget::max_tokens>,
                           Field<"skip_special_tokens", 2, &Request::skip_special_tokens>>;
};

}  // namespace castor::server::wire::tei
