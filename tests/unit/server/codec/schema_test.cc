// The decoders' declarations must match the .proto files: exactly the same fields, with the same
// numbers, types and oneofs.

#include <cctype>
#include <cstdlib>
#include <map>
#include <string>
#include <type_traits>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "castor/v1/kernel.pb.h"
#include "engine/kernel_parameters.h"
#include "gtest/gtest.h"
#include "inference/grpc_service.pb.h"
#include "server/codec/enums.h"
#include "server/codec/messages.h"
#include "server/oip/wire.h"
#include "server/tei/wire.h"
#include "tei/v1/tei.pb.h"

namespace castor::server::wire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

using Lines = std::map<uint32_t, std::string>;  // by field number

// The declared type of a member, as words.
template <typename T>
std::string WordsOf() {
  if constexpr (std::same_as<T, bool>) return "bool";
  if constexpr (std::same_as<T, int32_t>) return "int32";
  if constexpr (std::same_as<T, int64_t>) return "int64";
  if constexpr (std::same_as<T, uint64_t>) return "uint64";
  if constexpr (std::same_as<T, float>) return "float";
  if constexpr (std::same_as<T, double>) return "double";
  if constexpr (std::same_as<T, Text>) return "string";
  if constexpr (std::same_as<T, Bytes>) return "bytes";
  if constexpr (requires(T v) { v.has_value(); }) {
    return "optional " + WordsOf<typename T::value_type>();
  } else if constexpr (kIsRepeated<T>) {
    return "repeated " + WordsOf<typename T::value_type>();
  }
  return "message";
}

template <Message M>
Lines Declared() {
  Lines lines;
  M::Fields::Visit([&]<typename T>(std::string_view name, uint32_t number) {
    lines[number] = std::string(name) + ": " + WordsOf<T>();
  });
  return lines;
}

Lines Contract(const Descriptor& message) {
  Lines lines;
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor* field = message.field(i);
    const bool is_message = field->message_type() != nullptr;
    std::string words;
    if (field->is_repeated()) {
      words = "repeated ";
    } else if (field->has_presence() && field->real_containing_oneof() == nullptr) {
      words = "optional ";
    }
    if (field->enum_type() != nullptr) {
      words += "int32";  // how it is read
    } else if (field->type() == FieldDescriptor::TYPE_UINT32) {
      words += "int64";  // likewise
    } else {
      words += is_message ? "message" : field->type_name();
    }
    lines[static_cast<uint32_t>(field->number())] = field->name() + ": " + words;
  }
  return lines;
}

template <Message M>
void ExpectSame(const Descriptor* message) {
  EXPECT_EQ(Declared<M>(), Contract(*message)) << message->full_name();
}

TEST(SchemaTest, DeclaresTheContract) {
  ExpectSame<SharedMemoryRef>(v1::SharedMemoryRef::descriptor());
  ExpectSame<Tensor>(v1::Tensor::descriptor());
  ExpectSame<Vanilla>(v1::Vanilla::descriptor());
  ExpectSame<Clustered>(v1::Clustered::descriptor());
  ExpectSame<ImprovedClustered>(v1::ImprovedClustered::descriptor());
  ExpectSame<Cast>(v1::Cast::descriptor());
  ExpectSame<Automatic>(v1::Automatic::descriptor());
  ExpectSame<Window>(v1::Positions::Window::descriptor());
  ExpectSame<Positions>(v1::Positions::descriptor());
  ExpectSame<AttendRequest>(v1::AttendRequest::descriptor());
  ExpectSame<TextBatch>(v1::TextBatch::descriptor());
  ExpectSame<TokenBatch>(v1::TokenBatch::descriptor());
  ExpectSame<EmbeddingBatch>(v1::EmbeddingBatch::descriptor());
  ExpectSame<SpanRange>(v1::Spans::Range::descriptor());
  ExpectSame<Spans>(v1::Spans::descriptor());
  ExpectSame<EncodeRequest>(v1::EncodeRequest::descriptor());
  ExpectSame<RerankRequest>(v1::RerankRequest::descriptor());
  ExpectSame<TokenizeRequest>(v1::TokenizeRequest::descriptor());
  ExpectSame<DetokenizeRequest>(v1::DetokenizeRequest::descriptor());
}

// Of contents only those of types that some input has.
TEST(SchemaTest, DeclaresTheOpenInferenceProtocol) {
  ExpectSame<oip::wire::InferParameter>(inference::InferParameter::descriptor());
  ExpectSame<oip::wire::InferInputTensor>(
      inference::ModelInferRequest::InferInputTensor::descriptor());
  ExpectSame<oip::wire::InferRequestedOutputTensor>(
      inference::ModelInferRequest::InferRequestedOutputTensor::descriptor());
  ExpectSame<oip::wire::ModelInferRequest>(inference::ModelInferRequest::descriptor());
  const Lines contents = Contract(*inference::InferTensorContents::descriptor());
  for (const auto& [number, line] : Declared<oip::wire::InferTensorContents>()) {
    EXPECT_EQ(contents.at(number), line);
  }
  EXPECT_EQ(Declared<oip::wire::ParameterEntry>(),  // a map's
            (Lines{{1, "key: string"}, {2, "value: message"}}));
}

TEST(SchemaTest, DeclaresTheEmbeddingInferenceProtocol) {
  ExpectSame<tei::EmbedRequest>(::tei::v1::EmbedRequest::descriptor());
  ExpectSame<tei::EmbedSparseRequest>(::tei::v1::EmbedSparseRequest::descriptor());
  ExpectSame<tei::EmbedAllRequest>(::tei::v1::EmbedAllRequest::descriptor());
  ExpectSame<tei::PredictRequest>(::tei::v1::PredictRequest::descriptor());
  ExpectSame<tei::PredictPairRequest>(::tei::v1::PredictPairRequest::descriptor());
  ExpectSame<tei::RerankRequest>(::tei::v1::RerankRequest::descriptor());
  ExpectSame<tei::EncodeRequest>(::tei::v1::EncodeRequest::descriptor());
  ExpectSame<tei::DecodeRequest>(::tei::v1::DecodeRequest::descriptor());
  // Read as a RerankRequest.
  Lines part = Contract(*::tei::v1::RerankStreamRequest::descriptor());
  EXPECT_EQ(part[2], "text: string");
  part[2] = "texts: repeated string";
  EXPECT_EQ(Declared<tei::RerankRequest>(), part);
}

// A kernel's name on the wire is the engine's label in capitals.
TEST(SchemaTest, KernelsAreNumberedAsTheEngineListsThem) {
  for (const KernelRow& row : kKernels) {
    std::string label = v1::KernelName_Name(ToWire(kKernelNames, row.name));
    for (char& c : label) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    EXPECT_EQ(label, row.label);
    EXPECT_EQ(FromWire(kKernelNames, ToWire(kKernelNames, row.name)), row.name);
  }
}

// What clients read of the contract about a kernel's parameters is what the engine checks.
template <typename Kernel>
void ExpectSameParameters(const Descriptor* message) {
  int known = 0;
  ForEachParameter(Kernel{}, [&](const auto& parameter, const auto& value) {
    ++known;
    const FieldDescriptor* const field = message->FindFieldByName(std::string(parameter.name));
    ASSERT_NE(field, nullptr) << message->full_name() << " lacks " << parameter.name;
    const v1::Parameter& stated = field->options().GetExtension(v1::parameter);
    if constexpr (std::is_same_v<decltype(value), const int32_t&>) {
      if (parameter.range) {
        EXPECT_EQ(stated.least(), parameter.range->least) << field->full_name();
        EXPECT_EQ(stated.most(), parameter.range->most) << field->full_name();
      }
      EXPECT_TRUE(value == 0 || std::atoi(stated.absent().c_str()) == value) << field->full_name();
    }
  });
  for (int i = 0; i < message->field_count(); ++i) {  // tensors are none of them
    const FieldDescriptor& field = *message->field(i);
    if (field.message_type() == nullptr && field.real_containing_oneof() == nullptr) --known;
  }
  EXPECT_EQ(known, 0) << message->full_name() << " has other parameters than the engine";
}

TEST(SchemaTest, KernelsParametersAreTheEngines) {
  ExpectSameParameters<castor::Vanilla>(v1::Vanilla::descriptor());
  ExpectSameParameters<castor::Clustered>(v1::Clustered::descriptor());
  ExpectSameParameters<castor::ImprovedClustered>(v1::ImprovedClustered::descriptor());
  ExpectSameParameters<castor::Cast>(v1::Cast::descriptor());
}

}  // namespace
}  // namespace castor::server::wire
