// The decoder of EncodeRequest against protobuf's parser; those of the other requests to
// EncoderService, which read the same kinds of fields, do no harm.

#include "castor/v1/encoder.pb.h"
#include "server/codec/encoder_codec.h"
#include "server/codec/rerank_codec.h"
#include "tests/fuzz/compare.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace castor::server;
  twin::CompareInput({data, size}, [](std::string_view bytes, std::span<const size_t> slices) {
    return twin::Compare<wire::EncodeRequest, castor::v1::EncodeRequest>(
        bytes, slices, [](const grpc::ByteBuffer& buffer) {
          DecodedEncode out;
          return DecodeEncodeRequest(buffer, twin::Regions(), &out);
        });
  });
  const grpc::Slice slice(data, size);
  const grpc::ByteBuffer bytes(&slice, 1);
  DecodedRerank rerank;
  (void)DecodeRerankRequest(bytes, twin::Regions(), {}, &rerank);
  DecodedEncode tokenize, detokenize;
  (void)DecodeTokenizeRequest(bytes, twin::Regions(), &tokenize);
  (void)DecodeDetokenizeRequest(bytes, twin::Regions(), &detokenize);
  return 0;
}
