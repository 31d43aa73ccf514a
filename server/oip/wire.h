// ModelInferRequest as it is on the wire, read like castor.v1's requests (codec/message.h). Texts
// and raw contents point into the SliceView that they were read from.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "server/codec/messages.h"

namespace castor::server::oip::wire {

using server::wire::Bytes;
using server::wire::Case;
using server::wire::Field;
using server::wire::FieldList;
using server::wire::kSequences;
using server::wire::kTokens;
using server::wire::kValues;
using server::wire::OneOf;
using server::wire::Repeated;
using server::wire::Text;

inline constexpr int kTensors = 32;  // more than any model has
inline constexpr int kParameters = 256;

struct InferParameter {
  std::variant<std::monostate, bool, int64_t, Text, double, uint64_t> choice;

  using Fields =
      FieldList<OneOf<&InferParameter::choice, Case<"bool_param", 1>, Case<"int64_param", 2>,
                      Case<"string_param", 3>, Case<"double_param", 4>, Case<"uint64_param", 5>>>;
};

// An entry of a map; of several with one key the last counts.
struct ParameterEntry {
  Text key;
  InferParameter value;

  using Fields =
      FieldList<Field<"key", 1, &ParameterEntry::key>, Field<"value", 2, &ParameterEntry::value>>;
};

// Contents of the types that some input has. FP16 and BF16 have no contents in this protocol.
struct InferTensorContents {
  Repeated<int32_t> int_contents;
  Repeated<int64_t> int64_contents;
  Repeated<float> fp32_contents;
  Repeated<Bytes> bytes_contents;

  using Fields =
      FieldList<Field<"int_contents", 2, &InferTensorContents::int_contents, kTokens>,
                Field<"int64_contents", 3, &InferTensorContents::int64_contents, kTokens>,
                Field<"fp32_contents", 6, &InferTensorContents::fp32_contents, kValues>,
                Field<"bytes_contents", 8, &InferTensorContents::bytes_contents, kSequences>>;
};

struct InferInputTensor {
  Text name;
  Text datatype;
  Repeated<int64_t> shape;
  Repeated<ParameterEntry> parameters;
  std::optional<InferTensorContents> contents;

  using Fields = FieldList<Field<"name", 1, &InferInputTensor::name>,
                           Field<"datatype", 2, &InferInputTensor::datatype>,
                           Field<"shape", 3, &InferInputTensor::shape, 8>,
                           Field<"parameters", 4, &InferInputTensor::parameters, kParameters>,
                           Field<"contents", 5, &InferInputTensor::contents>>;
};

struct InferRequestedOutputTensor {
  Text name;
  Repeated<ParameterEntry> parameters;

  using Fields =
      FieldList<Field<"name", 1, &InferRequestedOutputTensor::name>,
                Field<"parameters", 2, &InferRequestedOutputTensor::parameters, kParameters>>;
};

struct ModelInferRequest {
  Text model_name;
  Text model_version;
  Text id;
  Repeated<ParameterEntry> parameters;
  Repeated<InferInputTensor> inputs;
  Repeated<InferRequestedOutputTensor> outputs;
  Repeated<Bytes> raw_input_contents;

  using Fields =
      FieldList<Field<"model_name", 1, &ModelInferRequest::model_name>,
                Field<"model_version", 2, &ModelInferRequest::model_version>,
                Field<"id", 3, &ModelInferRequest::id>,
                Field<"parameters", 4, &ModelInferRequest::parameters, kParameters>,
                Field<"inputs", 5, &ModelInferRequest::inputs, kTensors>,
                Field<"outputs", 6, &ModelInferRequest::outputs, kTensors>,
                Field<"raw_input_contents", 7, &ModelInferRequest::raw_input_contents, kTensors>>;
};

}  // namespace castor::server::oip::wire
